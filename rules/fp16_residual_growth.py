"""NL305."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.context.places import Place
from normlint.rule import Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.streams import Stream

_DEEP = 32
_PRE = frozenset((Place.PRE, Place.PARALLEL))


def _stack(layers: int, kind: str) -> str:
    lines = [
        f"n{k} = LayerNormalization(x{k}, scale) f{k} = MatMul(n{k}, a) x{k + 1} = Add(x{k}, f{k})"
        for k in range(layers)
    ]
    values = "{1,0,0,1}"
    return (
        f"layers_{layers}_in_{kind} ({kind}[B,T,2] x0) => ({kind}[B,T,2] y)\n"
        f"<{kind}[2,2] a = {values}, {kind}[2] scale = {{1,1}}> {{\n"
        + "\n".join(lines)
        + f"\ny = LayerNormalization(x{layers}, scale)\n}}"
    )


class FP16ResidualGrowth(Rule):
    """A deep Pre-LN stream keeps its sums in half precision.

    ## What it does

    Reports a residual stream of 32 layers or more whose norms stand at the start of the branches
    (Pre-LN) and whose sums are float16.

    ## Why is this bad?

    Nothing bounds the sums of a Pre-LN stream: every layer adds to them, and their variance grows
    with the depth, linearly at best. float16 ends at 65504 and has eleven significant bits: what
    late layers add to a large sum is rounded away, and single channels that stand out overflow.
    Models that were trained in bfloat16 are known for it when they are cast to float16.

    ## Example

    ```
    x = x + f(norm(x))     40 times in float16: reported
    ```

    ## What to do

    Keep the stream in float32 or bfloat16 and the branches in float16. Or multiply all that writes
    to the stream by a power of two, 2⁻ᵏ, and the epsilon of the norms that read it by 4⁻ᵏ: the
    norms take the scale out again, and the numbers are the same, exactly.

    ## When not to follow it

    Where the largest sum is known to be small, from calibration (`normlint measure`).

    ## References

    - Xiong et al. 2020, On Layer Normalization in the Transformer Architecture
    - Sun et al. 2025, The Curse of Depth in Large Language Models
    - Salmani et al. 2024, SLaNC: Static LayerNorm Calibration
    """

    code = "NL305"
    severity = Severity.INFO

    bad = (_stack(_DEEP, "float16"),)
    good = (_stack(_DEEP - 1, "float16"), _stack(_DEEP, "float"))

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each deep Pre-LN stream in float16."""
        for stream in context.streams:
            if stream.depth < _DEEP or stream.placement not in _PRE or not _is_half(stream):
                continue
            yield Diagnostic(
                f"the sums of a Pre-LN stream of {stream.depth} layers are float16: they grow with "
                "depth, round away what late layers add, and may overflow",
                node=stream.adds[-1].step.node,
                evidence={
                    "stream": stream.index,
                    "depth": stream.depth,
                    "blocks": stream.blocks,
                    "placement": str(stream.placement),
                },
            )


def _is_half(stream: Stream) -> bool:
    last = stream.adds[-1].step.node
    return any(tensor.dtype == TensorProto.FLOAT16 for tensor in last.outputs if tensor.name)
