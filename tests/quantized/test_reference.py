"""Repairs of a quantised model are held against the float model that it was made from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from commandline import normlint
from quantized.residual_mlp import BLOCKS, error, float_model, inputs, quantised
from quantized.test_regions import STATIC

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """Give the command to repair a quantised model with data and its reference beside it."""
    quantised(tmp_path, float_model(), **STATIC["int8"])
    np.savez(tmp_path / "data.npz", x=np.concatenate([feed["x"] for feed in inputs(8, 1)]))
    given = ["--data", str(tmp_path / "data.npz"), "--reference", str(tmp_path / "float.onnx")]
    output = ["-o", str(tmp_path / "repaired.onnx"), "--output-format", "json"]
    flags = ["--apply", "--unsafe-fixes", "--select", "NL4"]
    return ["check", str(tmp_path / "quantised.onnx"), *given, *output, *flags]


def test_the_numbers_are_reported(models: list[str], tmp_path: Path) -> None:
    document = json.loads(normlint(*models).out)

    found = document["models"][0]["reference"]
    assert found["kept"]
    assert found["samples"] == 8
    assert found["after"]["relative_error"] < 0.7 * found["before"]["relative_error"]
    assert found["after"]["cosine"] > found["before"]["cosine"]
    assert found["after"]["sqnr"] > found["before"]["sqnr"] + 3
    assert error(tmp_path / "repaired.onnx", float_model()) < 0.2


def test_what_does_not_help_is_not_made(models: list[str], tmp_path: Path) -> None:
    onnx.save(onnx.load(tmp_path / "quantised.onnx"), tmp_path / "float.onnx")

    document = json.loads(normlint(*models).out)

    model = document["models"][0]
    assert not model["reference"]["kept"]
    assert not any(f["fix"] and f["fix"]["applied"] for f in model["findings"])
    reasons = [f["not_fixed"]["reason"] for f in model["findings"] if f["code"] == "NL403"]
    assert reasons == ["verification"] * BLOCKS
    kept = (tmp_path / "quantised.onnx").read_bytes()
    assert (tmp_path / "repaired.onnx").read_bytes() == kept


def test_a_reference_needs_data(tmp_path: Path) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(float_model(), path)

    ran = normlint("check", str(path), "--reference", str(path))

    assert ran.code == 2
    assert "--data" in ran.err


def test_data_that_does_not_fit_is_said(models: list[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", other=np.zeros(3))

    ran = normlint(*models)

    assert ran.code == 2
    assert "input 'x'" in ran.err


def test_data_tells_how_far_a_norm_is_off(models: list[str]) -> None:
    at = models.index("--data")
    shown = [*models[:2], *models[at : at + 2], "--output-format", "json", "--select", "NL401"]

    findings = json.loads(normlint(*shown).out)["models"][0]["findings"]

    for finding in findings:
        error = finding["evidence"]["expected_relative_error"]
        wanted = "info" if error < 0.02 else "error" if error > 0.1 else "warning"
        assert finding["severity"] == wanted
        assert 0 < error < 1
    assert len(findings) == BLOCKS + 1
