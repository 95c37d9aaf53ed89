"""Norms in half precision: what is reported, and that repairs compute what overflowed before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from precision.half_norms import WIDTH, group_norm, in_own_types, layer_norm, model, spelled

from normlint import Settings, apply, check

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto

PRECISION = ["NL501", "NL502", "NL504", "NL505"]


def codes(of: ModelProto, settings: Settings | None = None) -> set[str]:
    report = check(of, select=PRECISION, settings=settings)
    return {finding.code for finding in report.models[0].findings}


def repaired(
    broken: ModelProto, folder: Path, select: list[str], settings: Settings | None = None
) -> ModelProto:
    target = folder / "repaired.onnx"
    apply(broken, target, select=select, settings=settings)
    return onnx.load(target)


def a_row_with_an_outlier() -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((2, WIDTH)).astype(np.float16)
    x[0, 3] += 795
    return x


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_spelled_out_in_half_precision_is_reported(kind: str) -> None:
    assert codes(spelled(kind)) == {"NL501"}


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
def test_statistics_in_float_are_not(kind: str) -> None:
    assert codes(spelled(kind, cast=True)) == set()
    assert codes(spelled(kind, dtype=np.float32)) == set()


def test_a_group_norm_in_pieces_is_reported() -> None:
    assert codes(group_norm()) == {"NL501"}


@pytest.mark.parametrize(
    ("opset", "operators"),
    [(14, {"Cast", "Pow"}), (17, {"LayerNormalization"})],
    ids=["island", "operator"],
)
def test_the_repair_computes_what_overflowed(
    tmp_path: Path, opset: int, operators: set[str]
) -> None:
    before = spelled(opset=opset)
    x = a_row_with_an_outlier()
    truth = layer_norm(x, 1e-3)

    after = repaired(before, tmp_path, ["NL501"])

    bias = np.linspace(-1, 1, WIDTH)
    assert np.allclose(in_own_types(before, x)[0], bias, atol=2e-3), "the row is the bias alone"
    assert np.allclose(in_own_types(after, x), truth, atol=2e-2)
    assert operators <= {node.op_type for node in after.graph.node}
    assert codes(after) == set()


def test_an_island_is_of_least_size(tmp_path: Path) -> None:
    after = repaired(spelled(), tmp_path, ["NL501"])

    ops = [node.op_type for node in after.graph.node]
    assert ops.count("Cast") == 2
    assert ops[-2:] == ["Mul", "Add"]
    types = {tensor.name: tensor.data_type for tensor in after.graph.initializer}
    assert types["scale"] == onnx.TensorProto.FLOAT16


@pytest.mark.parametrize("epsilon", [0.0, None], ids=["zero", "missing"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("opset", [14, 17])
def test_an_epsilon_that_does_nothing(
    tmp_path: Path, epsilon: float | None, dtype: type, opset: int
) -> None:
    before = spelled(epsilon=epsilon, dtype=dtype, opset=opset)
    x = np.full((2, WIDTH), 3, dtype)
    unsafe = Settings(unsafe_fixes=True)

    after = repaired(before, tmp_path, ["NL502"], unsafe)

    assert "NL502" in codes(before)
    assert np.isnan(in_own_types(before, x)).all()
    assert np.allclose(in_own_types(after, x), np.linspace(-1, 1, WIDTH), atol=2e-3)
    assert "NL502" not in codes(after)


@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("opset", [14, 17])
def test_a_negative_epsilon_in_a_spelled_out_norm(
    tmp_path: Path, kind: str, dtype: type, opset: int
) -> None:
    before = spelled(kind, epsilon=-1e-3, dtype=dtype, opset=opset)
    x = np.full((2, WIDTH), 3 if kind == "LayerNorm" else 0, dtype)

    after = repaired(before, tmp_path, ["NL502"], Settings(unsafe_fixes=True))

    found = check(before, select=["NL502"]).models[0].findings
    assert [(f.severity, f.evidence["why"]) for f in found] == [("error", "negative")]
    assert np.isnan(in_own_types(before, x)).all()
    assert np.allclose(in_own_types(after, x), np.linspace(-1, 1, WIDTH), atol=2e-3)
    assert "NL502" not in codes(after)


def test_an_epsilon_of_0_stays_without_leave(tmp_path: Path) -> None:
    before = spelled(epsilon=0.0, dtype=np.float32)

    after = repaired(before, tmp_path, ["NL502"])

    assert after.graph == before.graph


def test_a_subnormal_epsilon_is_safe_to_keep(tmp_path: Path) -> None:
    before = spelled(epsilon=1e-5)
    x = np.full((2, WIDTH), 3, np.float16)

    after = repaired(before, tmp_path, ["NL502"])

    assert codes(before) == {"NL501", "NL502"}
    assert codes(after) == set()
    assert np.allclose(in_own_types(after, x), layer_norm(x, 1e-5), atol=2e-3)


def test_a_negative_epsilon_of_an_operator() -> None:
    weights = {"scale": np.ones(WIDTH, np.float32)}
    node = onnx.helper.make_node("LayerNormalization", ["x", "scale"], ["y"], epsilon=-1e-3)

    found = check(model([node], weights, [2, WIDTH], onnx.TensorProto.FLOAT, 17), select=["NL502"])

    assert [f.evidence["why"] for f in found.models[0].findings] == ["negative"]


@pytest.mark.parametrize(
    ("opset", "operator"),
    [
        (17, "LayerNormalization<stash_type = 10>(x, w, w)"),
        (23, "RMSNormalization<stash_type = 10>(x, w)"),
        (21, "GroupNormalization<num_groups = 2, stash_type = 10>(x, w, w)"),
    ],
)
def test_an_operator_that_stashes_in_half_is_told_to_stash_in_float(
    opset: int, operator: str, tmp_path: Path
) -> None:
    text = f"""
        <ir_version: 10, opset_import: ["" : {opset}]>
        g (float16[2,4,4] x) => (float16[2,4,4] y) <float[4] given = {{1,2,3,4}}> {{
            w = Cast<to = 10>(given)
            y = {operator}
        }}
    """
    fixed = repaired(onnx.parser.parse_model(text), tmp_path, ["NL501"])

    assert [node.op_type for node in fixed.graph.node] == ["Cast", operator.partition("<")[0]]
    attributes = {a.name: a.i for a in fixed.graph.node[1].attribute}
    assert attributes["stash_type"] == onnx.TensorProto.FLOAT
