"""A norm of squared activations: what it reads is scaled by a power of two, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from precision.half_norms import in_own_types, model

from normlint import Settings, apply, check

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HIDDEN = 16, 32


def squared_relu(*, epsilon: float = 1e-5, tap: bool = False) -> onnx.ModelProto:
    """Give x → MatMul → Relu → square → MatMul → + 2.5·x → LayerNormalization, in float16."""
    random = np.random.default_rng(0)
    weights = {
        "up": random.standard_normal((WIDTH, HIDDEN)).astype(np.float16),
        "down": random.standard_normal((HIDDEN, WIDTH)).astype(np.float16),
        "alpha": np.array(2.5, np.float16),
        "scale": np.ones(WIDTH, np.float16),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Mul", ["r", "r"], ["s"]),
        helper.make_node("MatMul", ["s", "down"], ["t"]),
        helper.make_node("Mul", ["x", "alpha"], ["skip"]),
        helper.make_node("Add", ["t", "skip"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "scale"], ["y"], epsilon=epsilon),
    ]
    made = model(nodes, weights, [2, WIDTH], TensorProto.FLOAT16, 17)
    if tap:
        made.graph.output.append(
            helper.make_tensor_value_info("sum", TensorProto.FLOAT16, [2, WIDTH])
        )
    return made


def found(of: onnx.ModelProto) -> list[tuple[str, str]]:
    findings = check(of, select=["NL501"]).models[0].findings
    return [(f.severity.value, f.not_fixed.reason if f.not_fixed else "") for f in findings]


def test_it_is_worth_knowing() -> None:
    assert found(squared_relu()) == [("info", "")]


def test_another_reader_stands_in_the_way() -> None:
    assert found(squared_relu(tap=True)) == [("info", "graph-output")]


def test_an_input_that_was_scaled_is_left_alone() -> None:
    assert found(squared_relu(epsilon=1e-5 / 256)) == []


@pytest.mark.parametrize("size", [1.0, 20.0], ids=["fits", "overflowed"])
def test_the_rescaled_model_computes_the_same(tmp_path: Path, size: float) -> None:
    before, target = squared_relu(), tmp_path / "rescaled.onnx"
    apply(before, target, select=["NL501"], settings=Settings(unsafe_fixes=True))
    after = onnx.load(target)
    x = (size * np.random.default_rng(1).standard_normal((2, WIDTH))).astype(np.float16)

    wide = x.astype(np.float64)
    weights = {
        t.name: onnx.numpy_helper.to_array(t).astype(float) for t in before.graph.initializer
    }
    total = np.square(np.maximum(wide @ weights["up"], 0)) @ weights["down"] + 2.5 * wide
    centred = total - total.mean(-1, keepdims=True)
    truth = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)

    assert np.abs(in_own_types(after, x) - truth).max() < 2e-2
    assert np.isfinite(in_own_types(before, x)).all() == (size == 1.0)
    assert after.graph.node[-1].attribute[0].f == pytest.approx(1e-5 / 256)
