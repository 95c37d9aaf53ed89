"""Models that no parser takes whole, or with far more beside them than memory, are repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from commandline import normlint
from model.building import save_outside
from onnx import TensorProto, helper, numpy_helper

from normlint.model import skeleton, splice

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 40_000
"""Bytes that are taken for the 2 GiB here."""
ROWS = 5_000


def conv_and_row() -> onnx.ModelProto:
    """Return a Conv with BatchNorm beside a row of a large table, which passes `LIMIT`."""
    random = np.random.default_rng(0)
    weights = {
        "table": random.standard_normal((ROWS, 8)),
        "kernel": random.standard_normal((8, 3, 3, 3)),
        **{name: 0.5 + random.random(8) for name in ("scale", "bias", "mean", "variance")},
    }
    statistics = ["scale", "bias", "mean", "variance"]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "token"], ["row"], name="look up"),
            helper.make_node("Conv", ["x", "kernel"], ["c"], name="conv"),
            helper.make_node("BatchNormalization", ["c", *statistics], ["y"], name="norm"),
        ],
        "large",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8]),
            helper.make_tensor_value_info("token", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 6, 6]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [2, 8]),
        ],
        [numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outputs(path: Path) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    return list(session.run(None, {"x": x, "token": np.array([7, ROWS - 1])}))


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a model that passes the limit of protobuf, lowered for this."""
    path = tmp_path / "in" / "m.onnx"
    path.parent.mkdir()
    path.write_bytes(conv_and_row().SerializeToString())
    assert path.stat().st_size > 2 * LIMIT
    monkeypatch.setattr(splice, "PROTOBUF_LIMIT", LIMIT)
    monkeypatch.setattr(skeleton, "PROTOBUF_LIMIT", LIMIT)
    monkeypatch.setattr("normlint.model.save.PROTOBUF_LIMIT", LIMIT)
    return path


def test_above_the_limit_of_protobuf_weights_are_written_outside(large: Path) -> None:
    before = outputs(large)
    target = large.parent.parent / "out" / "m.onnx"

    found = normlint("check", "--isolated", large)
    done = normlint("check", "--isolated", "--apply", "-o", target, large)

    assert (found.code, done.code) == (1, 0)
    assert "NL101" in found.out
    assert target.stat().st_size < LIMIT
    assert [node.op_type for node in onnx.load(target).graph.node] == ["Gather", "Conv"]
    for old, new in zip(before, outputs(target), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)


def test_nothing_is_written_where_the_whole_model_cannot_be_run_to_prove_it(large: Path) -> None:
    before = large.read_bytes()

    done = normlint("check", "--isolated", "--apply", "--verify", "model", large)

    assert done.code == 1
    assert "2 GiB" in done.out
    assert large.read_bytes() == before


def test_it_is_repaired_in_place_and_once(large: Path) -> None:
    before = outputs(large)

    first = normlint("check", "--isolated", "--apply", large)
    written = {path: path.read_bytes() for path in large.parent.iterdir()}
    second = normlint("check", "--isolated", "--apply", large)

    assert (first.code, second.code) == (0, 0)
    assert sorted(path.name for path in written) == ["m.onnx", "m.onnx.data"]
    assert {path: path.read_bytes() for path in large.parent.iterdir()} == written
    np.testing.assert_array_equal(outputs(large)[1], before[1])


def test_a_table_of_ten_gigabytes_is_left_alone(tmp_path: Path) -> None:
    """A hole stands for it; onnx and the runtime would read all of it."""
    model = conv_and_row()
    save_outside(model, tmp_path / "m.onnx")
    skeleton_only = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    rows = (10 << 30) // 32
    table = next(t for t in skeleton_only.graph.initializer if t.name == "table")
    table.dims[0] = rows
    del table.external_data[:]
    for key, value in (("location", "table.data"), ("offset", 0), ("length", rows * 32)):
        table.external_data.add(key=key, value=str(value))
    (tmp_path / "m.onnx").write_bytes(skeleton_only.SerializeToString())
    with (tmp_path / "table.data").open("wb") as file:
        file.truncate(rows * 32)
    before = {path: path.stat() for path in tmp_path.glob("*.data")}

    outcome = normlint("check", "--isolated", "--apply", tmp_path / "m.onnx")

    assert outcome.code == 0, outcome.out
    after = {path: path.stat() for path in before}
    assert all(
        (old.st_ino, old.st_mtime_ns, old.st_size)
        == (after[path].st_ino, after[path].st_mtime_ns, after[path].st_size)
        for path, old in before.items()
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "side.data", "table.data"]
    assert (tmp_path / "m.onnx").stat().st_size < 5_000
