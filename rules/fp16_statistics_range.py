"""NL503."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.context.batch_norms import PARAMETERS
from normlint.rule import Diagnostic, Reason, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from normlint.context import Context
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization

_LARGEST_VECTOR = 1 << 16


class Fp16StatisticsRange(Rule):
    """A parameter of a norm does not fit half precision.

    ## What it does

    Reports a float16 parameter of a normalisation that is infinite, as a variance above 65504
    becomes when a model is converted; and a BatchNorm in half precision whose fold would push a
    weight or bias out of the range of float16, or a channel into its subnormal numbers.

    ## Why is this bad?

    An infinite variance makes the channel a constant, an infinite mean or scale makes it NaN, and
    nothing else tells.

    ## Example

    `var = 70000` in float32 becomes `Inf` in float16.

    ## Fix safety

    There is no repair: the number is gone. Fold the BatchNorms in float32, then convert; or keep
    their parameters in float32, which BatchNormalization allows from opset 15 on.
    """

    code = "NL503"
    severity = Severity.ERROR

    bad = (
        """
        variance_beyond_the_range (float16[1,2,4,4] x) => (float16[1,2,4,4] y)
        <float[2] g = {1.5,-2}, float[2] b = {0.5,1}, float[2] m = {0.1,-0.3},
         float[2] v = {70000,2}> {
            scale = Cast<to = 10>(g)
            bias = Cast<to = 10>(b)
            mean = Cast<to = 10>(m)
            var = Cast<to = 10>(v)
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
        """
        weight_would_be_beyond_the_range (float16[1,1,4,4] x) => (float16[1,2,3,3] y)
        <float[2,1,2,2] k = {1,2,3,400,-1,0.5,2,1}, float[2] g = {300,-2}, float[2] b = {0.5,1},
         float[2] m = {0.1,-0.3}, float[2] v = {0.0001,2}> {
            w = Cast<to = 10>(k)
            scale = Cast<to = 10>(g)
            bias = Cast<to = 10>(b)
            mean = Cast<to = 10>(m)
            var = Cast<to = 10>(v)
            c = Conv(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        within_the_range (float16[1,1,4,4] x) => (float16[1,2,3,3] y)
        <float[2,1,2,2] k = {1,2,3,4,-1,0.5,2,1}, float[2] g = {1.5,-2}, float[2] b = {0.5,1},
         float[2] m = {0.1,-0.3}, float[2] v = {0.5,2}> {
            w = Cast<to = 10>(k)
            scale = Cast<to = 10>(g)
            bias = Cast<to = 10>(b)
            mean = Cast<to = 10>(m)
            var = Cast<to = 10>(v)
            c = Conv(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        float32_has_room (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float[2] g = {1.5,-2}, float[2] b = {0.5,1}, float[2] m = {0.1,-0.3},
         float[2] v = {70000,2}> {
            y = BatchNormalization(x, g, b, m, v)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report parameters that are not finite in float16, and folds that would not be."""
        reported: set[Node] = set()
        for norm in context.norms:
            for name, tensor in _parameters(norm):
                if norm.anchor not in reported and _is_infinite(tensor, context):
                    reported.add(norm.anchor)
                    yield Diagnostic(
                        f"the {name} of a {norm.kind.value} is beyond the range of float16",
                        norm.anchor,
                        norm.nodes,
                        {"parameter": tensor.name},
                    )
        for fold in context.folds.batch_norms:
            refusal = fold.refusal
            if refusal is None or refusal.reason is not Reason.WOULD_OVERFLOW:
                continue
            if fold.node.y.dtype == TensorProto.FLOAT16 and fold.node not in reported:
                yield Diagnostic(
                    f"a BatchNorm cannot be folded in float16: {refusal.detail}",
                    fold.node,
                    (fold.node,),
                    not_fixed=refusal,
                )


def _parameters(norm: Normalization) -> Iterator[tuple[str, Tensor]]:
    """Give the parameters of a norm with what each is."""
    if norm.op_type == "BatchNormalization":
        for position, name in enumerate(PARAMETERS, 1):
            tensor = norm.anchor.input(position)
            if tensor is not None:
                yield name, tensor
        return
    for name, parameter in (("scale", norm.scale), ("bias", norm.bias)):
        if parameter is not None:
            yield from ((name, tensor) for tensor in parameter.tensors)


def _is_infinite(tensor: Tensor, context: Context) -> bool:
    if tensor.dtype != TensorProto.FLOAT16:
        return False
    values = context.constants.known(tensor, _LARGEST_VECTOR)
    return values is not None and bool(np.isinf(values).any())
