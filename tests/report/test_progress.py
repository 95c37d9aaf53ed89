from __future__ import annotations

import io
import re
import time

import pytest

from normlint.report import progress
from normlint.report.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def attach(monkeypatch: pytest.MonkeyPatch, patience: float = 0.02) -> Terminal:
    """Make standard error a terminal; in the test itself, for pytest sets it before each phase."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", patience)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def wait_for(stream: io.StringIO, text: str) -> bool:
    deadline = time.monotonic() + 10
    while text not in plain(stream) and time.monotonic() < deadline:
        time.sleep(0.01)
    return text in plain(stream)


def plain(stream: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_a_long_run_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attach(monkeypatch)
    with Progress(3) as shown:
        assert wait_for(terminal, "0 of 3 checked")
        shown.done()
        assert wait_for(terminal, "1 of 3 checked")


def test_a_short_run_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attach(monkeypatch, patience=60)
    with Progress(1) as shown:
        shown.done()

    assert terminal.getvalue() == ""


@pytest.mark.parametrize("how", ["unwanted", "ci", "pipe"])
def test_nothing_where_nobody_looks(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = attach(monkeypatch)
    if how == "ci":
        monkeypatch.setenv("CI", "true")
    if how == "pipe":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    with Progress(1, wanted=how != "unwanted"):
        time.sleep(0.1)

    assert terminal.getvalue() == ""
