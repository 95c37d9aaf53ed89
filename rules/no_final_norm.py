"""NL303."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.endings import ends_bare
from normlint.context.places import Place
from normlint.normalization import Kind
from normlint.rule import Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.streams import Stream


class NoFinalNorm(Rule):
    """A Pre-LN stream reaches the head without a last norm.

    ## What it does

    Reports a residual stream whose norms stand at the start of the branches (Pre-LN, also with the
    branches side by side), and whose last sum goes to the head or out of the graph with no norm on
    the way.

    ## Why is this bad?

    In a Pre-LN stream nothing bounds the sums: each layer adds to them, and their size grows with
    the depth. The head then sees values of another size than every layer before it, which costs
    accuracy in half precision and in INT8. Pre-LN models have a last norm for this reason; it is
    easily forgotten (`torch.nn.TransformerEncoder` with `norm_first=True` has none by default) or
    lost when a model is cut.

    ## Example

    ```
    x = x + f(norm(x))
    y = head(x)          reported
    y = head(norm(x))    as it is usually done
    ```

    ## When not to follow it

    Where the model was trained without it: adding a norm changes the function, so there is no
    repair. Where the model is a part of a larger one, and the norm stands in the next part.

    ## References

    - Xiong et al. 2020, On Layer Normalization in the Transformer Architecture
    """

    code = "NL303"
    severity = Severity.INFO

    bad = (
        """
        to_the_head (float[B,T,4] x) => (float[B,T,2] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1},
         float[4,2] head = {1,0,0,1,1,1,0,0}> {
            n = LayerNormalization(x, scale)
            f = MatMul(n, a)
            r = Add(x, f)
            m = LayerNormalization(r, scale)
            g = MatMul(m, a)
            s = Add(r, g)
            y = MatMul(s, head)
        }
        """,
    )
    good = (
        """
        with_a_final_norm (float[B,T,4] x) => (float[B,T,2] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1},
         float[4,2] head = {1,0,0,1,1,1,0,0}> {
            n = LayerNormalization(x, scale)
            f = MatMul(n, a)
            r = Add(x, f)
            m = LayerNormalization(r, scale)
            g = MatMul(m, a)
            s = Add(r, g)
            l = LayerNormalization(s, scale)
            y = MatMul(l, head)
        }
        """,
        """
        post_norm (float[B,T,4] x) => (float[B,T,2] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1},
         float[4,2] head = {1,0,0,1,1,1,0,0}> {
            f = MatMul(x, a)
            r = Add(x, f)
            n = LayerNormalization(r, scale)
            g = MatMul(n, a)
            s = Add(n, g)
            m = LayerNormalization(s, scale)
            y = MatMul(m, head)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each Pre-LN stream that ends without a norm."""
        for stream in context.streams:
            if _is_pre_norm(stream) and ends_bare(stream, context.structure):
                yield Diagnostic(
                    f"a Pre-LN stream (depth {stream.depth}) ends without a norm: its sums "
                    "grow with depth, and what reads the last one sees them as they are",
                    node=stream.adds[-1].step.node,
                    evidence={
                        "stream": stream.index,
                        "depth": stream.depth,
                        "blocks": stream.blocks,
                        "placement": str(stream.placement),
                    },
                )


def _is_pre_norm(stream: Stream) -> bool:
    if stream.blocks < 2 or stream.placement not in {Place.PRE, Place.PARALLEL}:
        return False
    entries = [n for n, word in stream.placed if word in {Place.PRE, Place.PARALLEL}]
    return bool(entries) and all(norm.kind in {Kind.LAYER, Kind.RMS} for norm in entries)
