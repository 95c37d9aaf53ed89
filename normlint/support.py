"""Which runtime runs which normalisation operator, from which version on, and who says so.

Operators that no entry names are not complained of: there is no source that says they are missing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Support:
    """What is known of a runtime and an operator."""

    runtime: str
    operator: str
    """Operator, with its domain where that is not ai.onnx."""
    since: str
    """From when on it is run: a version, or what added it; empty where nothing is known."""
    missing: str
    """The version on which it was seen, or is said, to be missing; empty where none is known."""
    source: str
    from_opset: int = 1
    """The opset from which on this is so: an operator's newer definitions may not be known."""

    def __str__(self) -> str:
        """Say what is missing, and who says so."""
        versions = f" ({self.missing})" if self.missing else ""
        return f"{self.runtime} has no {self.operator}{versions}: {self.source}"

    @property
    def is_gap(self) -> bool:
        """Whether no version is known that runs it."""
        return not self.since


_CONTRIB = "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"
_SIMPLIFIED = "https://github.com/onnx/onnx/issues/6582"
_ONLY_ONNXRUNTIME = (
    "com.microsoft::SkipLayerNormalization",
    "com.microsoft::SkipSimplifiedLayerNormalization",
    "com.microsoft::EmbedLayerNormalization",
    "com.microsoft::GroupNorm",
    "com.microsoft::SkipGroupNorm",
)
_OTHERS = ("onnx", "tensorrt", "openvino", "qnn", "tflite", "coreml")

TABLE: tuple[Support, ...] = (
    Support(
        "onnxruntime",
        "RMSNormalization",
        "1.32 or before",
        "",
        "https://github.com/microsoft/onnxruntime/pull/24875",
    ),
    Support(
        "openvino",
        "RMSNormalization",
        "",
        "2026.2.1",
        "https://github.com/openvinotoolkit/openvino/issues/36694",
    ),
    Support(
        "tensorrt",
        "RMSNormalization",
        "10.15",
        "before 10.15",
        "https://github.com/onnx/onnx-tensorrt/issues/1046",
    ),
    Support(
        "tensorrt",
        "LayerNormalization",
        "8.6",
        "8.2.4",
        "https://github.com/NVIDIA/TensorRT/issues/3642",
    ),
    Support(
        "openvino",
        "LayerNormalization",
        "after 2023.1",
        "2023.1",
        "https://github.com/openvinotoolkit/openvino/issues/22189",
    ),
    Support(
        "openvino",
        "GroupNormalization",
        "a pull request of October 2023",
        "",
        "https://github.com/openvinotoolkit/openvino/pull/20694",
    ),
    Support(
        "tensorrt",
        "GroupNormalization",
        "",
        "10.7",
        "https://github.com/NVIDIA/TensorRT/issues/4336",
        from_opset=21,
    ),
    Support(
        "openvino",
        "com.microsoft::SkipLayerNormalization",
        "a pull request of October 2021",
        "",
        "https://github.com/openvinotoolkit/openvino/pull/7789",
    ),
    Support(
        "openvino",
        "com.microsoft::SkipSimplifiedLayerNormalization",
        "a pull request of October 2024",
        "",
        "https://github.com/openvinotoolkit/openvino/pull/27285",
    ),
    Support(
        "openvino",
        "com.microsoft::GroupNorm",
        "a pull request of February 2026",
        "",
        "https://github.com/openvinotoolkit/openvino/pull/33968",
    ),
    Support(
        "tflite",
        "com.microsoft::GroupNorm",
        "",
        "onnx2tf 1.13",
        "https://github.com/PINTO0309/onnx2tf/issues/401",
    ),
    *(
        Support(runtime, operator, "", "all", _CONTRIB)
        for runtime in ("onnx", "qnn", "coreml")
        for operator in _ONLY_ONNXRUNTIME
    ),
    *(
        Support(runtime, "SimplifiedLayerNormalization", "", "all", _SIMPLIFIED)
        for runtime in _OTHERS
    ),
)


def gap(targets: frozenset[str], operator: str, opset: int) -> Support | None:
    """Give the first entry that says that one of the targets cannot run an operator."""
    return next(
        (
            entry
            for entry in TABLE
            if entry.is_gap
            and entry.runtime in targets
            and entry.operator == operator
            and opset >= entry.from_opset
        ),
        None,
    )
