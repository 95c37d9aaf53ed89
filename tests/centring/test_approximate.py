"""LayerNorms whose mean is small on the user's data become RMSNorms where that is asked for."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from normlint.context import Settings
from normlint.engine import Options, check_model
from normlint.plugins import load_rules
from normlint.rewrite.centre_approximate import relative_error

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 16
TEXT = """
<ir_version: 10, opset_import: ["" : 23]>
activation (float[N,16] x) => (float[N,4] y) {
    shifted = Add(x, shift)
    t = Tanh(shifted)
    moved = Add(t, after)
    n = LayerNormalization(moved, scale, bias)
    h = MatMul(n, head)
    y = Add(h, head_bias)
}
"""


def model(folder: Path, after: float = 0.0) -> Path:
    random = np.random.default_rng(0)
    made = parser.parse_model(TEXT)
    values = {
        "shift": np.zeros(WIDTH),
        "after": np.full(WIDTH, after),
        "scale": random.normal(1, 0.1, WIDTH),
        "bias": random.normal(0, 0.1, WIDTH),
        "head": random.normal(0, 1, (WIDTH, 4)),
        "head_bias": np.zeros(4),
    }
    made.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in values.items()
    )
    path = folder / "model.onnx"
    onnx.save(made, path)
    return path


def data(folder: Path, mean: float) -> Path:
    """Give inputs whose rows, behind Tanh, have a mean of so many deviations."""
    x = np.random.default_rng(1).normal(0, 0.5, (64, WIDTH))
    t = np.tanh(x)
    t += mean * t.std(axis=1, keepdims=True) - t.mean(axis=1, keepdims=True)
    path = folder / "inputs.npz"
    np.savez(path, x=np.arctanh(np.clip(t, -0.999, 0.999)).astype(np.float32))
    return path


def checked(path: Path, **settings: Any) -> Any:
    rules = [rule for rule in load_rules() if rule.code == "NL203"]
    target = path.with_name("out.onnx")
    report = check_model(
        path,
        name="model",
        rules=rules,
        settings=Settings(**settings),
        options=Options(apply=True, output=target),
    )
    ops = [node.op_type for node in onnx.load(target).graph.node]
    return report, ops


def test_the_error_is_that_of_the_angle_between_the_two() -> None:
    random = np.random.default_rng(0)
    row = random.normal(0, 1, 512)
    row = (row - row.mean()) / row.std()
    for ratio in (1e-3, 0.1, 1.0):
        moved = row + ratio
        rms = moved / math.sqrt((moved**2).mean())
        error = np.linalg.norm(rms - row) / np.linalg.norm(row)
        assert error == pytest.approx(relative_error(ratio), rel=1e-6)


def test_a_small_mean_is_left_out_only_with_unsafe_fixes(tmp_path: Path) -> None:
    path, inputs = model(tmp_path), data(tmp_path, 1e-3)
    report, ops = checked(path, data=inputs)
    assert "LayerNormalization" in ops
    assert [finding.fix.applicability for finding in report.findings] == ["unsafe"]
    report, ops = checked(path, data=inputs, unsafe_fixes=True)
    assert "RMSNormalization" in ops
    assert report.findings[0].evidence["relative_error"] < 1e-2
    json.dumps(dict(report.findings[0].evidence))


def test_without_data_nothing_is_said(tmp_path: Path) -> None:
    report, ops = checked(model(tmp_path), unsafe_fixes=True)
    assert not report.findings
    assert "LayerNormalization" in ops


def test_a_large_mean_stays(tmp_path: Path) -> None:
    path = model(tmp_path, after=0.0)
    _, ops = checked(path, data=data(tmp_path, 0.3), unsafe_fixes=True, rms_norm_ratio=0.2)
    assert "LayerNormalization" in ops


def test_a_constant_mean_goes_into_what_is_added_before(tmp_path: Path) -> None:
    path, inputs = model(tmp_path, after=0.5), data(tmp_path, 1e-4)
    report, ops = checked(path, data=inputs, unsafe_fixes=True)
    assert "RMSNormalization" in ops
    assert report.findings[0].evidence["constant_mean"] == pytest.approx(0.5, abs=1e-2)


def test_outputs_that_move_too_far_are_not_written(tmp_path: Path) -> None:
    path, inputs = model(tmp_path), data(tmp_path, 5e-3)
    settings = {"data": inputs, "unsafe_fixes": True, "rms_norm_error": 1e-6}
    report, ops = checked(path, **settings)
    assert "LayerNormalization" in ops
    assert report.findings[0].not_fixed.reason == "verification"
