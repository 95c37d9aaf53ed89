"""Outlier channels of norms move into the weights behind, where data shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from quantized.residual_mlp import BLOCKS, error, float_model, inputs, quantised
from quantized.test_regions import STATIC

from normlint import Settings, apply, check

if TYPE_CHECKING:
    from pathlib import Path

    from normlint.results import Finding

GAIN = 4.0


def data(folder: Path) -> Path:
    path = folder / "data.npz"
    np.savez(path, x=np.concatenate([feed["x"] for feed in inputs(8, 1)]))
    return path


def outliers(of: onnx.ModelProto | Path, settings: Settings) -> list[Finding]:
    return list(check(of, select=["NL404"], settings=settings).models[0].findings)


def smoothed(model: onnx.ModelProto, folder: Path, settings: Settings) -> Path:
    path = folder / "smooth.onnx"
    apply(model, path, select=["NL404"], settings=settings)
    return path


@pytest.mark.parametrize("fused", [True, False], ids=["operators", "spelled out"])
def test_a_smoothed_model_computes_the_same(tmp_path: Path, *, fused: bool) -> None:
    model = float_model(fused=fused, gain=GAIN)
    settings = Settings(data=data(tmp_path))

    path = smoothed(model, tmp_path, settings)

    assert len(outliers(model, settings)) == BLOCKS + 1
    assert error(path, model) < 1e-5
    assert outliers(path, settings) == []


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
def test_smoothing_is_done_once(tmp_path: Path, alpha: float) -> None:
    settings = Settings(data=data(tmp_path), smoothing_alpha=alpha)

    path = smoothed(float_model(gain=GAIN), tmp_path, settings)

    assert [finding for finding in outliers(path, settings) if finding.fix is not None] == []


def test_it_quantises_better(tmp_path: Path) -> None:
    model = float_model(gain=GAIN)
    options = STATIC["int8"] | {"op_types_to_quantize": ["MatMul"]}
    path = smoothed(model, tmp_path, Settings(data=data(tmp_path)))

    before = error(quantised(tmp_path, model, **options), model)
    after = error(quantised(tmp_path, onnx.load(path), **options), model)

    assert after < 0.8 * before


def test_without_data_a_float_model_is_left_alone() -> None:
    assert outliers(float_model(gain=GAIN), Settings()) == []


def test_a_residual_sum_that_reads_the_norm_stands_in_the_way(tmp_path: Path) -> None:
    model = float_model(gain=GAIN, post=True)
    settings = Settings(data=data(tmp_path))

    found = outliers(model, settings)

    assert [f.not_fixed.reason for f in found if f.not_fixed] == ["other-reader"] * (BLOCKS - 1)
    assert [f.fix is not None for f in found].count(True) == 1, "the last norm has a head only"


def test_layer_norms_become_rms_norms_first(tmp_path: Path) -> None:
    model = float_model(gain=GAIN)
    settings = Settings(data=data(tmp_path), target_opset=23, rms_norm_policy="always")
    path = tmp_path / "prepared.onnx"

    report = apply(model, path, select=["NL203", "NL204", "NL404"], settings=settings)

    done = {finding.code for finding in report.models[0].findings if finding.fix is not None}
    assert {"NL203", "NL404"} <= done
    assert error(path, model) < 1e-5
    assert outliers(path, settings) == []
