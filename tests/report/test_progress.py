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


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "_PATIENCE", 0.02)
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


def test_a_long_run_shows_how_far_it_is(terminal: Terminal) -> None:
    with Progress(3) as shown:
        assert wait_for(terminal, "0 of 3 checked")
        shown.done()
        assert wait_for(terminal, "1 of 3 checked")


def test_a_short_run_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 60)
    with Progress(1) as shown:
        shown.done()

    assert terminal.getvalue() == ""


@pytest.mark.parametrize("how", ["unwanted", "ci", "pipe"])
def test_nothing_where_nobody_looks(
    how: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "ci":
        monkeypatch.setenv("CI", "true")
    if how == "pipe":
        terminal = Terminal()
        monkeypatch.setattr(terminal, "isatty", lambda: False)
        monkeypatch.setattr("sys.stderr", terminal)
    with Progress(1, wanted=how != "unwanted"):
        time.sleep(0.1)

    assert terminal.getvalue() == ""
