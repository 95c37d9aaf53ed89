"""The skeleton is what onnx loads, without the large tensors."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from model.building import (
    LARGE,
    constant,
    resolved,
    rich_model,
    small_model,
    tensors_in,
    weight,
    write_huge_model,
)
from onnx import TensorProto, helper, numpy_helper

from normlint.model import SELF, FileFault, open_model
from normlint.model.placeholder import location
from normlint.model.walk import MODEL
from normlint.model.wire import Field, Reader, delimited

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from normlint.model import ModelFile

SAMPLES = sorted((Path(__file__).parents[2] / "sample_models").glob("*.onnx"))
RICH = rich_model().SerializeToString()


def placeholders(model: ModelFile) -> list[TensorProto]:
    return [tensor for tensor in tensors_in(model.proto) if location(tensor) == SELF]


def same_as_onnx(data: bytes) -> ModelFile:
    """Open `data` and compare with what protobuf makes of all of it; return the ModelFile."""
    model = open_model(data)
    expected = onnx.ModelProto.FromString(data)

    assert resolved(model).SerializeToString() == expected.SerializeToString()
    return model


def test_every_place_of_a_tensor_is_found() -> None:
    model = same_as_onnx(RICH)

    held = placeholders(model)
    lists = {"int64s", "texts"}
    inline = {t.name for t in tensors_in(model.proto) if t.ByteSize() > 1300 and t not in held}
    assert inline == lists
    assert len(held) > 25
    assert model.proto.ByteSize() < len(RICH) / 2


def test_a_large_tensor_is_never_read() -> None:
    data = (
        rich_model().SerializeToString() + small_model(weight("w", 0, 1 << 20)).SerializeToString()
    )
    read = []

    class Counting:
        size = len(data)

        def read(self, offset: int, length: int) -> bytes:
            read.append(length)
            return data[offset : offset + length]

    open_model(Counting())

    assert sum(read) < 200_000


def test_the_walk_knows_every_path_from_a_model_to_a_tensor() -> None:
    pending = [(MODEL, onnx.ModelProto.DESCRIPTOR)]
    seen = set()
    while pending:
        kind, descriptor = pending.pop()
        seen.add(descriptor.full_name)
        expected = {f.number for f in descriptor.fields if leads_to_tensor(f.message_type)}
        assert set(kind.fields) == (set() if kind.is_tensor else expected)
        message = getattr(onnx, descriptor.name)()
        one_tensor = {
            f.number
            for f in descriptor.fields
            if isinstance(getattr(message, f.name), TensorProto | onnx.SparseTensorProto)
        }
        assert kind.merged == one_tensor
        for number, child in kind.fields.items():
            child_type = descriptor.fields_by_number[number].message_type
            if child_type.full_name not in seen:
                pending.append((child, child_type))


def leads_to_tensor(descriptor: Descriptor | None, above: frozenset[str] = frozenset()) -> bool:
    if descriptor is None or descriptor.full_name in above:
        return False
    if descriptor.name == "TensorProto":
        return True
    above |= {descriptor.full_name}
    return any(leads_to_tensor(f.message_type, above) for f in descriptor.fields)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_open_to_what_onnx_loads(path: Path) -> None:
    try:
        expected = onnx.ModelProto.FromString(path.read_bytes())
    except DecodeError:
        with pytest.raises(FileFault):
            open_model(path)
        return
    if not expected.HasField("graph"):
        with pytest.raises(FileFault):
            open_model(path)
        return
    assert resolved(open_model(path)) == expected


def test_all_kinds_of_sources_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(RICH)

    by_path, by_bytes, by_object = open_model(path), open_model(RICH), open_model(BytesIO(RICH))

    assert by_path.path == path
    assert by_path.name == str(path)
    assert (by_bytes.path, by_bytes.name) == (None, "-")
    assert open_model(RICH, name="given").name == "given"
    assert by_path.proto == by_bytes.proto == by_object.proto
    assert by_path.sha256() == by_bytes.sha256() == by_object.sha256()
    tensor = placeholders(by_path)[0]
    assert np.array_equal(by_path.values(tensor), by_object.values(tensor))


def test_it_keeps_reading_the_file_that_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(small_model(weight("w", 1)).SerializeToString())
    other = tmp_path / "b.onnx"
    other.write_bytes(small_model(weight("w", 2)).SerializeToString())

    with open_model(path) as model:
        other.replace(path)
        values = model.values(model.proto.graph.initializer[0])

    assert np.array_equal(values, numpy_helper.to_array(weight("w", 1)))


def test_opening_what_is_no_model_loads_neither_onnx_nor_numpy() -> None:
    code = (
        "import sys, normlint.model as m\n"
        "try: m.open_model(b'<html>')\n"
        "except m.FileFault as fault: print(fault.code)\n"
        "print({'onnx', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "NL904\nset()\n"


def test_halves_of_one_tensor_stay_together() -> None:
    first, second = weight("first", 1), numpy_helper.from_array(np.float32([1, 2]), "second")
    for one, other in ((first, second), (second, first), (first, first)):
        attribute = helper.make_attribute("value", one).SerializeToString()
        attribute += delimited(5, other.SerializeToString())
        same_as_onnx(model_with_attribute(attribute))


def test_halves_of_one_sparse_tensor_stay_together() -> None:
    sparse = onnx.SparseTensorProto(values=weight("v"), indices=weight("i", 1), dims=[9999])
    twice = sparse.SerializeToString() + sparse.SerializeToString()
    same_as_onnx(model_with_attribute(delimited(1, b"a") + delimited(22, twice)))
    once = delimited(22, sparse.SerializeToString())
    same_as_onnx(model_with_attribute(delimited(1, b"a") + once + once))


def model_with_attribute(attribute: bytes) -> bytes:
    node = constant("c", weight("other")).SerializeToString() + delimited(5, attribute)
    return onnx.ModelProto(ir_version=8).SerializeToString() + delimited(7, delimited(1, node))


def test_two_graph_fields_are_one_graph() -> None:
    model = same_as_onnx(RICH + small_model(weight("more", 4)).SerializeToString())

    assert model.proto.graph.initializer[-1].name == "more"


@pytest.mark.parametrize(
    "odd",
    [
        delimited(9, bytes(4 * LARGE)) + delimited(4, bytes(4 * LARGE)),
        delimited(9, bytes(4 * LARGE)) + delimited(9, b"last"),
        delimited(9, b"first") + delimited(9, bytes(4 * LARGE)),
        delimited(4, bytes(4 * LARGE)) + delimited(4, bytes(4 * LARGE)),
        delimited(9, bytes(4 * LARGE)) + b"\x70\x01",
        delimited(9, bytes(4 * LARGE)) + b"\x70\x07",
        delimited(9, bytes(4 * LARGE)) + b"\x70\x01\x70\x00",
        b"\x70\x00" + delimited(9, bytes(4 * LARGE)),
        delimited(9, bytes(4 * LARGE)) + delimited(13, delimited(1, b"location")),
        b"\x25\x00\x00\x80\x3f" * LARGE,
        b"\x48\x05" + delimited(9, bytes(4 * LARGE)),
        b"\x4b\x08\x01\x4c" + delimited(9, bytes(4 * LARGE)),
        delimited(3, b"\x08\x01\x10\x02") + delimited(9, bytes(4 * LARGE)),
    ],
)
def test_tensors_with_data_in_odd_ways_are_what_protobuf_makes_of_them(odd: bytes) -> None:
    tensor = TensorProto(name="odd", dims=[LARGE], data_type=1).SerializeToString() + odd
    same_as_onnx(b"\x08\x08" + delimited(7, delimited(5, tensor)))


@pytest.mark.parametrize("depth", [1, 20, 31, 32, 33, 34, 64, 2000])
def test_nesting_is_bounded_where_protobuf_bounds_it(depth: int) -> None:
    graph = delimited(5, weight("deep").SerializeToString())
    for _ in range(depth):
        graph = delimited(1, delimited(5, delimited(6, graph)))
    data = b"\x08\x08" + delimited(7, graph)
    try:
        onnx.ModelProto.FromString(data)
    except DecodeError:
        with pytest.raises(FileFault) as caught:
            open_model(data)
        assert caught.value.code == "NL905"
        return
    assert len(placeholders(same_as_onnx(data))) == 1


def test_a_model_cannot_forge_a_placeholder() -> None:
    tensor = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for entry, value in (("location", SELF), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=entry, value=value)

    with pytest.raises(FileFault) as caught:
        open_model(small_model(tensor).SerializeToString())

    assert caught.value.code == "NL907"


def test_a_model_past_the_limit_of_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    write_huge_model(path, 3 << 30)

    model = open_model(path)

    zeros, behind = model.proto.graph.initializer
    assert model.nbytes(zeros) == 3 << 30
    assert model.has_values(zeros)
    assert np.array_equal(model.values(behind), numpy_helper.to_array(weight("w")))


def test_a_huge_model_of_small_size_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    write_huge_model(path, 1 << 20)

    same_as_onnx(path.read_bytes())


def test_lists_of_a_million_numbers_are_not_walked_one_by_one() -> None:
    forest = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml")
    forest.attribute.append(helper.make_attribute("values", [0.5] * 1_000_000))
    forest.attribute.append(helper.make_attribute("ids", [300] * 1_000_000))
    graph = onnx.GraphProto(node=[forest], initializer=[weight("w")])
    model = onnx.ModelProto(ir_version=8, graph=graph)
    # An attribute that holds numbers besides a tensor is kept whole.
    model.graph.node[0].attribute[0].t.CopyFrom(weight("besides"))
    data = model.SerializeToString()
    fields = 0
    field = Reader.field

    def counting(reader: Reader, position: int, end: int) -> Field:
        nonlocal fields
        fields += 1
        return field(reader, position, end)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Reader, "field", counting)
        opened = open_model(data)
    assert fields < 100
    assert len(placeholders(opened)) == 1
    assert resolved(opened) == model


def test_a_long_name_is_no_reason_for_a_placeholder() -> None:
    tensor = TensorProto(name="long " * 1000, data_type=1, dims=[0])

    assert placeholders(same_as_onnx(small_model(tensor).SerializeToString())) == []


def test_a_limit_of_size() -> None:
    with open_model(RICH, max_size=len(RICH)) as model:
        assert model.size == len(RICH)
    with pytest.raises(FileFault, match="more than the limit") as caught:
        open_model(RICH, max_size=len(RICH) - 1)
    assert caught.value.code == "NL905"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 700), max_size=4), st.booleans(), st.binary(max_size=40))
def test_any_sizes_and_any_unknown_fields(sizes: list[int], nested: bool, tail: bytes) -> None:
    tensors = [weight(f"w{index}", index, size) for index, size in enumerate(sizes)]
    graph = onnx.GraphProto(initializer=tensors, node=[constant("c", t) for t in tensors])
    if nested:
        graph.node.append(helper.make_node("If", ["b"], ["y"], then_branch=graph))
    data = onnx.ModelProto(ir_version=8, graph=graph).SerializeToString()

    same_as_onnx(data + delimited(1234, tail))
