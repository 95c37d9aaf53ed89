"""What was not changed is the same byte for byte, and what was is where a runtime finds it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model.building import (
    LARGE,
    names_in,
    rich_model,
    save_outside,
    small_model,
    tensors_in,
    weight,
)
from onnx import TensorProto, helper, numpy_helper

from normlint.model import (
    SELF,
    SaveError,
    ValuesUnavailable,
    atomic,
    copy_model,
    new_tensor,
    open_model,
    save_bytes,
    save_model,
    splice,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RICH = rich_model().SerializeToString()


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    path = tmp_path / "rich.onnx"
    path.write_bytes(RICH)
    return path


def litter(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_an_unchanged_model_is_written_byte_for_byte(rich: Path, tmp_path: Path) -> None:
    model = open_model(rich)
    target = tmp_path / "out.onnx"

    written = save_model(model, model.proto, target)

    assert target.read_bytes() == RICH
    assert save_bytes(model, model.proto) == RICH
    assert written.path == target
    assert written.sha256_before == written.sha256_after == model.sha256()
    assert (written.bytes, written.side_files, written.backup) == (len(RICH), (), None)
    assert litter(tmp_path) == []


def test_only_the_edit_differs(rich: Path) -> None:
    model = open_model(rich)
    expected = onnx.ModelProto.FromString(RICH)
    for proto in (model.proto, expected):
        proto.graph.node[0].name = "renamed"
        proto.graph.initializer[0].name = "renamed too"
        del proto.graph.initializer[3]
        proto.graph.initializer.append(helper.make_tensor("tiny", TensorProto.FLOAT, [1], [1]))

    before = model.sha256()
    written = save_model(model, model.proto, rich)

    assert onnx.load(rich) == expected
    assert rich.read_bytes() == expected.SerializeToString()
    assert written.sha256_before == before != written.sha256_after
    assert written.sha256_after == open_model(rich).sha256()


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_new_tensors_among_old_ones(data: st.DataObject) -> None:
    model = open_model(RICH)
    expected = onnx.ModelProto.FromString(RICH)
    ours, theirs = list(tensors_in(model.proto)), list(tensors_in(expected))
    changed = data.draw(st.sets(st.integers(0, len(ours) - 1), max_size=6))
    types = [TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.INT64]
    values: list[Callable[[], np.ndarray]] = []
    for place in changed:
        dtype = helper.tensor_dtype_to_np_dtype(data.draw(st.sampled_from(types)))
        shape = data.draw(st.sampled_from([(), (0,), (3,), (7, 100), (5001,)]))
        array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(dtype)
        name = f"new {place}"
        theirs[place].CopyFrom(numpy_helper.from_array(array, name))
        ours[place].CopyFrom(new_tensor(name, theirs[place].data_type, shape, len(values)))
        values.append(lambda array=array: array)  # type: ignore[misc]

    assert save_bytes(model, model.proto, values) == expected.SerializeToString()


def test_a_new_tensor_is_asked_for_once_and_when_it_is_written(rich: Path) -> None:
    model = open_model(rich)
    alive: list[int] = []

    def make(index: int) -> Callable[[], np.ndarray]:
        def values() -> np.ndarray:
            alive.append(index)
            return np.full(LARGE, index, np.float32)

        return values

    for index in range(3):
        model.proto.graph.initializer.append(new_tensor(f"n{index}", 1, [LARGE], index))
    save_model(model, model.proto, rich, new_values=[make(index) for index in range(3)])

    assert alive == [0, 1, 2]
    for index, tensor in enumerate(onnx.load(rich).graph.initializer[-3:]):
        assert np.array_equal(numpy_helper.to_array(tensor), np.full(LARGE, index, np.float32))


@pytest.mark.parametrize("array", [np.zeros(3, np.float64), np.zeros((1, 3), np.float32)])
def test_values_that_do_not_fit_are_refused(rich: Path, array: np.ndarray) -> None:
    model = open_model(rich)
    model.proto.graph.initializer.append(new_tensor("n", 1, [3], 0))

    with pytest.raises(ValueError, match="'n' should be float32 of shape"):
        save_model(model, model.proto, rich, new_values=[lambda: array])
    assert rich.read_bytes() == RICH
    assert names_in(rich.parent) == ["rich.onnx"]


def test_values_that_cannot_be_read_stop_the_writing(rich: Path) -> None:
    model = open_model(rich)
    model.proto.graph.initializer.append(new_tensor("n", 1, [3], 0))

    def unavailable() -> np.ndarray:
        raise ValuesUnavailable("not there")

    with pytest.raises(SaveError, match="not there"):
        save_model(model, model.proto, rich, new_values=[unavailable])
    assert rich.read_bytes() == RICH


def test_side_files_are_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w"), weight("v", 1)), path)
    side = tmp_path / "side.data"
    before = side.stat()
    model = open_model(path)
    initializers = model.proto.graph.initializer
    initializers[0].CopyFrom(new_tensor("w", 1, [LARGE], 0))
    large = np.arange(splice.NEW_INSIDE, dtype=np.float32)
    initializers.append(new_tensor("large", 1, large.shape, 1))
    initializers.append(new_tensor("larger", 1, [2, *large.shape], 2))
    values = [lambda: np.ones(LARGE, np.float32), lambda: large, lambda: np.stack([large, large])]

    written = save_model(model, model.proto, path, new_values=values)

    assert written.side_files == (tmp_path / "a.onnx.data",)
    assert side.stat() == before
    again = open_model(path)
    assert again.faults == ()
    found = [again.values(tensor) for tensor in again.proto.graph.initializer]
    onnx_found = [numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer]
    expected = [values[0](), numpy_helper.to_array(weight("v", 1)), values[1](), values[2]()]
    for ours, theirs, array in zip(found, onnx_found, expected, strict=True):
        assert np.array_equal(ours, array)
        assert np.array_equal(theirs, array)
    onnx.checker.check_model(path)


def test_a_new_side_file_takes_a_free_name(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path, "a.onnx.data")
    (tmp_path / "a.onnx.1.data").symlink_to("nowhere")
    model = open_model(path)
    size = splice.NEW_INSIDE
    model.proto.graph.initializer.append(new_tensor("n", 1, [size], 0))
    model.proto.graph.initializer.append(TensorProto(name="lost", data_type=1, dims=[1]))
    model.proto.graph.initializer[-1].data_location = TensorProto.EXTERNAL
    model.proto.graph.initializer[-1].external_data.add(key="location", value="a.onnx.2.data")

    model = open_model(path)
    model.proto.graph.initializer.append(new_tensor("n", 1, [size], 0))
    written = save_model(model, model.proto, path, new_values=[lambda: np.ones(size, np.float32)])

    assert written.side_files == (tmp_path / "a.onnx.2.data",)


def test_names_that_no_side_file_can_repeat(tmp_path: Path) -> None:
    for name in ("x" * 240 + ".onnx", os.fsdecode(b"\xff.onnx")):
        path = tmp_path / name
        save_outside(small_model(weight("w")), tmp_path / "plain.onnx", f"{len(name)}.data")
        (tmp_path / "plain.onnx").rename(path)
        model = open_model(path)
        size = splice.NEW_INSIDE
        model.proto.graph.initializer.append(new_tensor("n", 1, [size], 0))
        save_model(model, model.proto, path, new_values=[lambda s=size: np.ones(s, np.float32)])
        assert open_model(path).faults == ()


def test_past_the_limit_of_protobuf_weights_go_out(
    rich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "PROTOBUF_LIMIT", len(RICH))
    model = open_model(rich)
    expected = [numpy_helper.to_array(tensor) for tensor in tensors_in(rich_model())]
    model.proto.graph.initializer.append(new_tensor("n", 1, [LARGE], 0))
    target = tmp_path / "out" / "b.onnx"

    written = save_model(
        model, model.proto, target, new_values=[lambda: np.ones(LARGE, np.float32)]
    )

    assert written.side_files == (target.with_name("b.onnx.data"),)
    assert written.bytes < len(RICH) / 2
    again = open_model(target)
    assert again.faults == ()
    found = list(tensors_in(again.proto))
    found.remove(again.proto.graph.initializer[-1])
    for tensor, array in zip(found, expected, strict=True):
        assert np.array_equal(again.values(tensor), array)
    offsets = [int(e.value) for t in found for e in t.external_data if e.key == "offset"]
    assert len(offsets) > 25
    assert all(offset % 4096 == 0 for offset in offsets)


def test_bytes_past_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normlint.model.save.PROTOBUF_LIMIT", len(RICH) - 1)
    model = open_model(RICH)

    with pytest.raises(SaveError, match="2 GiB"):
        save_bytes(model, model.proto)


def test_a_copy_is_the_same_file(rich: Path, tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "copy.onnx"
    model = open_model(rich)

    written = copy_model(model, target)

    assert target.read_bytes() == RICH
    assert written.sha256_before == written.sha256_after == model.sha256()
    assert copy_model(open_model(RICH), tmp_path / "from bytes.onnx").bytes == len(RICH)


def test_a_copy_over_itself_writes_nothing(rich: Path) -> None:
    rich.chmod(0o444)
    before = rich.stat()

    written = copy_model(open_model(rich), rich)

    after = rich.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert written.sha256_before == written.sha256_after


@pytest.mark.parametrize("location", ["side.data", "sub/folder/side.data"])
def test_side_files_come_along_to_another_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / location).parent.mkdir(parents=True, exist_ok=True)
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path, location)
    target = tmp_path / "out" / "b.onnx"

    for write in (copy_model, lambda model, to: save_model(model, model.proto, to)):
        written = write(open_model(path), target)
        # onnx refuses side files that are links.
        onnx.checker.check_model(target)
        assert onnx.load(target) == onnx.load(path)

    assert written.side_files == ()
    assert copy_model(open_model(path), tmp_path / "two" / "b.onnx").side_files == (
        tmp_path / "two" / location,
    )


def test_another_file_in_the_way_of_a_side_file(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    out = tmp_path / "out"
    out.mkdir()
    for content in (b"other", bytes(4 * LARGE)):
        (out / "side.data").write_bytes(content)
        with pytest.raises(SaveError, match="another file"):
            copy_model(open_model(path), out / "b.onnx")
        assert names_in(out) == ["side.data"]
        assert (out / "side.data").read_bytes() == content
    (out / "side.data").unlink()
    (out / "side.data").mkdir()
    with pytest.raises(SaveError, match="in the way"):
        copy_model(open_model(path), out / "b.onnx")


def test_a_side_file_does_not_come_along_through_a_link_out(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path, "sub/side.data")
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "sub").symlink_to(elsewhere)

    with pytest.raises(SaveError, match="outside"):
        copy_model(open_model(path), out / "b.onnx")
    assert names_in(elsewhere) == []


def test_missing_and_unsafe_side_files_stay_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    (tmp_path / "side.data").rename(tmp_path / "gone")
    model = open_model(path)

    copy_model(model, tmp_path / "out" / "b.onnx")

    assert names_in(tmp_path / "out") == ["b.onnx"]


def test_holes_of_a_side_file_stay_holes(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    side = tmp_path / "side.data"
    os.truncate(side, 1 << 30)

    copy_model(open_model(path), tmp_path / "out" / "b.onnx")

    copied = tmp_path / "out" / "side.data"
    assert copied.stat().st_size == 1 << 30
    assert copied.stat().st_blocks * 512 < 1 << 20
    with copied.open("rb") as ours, side.open("rb") as theirs:
        assert ours.read(4 * LARGE) == theirs.read(4 * LARGE)


def test_where_a_system_does_not_know_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "SEEK_DATA")
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)

    copy_model(open_model(path), tmp_path / "out" / "b.onnx")

    assert (tmp_path / "out" / "side.data").read_bytes() == (tmp_path / "side.data").read_bytes()


def test_two_folders_with_one_side_file(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    (tmp_path / "out").mkdir()
    os.link(tmp_path / "side.data", tmp_path / "out" / "side.data")

    copy_model(open_model(path), tmp_path / "out" / "b.onnx")

    assert (tmp_path / "out" / "side.data").samefile(tmp_path / "side.data")


def test_a_name_that_looks_like_a_placeholder_is_a_name() -> None:
    model = open_model(RICH)
    expected = onnx.ModelProto.FromString(RICH)
    for proto in (model.proto, expected):
        for tensor in proto.graph.initializer:
            tensor.name += SELF

    assert save_bytes(model, model.proto) == expected.SerializeToString()


def test_the_mode_stays(rich: Path) -> None:
    rich.chmod(0o640)
    model = open_model(rich)

    save_model(model, model.proto, rich)

    assert stat.S_IMODE(rich.stat().st_mode) == 0o640


def test_the_owner_stays_where_that_is_allowed(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = list(rich.stat())
    status[4] += 1
    owners = []

    def refuse(_fd: int, user: int, _group: int) -> None:
        owners.append(user)
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    with rich.open("rb") as file:
        atomic.take_over(file.fileno(), os.stat_result(status))

    assert owners == [status[4]]


def test_a_new_file_has_the_usual_mode(rich: Path, tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    model = open_model(rich)

    save_model(model, model.proto, tmp_path / "new.onnx")

    assert (tmp_path / "new.onnx").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_stays_a_link(rich: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.onnx"
    link.symlink_to(rich)
    model = open_model(link)
    model.proto.producer_name = "changed"

    save_model(model, model.proto, link)

    assert link.is_symlink()
    assert onnx.load(rich).producer_name == "changed"
    assert names_in(link.parent) == ["link.onnx"]


def test_a_hard_link_keeps_the_old_content(rich: Path, tmp_path: Path) -> None:
    other = tmp_path / "other name"
    os.link(rich, other)
    model = open_model(rich)
    model.proto.producer_name = "changed"

    save_model(model, model.proto, rich)

    assert other.read_bytes() == RICH
    assert onnx.load(rich).producer_name == "changed"


def test_backups_never_overwrite_one_another(rich: Path) -> None:
    contents = []
    for number in range(3):
        contents.append(rich.read_bytes())
        model = open_model(rich)
        model.proto.model_version = number + 1
        written = save_model(model, model.proto, rich, backup=True)
        suffix = f".orig.{number}" if number else ".orig"
        assert written.backup == rich.with_name(rich.name + suffix)
        assert written.backup.read_bytes() == contents[-1]

    assert rich.with_name("rich.onnx.orig").read_bytes() == contents[0]


def test_a_backup_where_no_links_are(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", no_link)
    rich.chmod(0o600)
    model = open_model(rich)

    written = save_model(model, model.proto, rich, backup=True)

    assert written.backup
    assert written.backup.read_bytes() == RICH
    assert stat.S_IMODE(written.backup.stat().st_mode) == 0o600


def test_there_is_no_backup_of_nothing(rich: Path, tmp_path: Path) -> None:
    model = open_model(rich)

    assert save_model(model, model.proto, tmp_path / "new.onnx", backup=True).backup is None
