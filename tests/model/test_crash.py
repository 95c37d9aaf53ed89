"""Whatever goes wrong while writing: the old file, whole, and nothing beside it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from model.building import LARGE, names_in, rich_model, save_outside, small_model, weight

from normlint.model import FileFault, SaveError, emit, new_tensor, open_model, save_model, splice

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.model import ModelFile, Written
    from normlint.model.source import FileSource

RICH = rich_model().SerializeToString()
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
STEPS: list[tuple[object, str]] = [
    (os, "open"),
    (os, "write"),
    (os, "copy_file_range"),
    (os, "fsync"),
    (os, "fstat"),
    (os, "fchmod"),
    (os, "pread"),
    (os, "link"),
    (Path, "replace"),
    (Path, "stat"),
    (Path, "mkdir"),
    (Path, "rename"),
    (Path, "resolve"),
]


class Tree:
    """A folder with a model that has a side file, to be saved in place or elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "a.onnx"
        save_outside(small_model(weight("w"), weight("v", 1)), self.path)
        self.model: ModelFile = open_model(self.path)
        self.size = splice.NEW_INSIDE
        self.model.proto.graph.initializer[0].CopyFrom(new_tensor("w", 1, [self.size], 0))

    def content(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
            for path in self.folder.rglob("*")
        }

    def save(self, target: Path) -> Written:
        values = [lambda: np.ones(self.size, np.float32)]
        return save_model(self.model, self.model.proto, target, new_values=values, backup=True)


