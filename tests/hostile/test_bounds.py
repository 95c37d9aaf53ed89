"""Counts and sizes without end: time and memory stay within bounds, and every part gets its due."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from folding import NORM
from graphs import parse
from hostile.garbling import field
from hostile.running import look, repair
from onnx import AttributeProto, TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from normlint.context import Settings
from normlint.engine import Options, check_model
from normlint.plugins import load_rules

GRAPH, NODE, ATTRIBUTE, INITIALIZER, METADATA = 7, 1, 5, 5, 14
"""Field numbers of onnx.proto."""


@pytest.fixture(autouse=True)
def within_bounds() -> Iterator[None]:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    yield
    assert time.process_time() - start < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 1 << 20


def with_many(number: int, message: bytes, count: int) -> bytes:
    """Give a model whose graph has so many more fields of one kind."""
    model = parse("g (float[1,2] x) => (float[1,2] y) { y = Relu(x) }")
    graph = model.graph.SerializeToString() + field(number, message) * count
    model.ClearField("graph")
    return bytes(model.SerializeToString() + field(GRAPH, graph))


def test_a_million_attributes() -> None:
    attribute = AttributeProto(name="a", type=AttributeProto.INT, i=1).SerializeToString()
    node = helper.make_node("Relu", ["x"], ["z"]).SerializeToString()

    look(with_many(NODE, node + field(ATTRIBUTE, attribute) * 1_000_000, 1))


def test_a_hundred_thousand_initializers_of_one_name() -> None:
    tensor = numpy_helper.from_array(np.ones(1, np.float32), "w").SerializeToString()

    look(with_many(INITIALIZER, tensor, 100_000))


def test_twenty_thousand_nodes_of_one_output() -> None:
    node = helper.make_node("Mul", ["x", "z"], ["z"]).SerializeToString()

    look(with_many(NODE, node, 20_000))


@pytest.mark.filterwarnings("ignore")
def test_a_name_of_ten_megabytes() -> None:
    model = parse(
        f"""
        g (float[1,2] x) => (float[1,2] y) <{NORM}> {{ y = BatchNormalization(x, s, b, m, v) }}
        """
    )
    model.graph.node[0].name = "n" * 10_000_000
    model.graph.initializer[0].doc_string = "d" * 10_000_000

    repair(model.SerializeToString())


def outside(weight: str, length: int) -> onnx.ModelProto:
    model = parse(
        f"""
        g (float[1,2] x) => (float[1,2] y) <{NORM}> {{
            h = MatMul(x, w)
            y = BatchNormalization(h, s, b, m, v)
        }}
        """
    )
    tensor = TensorProto(name="w", data_type=1, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "shared.data"), ("offset", weight), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    return model


def applied(path: Path) -> list[str]:
    report = check_model(
        path,
        name=path.name,
        rules=load_rules(),
        settings=Settings(),
        options=Options(apply=True),
    )
    return [f.code for f in report.findings if f.fix is not None and f.fix.applied]


def test_models_with_one_side_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    values = np.arange(1, 9, dtype=np.float32)
    side = tmp_path / "shared.data"
    side.write_bytes(values.tobytes())
    for name, offset in (("a.onnx", "0"), ("b.onnx", "16"), ("c.onnx", "0")):
        (tmp_path / name).write_bytes(outside(offset, 16).SerializeToString())
    untouched = (tmp_path / "c.onnx").read_bytes()

    assert applied(tmp_path / "a.onnx") == ["NL101"]
    assert applied(tmp_path / "b.onnx") == ["NL101"]

    assert side.read_bytes() == values.tobytes()
    assert (tmp_path / "c.onnx").read_bytes() == untouched
    scale = np.array([1.5, -2]) / np.sqrt(np.array([0.5, 2]) + 1e-5)
    for name, part in (("a.onnx", values[:4]), ("b.onnx", values[4:])):
        weights = [numpy_helper.to_array(t) for t in onnx.load(tmp_path / name).graph.initializer]
        folded = next(w for w in weights if w.shape == (2, 2))
        np.testing.assert_allclose(folded, part.reshape(2, 2) * scale, rtol=1e-5)


@pytest.mark.parametrize("offset", [str(1 << 62), str((1 << 63) - 1), "9" * 18])
def test_an_offset_beyond_everything(tmp_path: Path, offset: str) -> None:
    (tmp_path / "shared.data").write_bytes(bytes(32))
    (tmp_path / "a.onnx").write_bytes(outside(offset, 16).SerializeToString())
    before = (tmp_path / "a.onnx").read_bytes()

    assert applied(tmp_path / "a.onnx") == []
    assert (tmp_path / "a.onnx").read_bytes() == before
