"""One command before a quantiser, and the lists of what it must leave alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from commandline import normlint
from quantized.residual_mlp import BLOCKS, error, float_model, inputs, quantised
from quantized.test_regions import NORMS, STATIC, open_findings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(float_model(fused=False, gain=4.0), path)
    return path


def test_before_quantization_fuses_converts_and_smooths(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.concatenate([feed["x"] for feed in inputs(8, 1)]))
    output = tmp_path / "prepared.onnx"
    data = ["--data", str(tmp_path / "data.npz"), "--output-format", "json"]

    ran = normlint(
        *("check", str(path), "--before-quantization", "--apply", "-o", str(output), *data),
        *("--target-opset", "23"),
    )

    findings = json.loads(ran.out)["models"][0]["findings"]
    made = [f["code"] for f in findings if f["fix"] and f["fix"]["applied"]]
    assert {"NL203", "NL404"} <= set(made) <= {"NL201", "NL203", "NL204", "NL404"}
    ops = [node.op_type for node in onnx.load(output).graph.node]
    assert ops.count("RMSNormalization") == NORMS
    assert error(output, onnx.load(path)) < 1e-5


def test_a_profile_selects_alone(path: Path) -> None:
    assert normlint("check", str(path), "--before-quantization", "--select", "NL1").code == 2


@pytest.mark.parametrize("form", ["int8", "per channel", "integer operators"])
@pytest.mark.parametrize("fused", [True, False], ids=["operators", "spelled out"])
def test_what_is_excluded_is_not_quantised(tmp_path: Path, form: str, *, fused: bool) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(float_model(fused=fused, gain=4.0), path)
    names = json.loads(normlint("norms", str(path), "--list", "nodes-to-exclude").out)

    options = STATIC[form] | {"nodes_to_exclude": names}
    found = quantised(tmp_path, onnx.load(path), **options)

    nodes = (1 if fused else 9) * NORMS
    assert open_findings(found) == {}
    assert len(names) == nodes + 2 * BLOCKS + 1, "norms, sums, biases in front, and the input"
    ops = [node.op_type for node in onnx.load(found).graph.node]
    linear = "QLinearMatMul" if form == "integer operators" else "MatMul"
    assert ops.count(linear) == 2 * BLOCKS + 1, "linear operators are quantised all the same"
    assert ops.count("QuantizeLinear") >= BLOCKS


@pytest.mark.parametrize("form", ["nodes-to-exclude", "layer-precisions", "ignored-scope"])
def test_the_lists_name_the_same_nodes(path: Path, form: str) -> None:
    text = normlint("norms", str(path), "--list", form).out
    names = json.loads(normlint("norms", str(path), "--list", "nodes-to-exclude").out)

    assert {
        "nodes-to-exclude": lambda: json.loads(text),
        "layer-precisions": lambda: [item.removesuffix(":fp32") for item in text.split(",")],
        "ignored-scope": lambda: json.loads(text)["names"],
    }[form]() == names


def test_a_list_is_of_one_model(path: Path, tmp_path: Path) -> None:
    onnx.save(float_model(), tmp_path / "other.onnx")

    assert normlint("norms", str(tmp_path), "--list", "nodes-to-exclude").code == 2
    assert normlint("norms", str(path), "--list", "nodes-to-exclude").code == 0