def fail_at(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, call: int, error: BaseException
) -> list[int]:
    """Let the call of that number fail; return a list that holds 1 once it did."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1_000_000))
    failed: list[int] = []

    def failing(*args: Any, **options: Any) -> Any:
        if next(calls) == call:
            failed.append(1)
            raise error
        return original(*args, **options)

    monkeypatch.setattr(owner, name, failing)
    return failed


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize("place", ["a.onnx", "out/sub/b.onnx"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[1])
def test_every_step_may_fail(
    tmp_path: Path, step: tuple[object, str], place: str, error: BaseException
) -> None:
    """Fail at the first call, then at the second, and so on until the writing ends well."""
    for call in range(60):
        folder = tmp_path / str(call)
        folder.mkdir()
        tree = Tree(folder)
        before = tree.content()
        with pytest.MonkeyPatch.context() as monkeypatch:
            failed = fail_at(monkeypatch, *step, call, error)
            try:
                tree.save(folder / place)
            except (SaveError, KeyboardInterrupt) as stopped:
                saved = None
                reason = stopped
            else:
                saved = folder / place
        if saved:
            onnx.checker.check_model(saved)
            assert not [name for name in tree.content() if "/." in f"/{name}"]
            if not failed:
                return
        else:
            assert failed, reason
            after = tree.content()
            renamed = place in after and after != before
            if renamed and isinstance(reason, KeyboardInterrupt):
                # Interrupted after the renaming: then all of it is there.
                onnx.checker.check_model(folder / place)
                assert not [name for name in after if "/." in f"/{name}"]
            else:
                assert after == before
    pytest.fail("it never ended well")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path)
    fail_at(monkeypatch, os, "write", 0, FULL)

    with pytest.raises(SaveError, match=r"a\.onnx was not written: No space left on device"):
        tree.save(tree.path)


def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.path.chmod(0o444)
    before = tree.content()

    with pytest.raises(SaveError, match="read-only"):
        tree.save(tree.path)
    assert tree.content() == before


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    before = tree.content()

    with pytest.raises(SaveError, match="a pipe"):
        tree.save(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SaveError):
        tree.save(tmp_path / "loop")
    (tmp_path / "loop").unlink()
    with pytest.raises(SaveError):
        tree.save(tree.path / "below a file")
    assert tree.content() == before


@pytest.mark.parametrize("how", ["rewritten", "replaced", "removed"])
def test_a_model_that_changed_meanwhile_is_left_alone(tmp_path: Path, how: str) -> None:
    tree = Tree(tmp_path)
    if how == "rewritten":
        with tree.path.open("ab") as file:
            file.write(b"more")
    elif how == "replaced":
        (tmp_path / "b").write_bytes(tree.path.read_bytes())
        (tmp_path / "b").replace(tree.path)
    else:
        tree.path.unlink()
    before = tree.content()

    with pytest.raises(SaveError, match="changed"):
        tree.save(tree.path)
    assert tree.content() == before


def test_a_target_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    target = tmp_path / "b.onnx"

    def values() -> np.ndarray:
        target.write_bytes(b"someone else's")
        return np.ones(tree.size, np.float32)

    with pytest.raises(SaveError, match="changed"):
        save_model(tree.model, tree.model.proto, target, new_values=[values])
    assert target.read_bytes() == b"someone else's"


def test_a_source_that_changes_under_a_copy_to_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)
    model = open_model(path)
    path.write_bytes(RICH[:-100])

    with pytest.raises(SaveError, match="changed"):
        save_model(model, model.proto, tmp_path / "b.onnx")
    assert names_in(tmp_path) == ["a.onnx"]


def test_what_was_written_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)
    model = open_model(path)
    write = emit.write

    def lossy(fd: int, data: bytes) -> None:
        write(fd, data[:-1])

    monkeypatch.setattr(emit, "write", lossy)
    with pytest.raises(SaveError):
        save_model(model, model.proto, path)
    assert path.read_bytes() == RICH
    assert names_in(tmp_path) == ["a.onnx"]


def test_a_side_file_that_came_out_short_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)
    model = open_model(path)
    monkeypatch.setattr(splice, "PROTOBUF_LIMIT", 1)
    copy = emit.copy

    def short(source: FileSource, offset: int, length: int, fd: int) -> None:
        copy(source, offset, length - 1, fd)

    monkeypatch.setattr(emit, "copy", short)
    with pytest.raises(SaveError, match="too short"):
        save_model(model, model.proto, path)
    assert names_in(tmp_path) == ["a.onnx"]


@pytest.mark.parametrize("answer", [OSError(errno.EXDEV, "other device"), 0, 7])
def test_copying_goes_on_where_the_kernel_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: OSError | int
) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)
    model = open_model(path)
    original = os.copy_file_range
    calls = iter(range(1000))

    def limited(source: int, target: int, count: int, offset: int) -> int:
        if isinstance(answer, OSError):
            raise answer
        if next(calls) % 2:
            return 0
        return original(source, target, min(answer, count), offset)

    monkeypatch.setattr(os, "copy_file_range", limited)
    save_model(model, model.proto, tmp_path / "b.onnx")
    monkeypatch.delattr(os, "copy_file_range")
    save_model(model, model.proto, tmp_path / "c.onnx")

    assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "c.onnx").read_bytes() == RICH


def test_short_writes_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)
    write, pread = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:1000]))
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 1000), at))
    monkeypatch.delattr(os, "copy_file_range")
    model = open_model(path)

    save_model(model, model.proto, tmp_path / "b.onnx")

    assert (tmp_path / "b.onnx").read_bytes() == RICH


def test_a_file_that_ends_early_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda fd, count, at: pread(fd, count, at)[: max(0, LARGE - at)]
    )

    with pytest.raises(FileFault) as caught:
        open_model(path)
    assert caught.value.code == "NL905"


@pytest.mark.parametrize("step", ["write", "copy_file_range", "fsync"])
def test_a_killed_process_leaves_the_old_file(tmp_path: Path, step: str) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)
    code = (
        "import os, sys, pathlib\n"
        "from normlint.model import open_model, save_model\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "model = open_model(path)\n"
        "model.proto.producer_name = 'changed'\n"
        "setattr(os, sys.argv[2], lambda *_: os.kill(os.getpid(), 9))\n"
        "save_model(model, model.proto, path)\n"
    )

    done = subprocess.run([sys.executable, "-c", code, str(path), step], check=False)

    assert done.returncode == -9
    assert path.read_bytes() == RICH
    model = open_model(path)
    model.proto.producer_name = "changed"
    save_model(model, model.proto, path)
    assert onnx.load(path).producer_name == "changed"
