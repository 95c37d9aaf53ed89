"""NL305."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint import rewrite
from normlint.context.epsilons import was_scaled
from normlint.context.places import Place
from normlint.context.precision import HEADROOM, LARGEST_HALF
from normlint.rule import Applicability, Diagnostic, NotFixed, Rewrite, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.streams import Stream
    from normlint.normalization import Normalization

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

    ## Fix safety

    Unsafe: all that writes to the stream is multiplied by 2⁻⁴, and the epsilon of the norms that
    read it by 2⁻⁸. The norms take the factor out again, and no digit changes, but for small values
    that may become subnormal. It is not made where something else reads the stream. Or keep the
    stream in float32 or bfloat16, and the branches in float16.

    ## When not to follow it

    Where the largest sum is known to be small: with `--data` that shows it, nothing is reported.

    ## References

    - Xiong et al. 2020, On Layer Normalization in the Transformer Architecture
    - Sun et al. 2025, The Curse of Depth in Large Language Models
    - Salmani et al. 2024, SLaNC: Static LayerNorm Calibration
    """

    code = "NL305"
    severity = Severity.INFO
    applicability = Applicability.UNSAFE

    bad = (_stack(_DEEP, "float16"),)
    good = (_stack(_DEEP - 1, "float16"), _stack(_DEEP, "float"))

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each deep Pre-LN stream in float16."""
        for stream in context.streams:
            if stream.depth < _DEEP or stream.placement not in _PRE or not _is_half(stream):
                continue
            last = next((norm for norm in reversed(stream.norms) if _reads(stream, norm)), None)
            if last is not None and (was_scaled(last) or _has_room(stream, context)):
                continue
            outcome = None if last is None else _rescaled(context, last)
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
                rewrite=outcome if isinstance(outcome, Rewrite) else None,
                not_fixed=outcome if isinstance(outcome, NotFixed) else None,
            )


def _is_half(stream: Stream) -> bool:
    last = stream.adds[-1].step.node
    return any(tensor.dtype == TensorProto.FLOAT16 for tensor in last.outputs if tensor.name)


def _reads(stream: Stream, norm: Normalization) -> bool:
    return any(norm.x in add.step.node.outputs for add in stream.adds)


def _has_room(stream: Stream, context: Context) -> bool:
    """Whether data shows that all that the norms read is far from the end of float16."""
    measured = context.measured
    if measured is None:
        return False
    read = [context.precision.largest_read(norm, measured) for norm in stream.norms]
    return 0 < max(read, default=0.0) < LARGEST_HALF / HEADROOM


def _rescaled(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    return rewrite.rescale.rescaled_stream(context, norm, rewrite.rescale.EXPONENT).outcome
