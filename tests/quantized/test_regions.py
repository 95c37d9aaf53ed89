"""Norms and residual additions in models that ONNX Runtime quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
from quantized.residual_mlp import BLOCKS, error, float_model, quantised

from normlint import Settings, apply, check

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from normlint.results import Finding

NORMS = BLOCKS + 1
QDQ = {"quant_format": QuantFormat.QDQ}
STATIC = {
    "int8": QDQ | {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8},
    "uint8": QDQ | {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8},
    "a pair for each reader": QDQ | {"extra_options": {"DedicatedQDQPair": True}},
    "per channel": QDQ | {"activation_type": QuantType.QInt8, "per_channel": True},
    "integer operators": {"quant_format": QuantFormat.QOperator},
    "integer operators per channel": {"quant_format": QuantFormat.QOperator, "per_channel": True},
}
UNSAFE = Settings(unsafe_fixes=True)


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in findings:
        if finding.code.startswith("NL40") and finding.is_open:
            counts[finding.code] = counts.get(finding.code, 0) + 1
    return counts


def open_findings(path: Path, settings: Settings | None = None) -> dict[str, int]:
    return counted(check(path, settings=settings).models[0].findings)


@pytest.mark.parametrize("options", STATIC.values(), ids=STATIC.keys())
def test_every_norm_and_every_residual_addition_is_found(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = quantised(tmp_path, float_model(), **options)

    found = open_findings(path)

    assert found["NL401"] == NORMS
    assert found["NL403"] == BLOCKS
    assert "NL402" not in found


def test_norms_that_are_spelled_out_are_quantised_inside(tmp_path: Path) -> None:
    path = quantised(tmp_path, float_model(fused=False), **STATIC["uint8"])

    found = open_findings(path)

    assert found["NL402"] == NORMS
    assert found["NL403"] == BLOCKS
    assert "NL401" not in found


def test_norms_that_are_spelled_out_in_integer_operators_are_found(tmp_path: Path) -> None:
    reference = float_model(fused=False)
    path = quantised(tmp_path, reference, **STATIC["integer operators"])
    repaired = tmp_path / "repaired.onnx"

    apply(path, repaired, select=["NL4"], settings=UNSAFE)

    assert open_findings(path)["NL402"] == NORMS
    assert "NL402" not in open_findings(repaired)
    assert error(repaired, reference) < 0.9 * error(path, reference)


@pytest.mark.parametrize("fused", [True, False], ids=["operators", "spelled out"])
@pytest.mark.parametrize("options", STATIC.values(), ids=STATIC.keys())
def test_the_repair_moves_the_numbers_towards_the_float_model(
    tmp_path: Path, options: dict[str, Any], *, fused: bool
) -> None:
    if options["quant_format"] is QuantFormat.QOperator and not fused:
        options = STATIC["int8"]
    reference = float_model(fused=fused)
    path = quantised(tmp_path, reference, **options)
    repaired = tmp_path / "repaired.onnx"

    report = apply(path, repaired, select=["NL401", "NL402", "NL403"], settings=UNSAFE)

    onnx.checker.check_model(repaired)
    assert report.fixed >= NORMS
    assert error(repaired, reference) < 0.7 * error(path, reference)


@pytest.mark.parametrize("fused", [True, False], ids=["operators", "spelled out"])
@pytest.mark.parametrize("options", STATIC.values(), ids=STATIC.keys())
def test_nothing_is_left_after_the_repair(
    tmp_path: Path, options: dict[str, Any], *, fused: bool
) -> None:
    path = quantised(tmp_path, float_model(fused=fused), **options)
    repaired, again = tmp_path / "repaired.onnx", tmp_path / "again.onnx"

    apply(path, repaired, select=["NL4"], settings=UNSAFE)
    apply(repaired, again, select=["NL4"], settings=UNSAFE)

    assert open_findings(repaired) == {}
    assert again.read_bytes() == repaired.read_bytes()


def test_linear_operators_keep_their_pairs(tmp_path: Path) -> None:
    path = quantised(tmp_path, float_model(), **STATIC["int8"])
    repaired = tmp_path / "repaired.onnx"

    apply(path, repaired, select=["NL4"], settings=UNSAFE)

    graph = onnx.load(repaired).graph
    made_by = {output: node.op_type for node in graph.node for output in node.output}
    products = [node for node in graph.node if node.op_type == "MatMul"]
    assert len(products) == 2 * BLOCKS + 1
    for node in products:
        assert [made_by[source] for source in node.input] == ["DequantizeLinear"] * 2


def test_additions_stay_where_that_is_wanted(tmp_path: Path) -> None:
    path = quantised(tmp_path, float_model(), **STATIC["int8"])
    repaired = tmp_path / "repaired.onnx"
    settings = Settings(unsafe_fixes=True, quantized_repair="norm")

    report = apply(path, repaired, select=["NL4"], settings=settings)

    assert counted(report.models[0].findings) == {"NL403": BLOCKS}


def test_hardware_that_wants_quantised_norms_gets_them(tmp_path: Path) -> None:
    path = quantised(tmp_path, float_model(), **STATIC["int8"])

    assert open_findings(path, Settings(targets=frozenset(("qnn",)))) == {}


def test_sixteen_bits_are_worth_knowing_only(tmp_path: Path) -> None:
    wide = QDQ | {"activation_type": QuantType.QInt16, "weight_type": QuantType.QInt8}
    path = quantised(tmp_path, float_model(), extra_options={"UseQDQContribOps": True}, **wide)

    findings = check(path, select=["NL401", "NL403"]).models[0].findings

    assert len(findings) == NORMS + BLOCKS
    assert {finding.severity for finding in findings} == {"info"}


@pytest.mark.parametrize("fused", [True, False], ids=["operators", "spelled out"])
def test_a_model_in_float_is_left_alone(tmp_path: Path, *, fused: bool) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(float_model(fused=fused), path)

    assert open_findings(path) == {}


def test_only_linear_operators_quantised_is_as_it_should_be(tmp_path: Path) -> None:
    path = quantised(
        tmp_path, float_model(), op_types_to_quantize=["MatMul"], **STATIC["per channel"]
    )

    assert open_findings(path) == {}


def test_inputs_quantised_when_the_model_runs_are_as_they_should_be(tmp_path: Path) -> None:
    source, target = tmp_path / "float.onnx", tmp_path / "dynamic.onnx"
    onnx.save(float_model(), source)
    quantization.quantize_dynamic(source, target)

    assert any(node.op_type == "DynamicQuantizeLinear" for node in onnx.load(target).graph.node)
    assert open_findings(target) == {}
