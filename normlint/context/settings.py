"""What the user wants that bears on findings and rewrites."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Intent(StrEnum):
    """What the model is for."""

    INFER = "infer"
    TRAIN = "train"


@dataclass(frozen=True)
class Settings:
    """Settings of a run that rules and rewrites look at."""

    target_opset: int | None = None
    """The opset up to which a rewrite may raise the model's; None: its own."""
    targets: frozenset[str] = frozenset()
    """Runtimes that it is for: onnx, onnxruntime, tensorrt, openvino, qnn, tflite, coreml."""
    intent: Intent = Intent.INFER
    """What the model is for: infer or train."""
    unsafe_fixes: bool = False
    """Whether repairs are made that change the function or need a judgement."""
    post_norm_depth: int = 12
    """Layers from which on NL301 reports a Post-LN stack."""
    bias_maps: bool = False
    """Whether NL102 and NL103 fold a shift into a convolution that pads with zeros, at the cost of
    a constant as large as one image that it makes."""
    rms_norm_policy: str = "profitable"
    """`profitable` or `always`: when NL203 makes the swap."""
    rms_norm_ratio: float = 1e-2
    """Mean over deviation up to which NL203 leaves a mean out, with `--data` and unsafe fixes."""
    rms_norm_error: float = 1e-2
    """Relative error of the model's outputs on the data that NL203 may cause by that."""
    quantized_repair: str = "residual"
    """`residual` or `norm`: whether residual additions are taken out of INT8 with the norms."""
    smoothing_alpha: float = 0.5
    """How much of an outlier NL404 moves into the weights: 0 none, 1 all of it."""
    data: Path | None = None
    """Calibration inputs (npz)."""
