"""Side files that are missing, short or out of bounds: named, never opened, and the rest works."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from model.building import LARGE, constant, save_outside, small_model, weight
from onnx import TensorProto, helper, numpy_helper

from normlint.model import FileFault, ModelFile, ValuesUnavailable, new_tensor, open_model

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 4 * LARGE


def outside(name: str, location: str, **numbers: object) -> TensorProto:
    tensor = TensorProto(name=name, data_type=1, dims=[LARGE], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **numbers}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def opened(folder: Path, *tensors: TensorProto) -> ModelFile:
    path = folder / "model" / "a.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(small_model(*tensors).SerializeToString())
    return open_model(path)


def fault_of(model: ModelFile) -> FileFault:
    """Return the only fault; no tensor that it names may be readable."""
    (fault,) = model.faults
    for tensor in model.proto.graph.initializer:
        if tensor.name in fault.tensors:
            assert not model.has_values(tensor)
            with pytest.raises(ValuesUnavailable, match=tensor.name):
                model.values(tensor)
    return fault


def test_a_missing_side_file(tmp_path: Path) -> None:
    tensors = [outside("a", "enc.data"), weight("b"), outside("c", "enc.data", offset=SIZE)]
    fault = fault_of(opened(tmp_path, *tensors))

    assert fault.code == "NL906"
    assert fault.tensors == ("a", "c")
    assert fault.message == (
        "2 of 3 tensors live in 'enc.data', which is missing; structure rules ran, "
        "value rules were skipped for those"
    )


def test_one_fault_for_each_side_file(tmp_path: Path) -> None:
    tensors = [outside(f"w{index}", f"{index % 2}.data") for index in range(6)]
    faults = opened(tmp_path, *tensors).faults

    assert [fault.tensors for fault in faults] == [("w0", "w2", "w4"), ("w1", "w3", "w5")]


def test_a_short_side_file(tmp_path: Path) -> None:
    model = opened(
        tmp_path,
        outside("a", "enc.data", offset=0, length=SIZE),
        outside("b", "enc.data", offset=SIZE, length=SIZE),
        outside("c", "enc.data", offset=1 << 60, length=SIZE),
        outside("d", "enc.data", offset=SIZE + 1),
    )
    assert model.path
    (model.path.parent / "enc.data").write_bytes(bytes(SIZE))
    model = open_model(model.path)
    fault = fault_of(model)

    assert fault.code == "NL906"
    assert fault.tensors == ("b", "c", "d")
    assert f"too short ({SIZE} bytes, {(1 << 60) + SIZE} needed)" in fault.message
    assert model.has_values(model.proto.graph.initializer[0])


@pytest.mark.parametrize("number", ["-1", "x", "", "1e3", "9" * 40, "0x10", "٣", "1_0"])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_numbers_that_are_none(tmp_path: Path, key: str, number: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "enc.data").write_bytes(bytes(SIZE))
    fault = fault_of(opened(tmp_path, outside("a", "enc.data", **{key: number})))

    assert fault.code == "NL906"
    assert "at a place that is no number" in fault.message


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/etc/passwd", "absolute"),
        ("C:\\data", "absolute"),
        ("C:data", "absolute"),
        ("\\\\host\\share\\data", "absolute"),
        ("\\data", "absolute"),
        ("../secret", "outside"),
        ("sub/../../secret", "outside"),
        ("..\\secret", "outside"),
        ("link", "a link that leads out"),
        ("folder link/secret", "a link that leads out"),
        ("pipe", "a pipe"),
        ("sub", "a folder"),
        (".", "a folder"),
        ("device", "a link that leads out"),
        ("a\0b", "no file can have"),
    ],
)
def test_unsafe_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, words: str
) -> None:
    (tmp_path / "secret").write_bytes(bytes(SIZE))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "link").symlink_to("../secret")
    (folder / "folder link").symlink_to("..")
    (folder / "device").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    model = opened(tmp_path, outside("a", location))

    def no_open(*_args: object, **_options: object) -> int:
        raise AssertionError

    monkeypatch.setattr(os, "open", no_open)
    fault = fault_of(model)

    assert fault.code == "NL907"
    assert words in fault.message
    assert fault.tensors == ("a",)


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "real").write_bytes(bytes(SIZE))
    (tmp_path / "model" / "link").symlink_to("real")
    model = opened(tmp_path, outside("a", "link"))

    assert model.faults == ()
    assert not model.values(model.proto.graph.initializer[0]).any()


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "loop").symlink_to("loop")

    assert fault_of(opened(tmp_path, outside("a", "loop"))).code == "NL906"


def test_no_location(tmp_path: Path) -> None:
    fault = fault_of(opened(tmp_path, outside("a", "")))

    assert (fault.code, fault.tensors) == ("NL906", ("a",))


def test_a_download_cache_of_links(tmp_path: Path) -> None:
    store, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    store.mkdir()
    snapshot.mkdir(parents=True)
    save_outside(small_model(weight("w")), tmp_path / "a.onnx")
    for name in ("a.onnx", "side.data"):
        (tmp_path / name).rename(store / f"hash of {name}")
        (snapshot / name).symlink_to(f"../../blobs/hash of {name}")

    model = open_model(snapshot / "a.onnx")

    assert model.faults == ()
    values = model.values(model.proto.graph.initializer[0])
    assert np.array_equal(values, numpy_helper.to_array(weight("w")))


def test_a_link_that_appears_after_the_look_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(SIZE))
    (tmp_path / "model").mkdir()
    side = tmp_path / "model" / "enc.data"
    side.write_bytes(bytes(SIZE))
    model = opened(tmp_path, outside("a", "enc.data"))
    side.unlink()
    side.symlink_to("../secret")

    with pytest.raises(ValuesUnavailable):
        model.values(model.proto.graph.initializer[0])


def test_a_model_without_a_place_has_no_side_files() -> None:
    model = open_model(small_model(outside("a", "enc.data")).SerializeToString())

    assert fault_of(model).code == "NL906"
    assert "that is no local file" in fault_of(model).message


def test_tensors_outside_are_found_in_attributes_and_bodies(tmp_path: Path) -> None:
    inner = helper.make_graph([constant("d", outside("d", "x"))], "g", [], [], [outside("e", "x")])
    proto = small_model(weight("the location"), outside("w", "x"))
    proto.graph.node.append(helper.make_node("If", ["b"], ["y"], then_branch=inner))
    path = tmp_path / "a.onnx"
    path.write_bytes(proto.SerializeToString())

    (fault,) = open_model(path).faults

    assert set(fault.tensors) == {"w", "d", "e"}


def test_values_to_come_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    model = open_model(path)
    model.proto.graph.initializer.append(new_tensor("new", 1, [3], 0))

    assert not model.has_values(model.proto.graph.initializer[-1])
    assert model.nbytes(model.proto.graph.initializer[-1]) == 12


def test_onnx_agrees_on_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    assert open_model(path).faults == ()
    onnx.load(path)
    (tmp_path / "side.data").unlink()

    assert [fault.code for fault in open_model(path).faults] == ["NL906"]
    with pytest.raises(onnx.checker.ValidationError):
        onnx.load(path)
