"""NL606."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose, type_name
from normlint.graph import FLOATS
from normlint.rule import Applicability, Rewrite, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from normlint.context import Context
    from normlint.graph import Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic, NotFixed

_MIXES_FROM = {"BatchNormalization": 15, "RMSNormalization": 23}
"""Operators and the opset from which on x and the parameters may have different types."""
_OF_LAST_AXES = frozenset(("LayerNormalization", "RMSNormalization"))


class MixedNormTypes(Rule):
    """The parameters of a normalisation operator do not fit its input.

    ## What it does

    Reports a scale, bias, mean or variance of another element type than the input where the
    operator demands one type, and a scale or bias of a LayerNormalization with leading axes of
    extent 1.

    ## Why is this bad?

    Converters to half precision that cast some tensors and not others leave such files, and so do
    fusions that drop a Cast. Runtimes refuse to load them, though onnx.checker may pass them.
    Leading axes (reported as a warning) are outside of the operator's definition: onnxruntime 1.32
    broadcasts them where the input has as many axes, and fails where it has fewer.

    ## Example

    Half-precision x with a scale in float32: the operator computes in float32 between two Casts. A
    scale of shape [1, 1, H] becomes [H].

    ## Fix safety

    Safe: the values stay, and nothing is computed in a narrower type than before.

    ## When not to follow it

    There is no such case.

    ## References

    - [LayerNormalization](https://onnx.ai/onnx/operators/onnx__LayerNormalization.html): one type
      for X, Scale and B
    """

    code = "NL606"
    severity = Severity.ERROR
    applicability = Applicability.SAFE

    bad = (
        """
        half_input (float16[2,8] x) => (float16[2,8] y)
        <float[8] scale = {1,2,3,4,5,6,7,8}> {
            y = LayerNormalization(x, scale)
        }
        """,
        """
        leading_ones (float[2,3,8] x) => (float[2,3,8] y)
        <float[1,1,8] scale = {1,2,3,4,5,6,7,8}> {
            y = LayerNormalization(x, scale)
        }
        """,
    )
    good = (
        """
        one_type (float[2,8] x) => (float[2,8] y)
        <float[8] scale = {1,2,3,4,5,6,7,8}> {
            y = LayerNormalization(x, scale)
        }
        """,
        """
        <ir_version: 8, opset_import: ["" : 15]>
        allowed_there (float16[2,3,4] x) => (float16[2,3,4] y)
        <float[3] scale = {1,2,3}, float[3] bias = {1,2,3}, float[3] mean = {0,0,0},
         float[3] variance = {1,1,1}> {
            y = BatchNormalization(x, scale, bias, mean, variance)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each operator with parameters of another type, or with leading axes."""
        for norm in context.norms:
            make = _maker(norm.op_type)
            if make is None:
                continue
            types, shape = _types(context, norm), _leading_ones(norm)
            if not types and not shape:
                continue
            outcome = make(context, norm)
            if isinstance(outcome, Rewrite):
                outcome = replace(outcome, invalid_before=bool(types), opset=0)
            severity = self.severity if types else Severity.WARNING
            message = f"{norm.op_type} {types or shape}"
            yield diagnose(norm, message, outcome, severity=severity)


def _parameters(norm: Normalization) -> list[Tensor]:
    return [tensor for tensor in norm.anchor.inputs[1:] if tensor.name]


def _types(context: Context, norm: Normalization) -> str:
    """Say which types do not go together; empty where they do."""
    if context.opset >= _MIXES_FROM.get(norm.op_type or "", 1 << 30):
        return ""
    types = {tensor.dtype for tensor in _parameters(norm) if tensor.dtype in FLOATS}
    other = types - {norm.x.dtype}
    if not other or norm.x.dtype not in FLOATS:
        return ""
    names = " and ".join(sorted(type_name(dtype) for dtype in other))
    return (
        f"has an input of {type_name(norm.x.dtype)} and parameters of {names}: "
        "runtimes do not load it"
    )


def _leading_ones(norm: Normalization) -> str:
    """Say which parameter has axes of extent 1 before those that are normalised."""
    if norm.op_type not in _OF_LAST_AXES or norm.axes is None:
        return ""
    width = len(norm.axes)
    for tensor in _parameters(norm):
        shape = tensor.shape or ()
        if len(shape) > width and all(extent == 1 for extent in shape[:-width]):
            wanted = list(shape[-width:])
            return (
                f"has a parameter of shape {list(shape)}, and is defined for {wanted}: "
                "not every runtime broadcasts it"
            )
    return ""


def _maker(op_type: str | None) -> Callable[[Context, Normalization], Rewrite | NotFixed] | None:
    """Give what makes an operator of one type of the same name."""
    ops = rewrite.norm_ops
    makers = {
        "LayerNormalization": ops.layer_norm,
        "RMSNormalization": ops.rms_norm,
        "InstanceNormalization": ops.instance_norm,
        "GroupNormalization": ops.group_norm,
        "BatchNormalization": ops.unified_batch_norm,
    }
    return makers.get(op_type or "")
