"""Which runtime runs which normalisation operator.

Only what a source says is in the table; what is not in it is not complained of.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """A runtime that cannot run an operator, as far as is known."""

    runtime: str
    operator: str
    """Operator, with its domain where that is not ai.onnx."""
    versions: str
    """Versions that were seen or are said to lack it."""
    source: str


_MICROSOFT = (
    "com.microsoft::SkipLayerNormalization",
    "com.microsoft::SkipSimplifiedLayerNormalization",
    "com.microsoft::EmbedLayerNormalization",
    "com.microsoft::GroupNorm",
    "com.microsoft::SkipGroupNorm",
)
_OTHERS = ("onnx", "tensorrt", "openvino", "qnn", "tflite", "coreml")
_CONTRIB = "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"
_SIMPLIFIED = "https://github.com/onnx/onnx/issues/6582"

GAPS: tuple[Gap, ...] = (
    Gap(
        "openvino",
        "RMSNormalization",
        "2026.2.1 and before",
        "https://github.com/openvinotoolkit/openvino/issues/36694",
    ),
    Gap(
        "tensorrt",
        "RMSNormalization",
        "before 10.15",
        "https://github.com/onnx/onnx-tensorrt/issues/1046",
    ),
    *(
        Gap(runtime, operator, "all", _CONTRIB)
        for runtime in ("onnx", "qnn", "tflite", "coreml")
        for operator in _MICROSOFT
    ),
    *(Gap(runtime, "SimplifiedLayerNormalization", "all", _SIMPLIFIED) for runtime in _OTHERS),
)


def gap(targets: frozenset[str], operator: str) -> Gap | None:
    """Give the first gap that concerns one of the targets and an operator."""
    return next((g for g in GAPS if g.runtime in targets and g.operator == operator), None)
