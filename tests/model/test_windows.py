"""Reading and writing where the system has neither POSIX's calls nor its ways with open files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest
from folding import CONV, NORM, model_of
from model.building import names_in, rich_model, save_outside, small_model, weight

from normlint.model import SaveError, copy_model, open_model, save_model, source

if TYPE_CHECKING:
    from normlint.model import ModelFile

ABSENT = (
    *("pread", "fchmod", "fchown", "copy_file_range", "sendfile", "SEEK_DATA", "SEEK_HOLE"),
    *("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "geteuid", "getuid", "mkfifo", "sched_getaffinity"),
)
"""Names of `os` that Windows does not have (fchmod from Python 3.13 on)."""
UNKNOWN = ("fcntl", "resource", "pwd", "grp", "termios")
"""Modules that it does not have."""
IN_USE = PermissionError(errno.EACCES, "The process cannot access the file: it is in use")


class System:
    """What is open, and what may be done with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: dict[int, tuple[int, int]] = {}
        self.flags: list[int] = []
        self._open, self._close, self._replace = os.open, os.close, Path.replace
        for name in ABSENT:
            monkeypatch.delattr(os, name, raising=False)
        # A flag that changes nothing here, to be seen again.
        self.binary = os.O_SYNC
        monkeypatch.setattr(os, "O_BINARY", self.binary, raising=False)
        monkeypatch.setattr(os, "open", self.opened)
        monkeypatch.setattr(os, "close", self.closed)
        replaced = self.replaced

        def replace(old: Path, new: Path) -> Path:
            return replaced(old, new)

        monkeypatch.setattr(Path, "replace", replace)
        monkeypatch.setattr(source, "REPLACES_OPEN", False)

    def opened(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        fd = self._open(path, flags, *rest, **options)
        if str(path).endswith((".onnx", ".data", ".tmp")):
            self.flags.append(flags)
        self.open[fd] = self.key(os.fstat(fd))
        return fd

    def closed(self, fd: int) -> None:
        self.open.pop(fd, None)
        self._close(fd)

    def replaced(self, old: Path, new: Path) -> Path:
        if new.exists() and self.key(new.stat()) in self.open.values():
            raise IN_USE
        return self._replace(old, new)

    @staticmethod
    def key(status: os.stat_result) -> tuple[int, int]:
        return status.st_dev, status.st_ino


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


def changed(path: Path) -> ModelFile:
    model = open_model(path)
    model.proto.producer_name = "changed"
    return model


@pytest.mark.parametrize("backup", [False, True])
def test_a_model_is_written_over_itself(tmp_path: Path, system: System, backup: bool) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(rich_model().SerializeToString())
    before = path.read_bytes()
    model = changed(path)

    written = save_model(model, model.proto, path, backup=backup)

    assert onnx.load(path).producer_name == "changed"
    assert names_in(tmp_path) == ["a.onnx", *(["a.onnx.orig"] if backup else [])]
    assert written.backup is None or written.backup.read_bytes() == before
    assert system.flags
    assert all(flags & system.binary for flags in system.flags), "or \\n becomes \\r\\n"


def test_side_files_come_along(tmp_path: Path, system: System) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w"), weight("v", 1)), path)
    (tmp_path / "to").mkdir()

    copy_model(open_model(path), tmp_path / "to" / "b.onnx")

    assert onnx.load(tmp_path / "to" / "b.onnx").graph == onnx.load(path).graph
    assert all(flags & system.binary for flags in system.flags)


def test_a_file_that_another_process_has_open_stays(tmp_path: Path, system: System) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(rich_model().SerializeToString())
    before = path.read_bytes()
    model = changed(path)
    other = system.opened(path, os.O_RDONLY)

    with pytest.raises(SaveError, match=r"in use\. What was there is untouched"):
        save_model(model, model.proto, path)

    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["a.onnx"]
    large = next(tensor for tensor in model.proto.graph.initializer if tensor.name == "w")
    assert model.values(large).size, "the model is still readable"
    system.closed(other)
    save_model(model, model.proto, path)
    assert onnx.load(path).producer_name == "changed"


@pytest.mark.usefixtures("system")
def test_after_that_nothing_is_read_from_whatever_has_the_number_now(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(rich_model().SerializeToString())
    model = changed(path)
    save_model(model, model.proto, path)

    with path.open("rb"), pytest.raises(OSError, match="Bad file descriptor"):
        model.sha256()


WITHOUT = f"""
import sys
for name in {UNKNOWN!r}:
    sys.modules[name] = None
import onnxruntime, onnx, os
for name in {ABSENT!r}:
    if hasattr(os, name):
        delattr(os, name)
from normlint.__main__ import main
sys.argv = ["normlint", "check", "m.onnx", "--apply", "--isolated"]
main()
"""


def test_the_command_needs_none_of_it(tmp_path: Path) -> None:
    text = f"""
        g (float[1,2,4,4] x) => (float[1,2,N,M] y) <{CONV}, {NORM}> {{
            c = Conv(x, w)
            y = BatchNormalization(c, s, b, m, v)
        }}
    """
    onnx.save(model_of(text), tmp_path / "m.onnx")

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node] == ["Conv"]
