"""Values on demand are those that onnx reads, and what cannot be read says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from model.building import LARGE, rich_model, save_outside, small_model, tensors_in, weight
from onnx import TensorProto, helper, numpy_helper

from normlint.model import ValuesUnavailable, new_tensor, open_model

if TYPE_CHECKING:
    from pathlib import Path

RICH = rich_model()
TYPES = [
    name
    for name, number in TensorProto.DataType.items()
    if name not in {"UNDEFINED", "STRING"} and number in helper.get_all_tensor_dtypes()
]


def test_every_tensor_has_the_values_that_onnx_reads() -> None:
    model = open_model(RICH.SerializeToString())

    for ours, theirs in zip(tensors_in(model.proto), tensors_in(RICH), strict=True):
        expected = numpy_helper.to_array(theirs)
        values = model.values(ours)
        assert values.dtype == expected.dtype
        assert values.shape == expected.shape
        same = np.array_equal if expected.dtype == object else same_bytes
        assert same(values, expected)
        assert model.has_values(ours)


def same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


@pytest.mark.parametrize("size", [7, 8001])
@pytest.mark.parametrize("name", TYPES)
def test_every_type(name: str, size: int) -> None:
    data_type = TensorProto.DataType.Value(name)
    dtype = helper.tensor_dtype_to_np_dtype(data_type)
    expected = (np.arange(size) % 2).astype(dtype)
    tensor = numpy_helper.from_array(expected, "w")
    assert tensor.data_type == data_type

    model = open_model(small_model(tensor).SerializeToString())
    ours = model.proto.graph.initializer[0]

    assert model.values(ours).tobytes() == expected.tobytes()
    assert model.nbytes(ours) == len(tensor.raw_data)


def test_values_are_fresh_and_may_be_written(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    for model in (open_model(path), open_model(small_model(weight("w")).SerializeToString())):
        tensor = model.proto.graph.initializer[0]
        model.values(tensor)[:] = 0
        assert np.array_equal(model.values(tensor), numpy_helper.to_array(weight("w")))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dims": [LARGE + 1]}, "should have 1204 bytes and has 1200"),
        ({"dims": [LARGE - 1]}, "should have 1196 bytes and has 1200"),
        ({"dims": [-1, -LARGE]}, "negative"),
        ({"dims": [1 << 40, 1 << 40]}, "counted"),
        ({"dims": [1 << 62]}, "counted"),
        ({"dims": [1 << 40, 1 << 40, 0]}, "counted"),
        ({"dims": []}, "should have 4 bytes"),
        ({"data_type": TensorProto.DOUBLE}, "should have 2400 bytes"),
        ({"data_type": TensorProto.STRING}, "text"),
        ({"data_type": 0}, "no known type"),
        ({"data_type": 99}, "no known type"),
    ],
)
@pytest.mark.parametrize("size", [LARGE, 10])
def test_data_that_does_not_fit_its_dims(changes: dict[str, Any], words: str, size: int) -> None:
    tensor = weight("w")
    tensor.ClearField("dims")
    tensor.MergeFrom(TensorProto(**{"dims": [LARGE], **changes}))
    if size != LARGE:
        tensor.raw_data = bytes(4 * size)
        words = "'w'"
    model = open_model(small_model(tensor).SerializeToString())
    ours = model.proto.graph.initializer[0]

    assert not model.has_values(ours)
    with pytest.raises(ValuesUnavailable, match=words):
        model.values(ours)


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(name="w", data_type=1, dims=[4], float_data=[1, 2, 3]),
        TensorProto(name="w", data_type=1, dims=[4]),
        TensorProto(name="w", data_type=1, dims=[1], int32_data=[1]),
        TensorProto(name="w", data_type=8, dims=[1], string_data=[b"\xff"]),
        TensorProto(name="w", data_type=7, dims=[LARGE], float_data=[1.0] * LARGE),
        TensorProto(
            name="w", data_type=1, dims=[1], raw_data=bytes(4), segment={"begin": 0, "end": 1}
        ),
        new_tensor("w", 1, [3], 0),
    ],
)
def test_tensors_without_their_values(tensor: TensorProto) -> None:
    model = open_model(small_model().SerializeToString())
    if tensor.data_location != TensorProto.EXTERNAL:
        model = open_model(small_model(tensor).SerializeToString())
        tensor = model.proto.graph.initializer[0]

    with pytest.raises(ValuesUnavailable, match="'w'"):
        model.values(tensor)


def test_values_in_side_files_are_read_by_range(tmp_path: Path) -> None:
    tensors = [weight(f"w{index}", index, size) for index, size in enumerate((1, 300, 0, 7))]
    path = tmp_path / "a.onnx"
    save_outside(small_model(*tensors), path)

    model = open_model(path)

    assert model.faults == ()
    for ours, theirs in zip(model.proto.graph.initializer, tensors, strict=True):
        assert model.has_values(ours)
        assert np.array_equal(model.values(ours), numpy_helper.to_array(theirs))


def test_a_side_file_without_length_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    save_outside(small_model(weight("w")), path)
    proto = onnx.load(path, load_external_data=False)
    entries = proto.graph.initializer[0].external_data
    del entries[:]
    entries.add(key="location", value="side.data")
    path.write_bytes(proto.SerializeToString())
    model = open_model(path)
    tensor = model.proto.graph.initializer[0]

    assert np.array_equal(model.values(tensor), numpy_helper.to_array(weight("w")))
    with (tmp_path / "side.data").open("ab") as side:
        side.write(b"more")
    model = open_model(path)
    assert not model.has_values(tensor)
    with pytest.raises(ValuesUnavailable, match="should have 1200 bytes and has 1204"):
        model.values(tensor)
