"""NL301."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import Intent
from normlint.context.places import Place
from normlint.normalization import Kind
from normlint.rule import Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from normlint.context import Context
    from normlint.context.streams import Stream
    from normlint.normalization import Normalization


class PostNormDepth(Rule):
    """A deep stack of layers has its LayerNorms on the residual sums (Post-LN).

    ## What it does

    Finds the residual streams of a model and where their norms stand. Reports a stack in which the
    LayerNorms stand on the sums, `x = LayerNorm(x + f(x))`, and that has 12 layers or more (setting
    `post-norm-depth`). A decoder and the encoder that it reads are trained through each other and
    count together. The report says how many layers and residual additions there are, and why the
    stack is taken for Post-LN.

    ## Why is this bad?

    It is a matter of training: with the norm on the sum, no path leads from the last layer to the
    first one without passing every norm, and the gradients at the start of training are large near
    the output. Deep Post-LN stacks need a warm-up of the learning rate and are often unstable to
    train or to fine-tune; Pre-LN, or a scaled skip path, is not. The frozen model computes what it
    computes: inference is unaffected, so that the finding is for information unless the model is
    to be trained (`--intent train`), where it is a warning.

    Depth alone proves nothing: BERT-large has 24 such layers and works.

    ## Example

    ```
    x = LayerNorm(x + attention(x))           Post-LN
    x = x + attention(LayerNorm(x))           Pre-LN
    x = LayerNorm(alpha * x + attention(x))   DeepNorm, Admin: not reported
    ```

    ## When not to follow it

    Where the model is not trained any further. Moving the norms changes the function, so there is
    no repair.

    ## References

    - Xiong et al. 2020, On Layer Normalization in the Transformer Architecture
    - Liu et al. 2020, Understanding the Difficulty of Training Transformers (Admin)
    - Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers (DeepNorm)
    - Takase et al. 2022, B2T Connection
    """

    code = "NL301"
    severity = Severity.WARNING

    bad = (
        (
            """
            post_norm (float[B,T,4] x) => (float[B,T,4] y)
            <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1}> {
                f = MatMul(x, a)
                r = Add(x, f)
                n = LayerNormalization(r, scale)
                g = MatMul(n, a)
                s = Add(n, g)
                y = LayerNormalization(s, scale)
            }
            """,
            {"post_norm_depth": 2},
        ),
    )
    good = (
        """
        two_layers (float[B,T,4] x) => (float[B,T,4] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1}> {
            f = MatMul(x, a)
            r = Add(x, f)
            n = LayerNormalization(r, scale)
            g = MatMul(n, a)
            s = Add(n, g)
            y = LayerNormalization(s, scale)
        }
        """,
        (
            """
            pre_norm (float[B,T,4] x) => (float[B,T,4] y)
            <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1}> {
                n = LayerNormalization(x, scale)
                f = MatMul(n, a)
                r = Add(x, f)
                m = LayerNormalization(r, scale)
                g = MatMul(m, a)
                s = Add(r, g)
                y = LayerNormalization(s, scale)
            }
            """,
            {"post_norm_depth": 2},
        ),
        (
            """
            deep_norm (float[B,T,4] x) => (float[B,T,4] y)
            <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1},
             float alpha = {1.41}> {
                f = MatMul(x, a)
                u = Mul(x, alpha)
                r = Add(u, f)
                n = LayerNormalization(r, scale)
                g = MatMul(n, a)
                v = Mul(n, alpha)
                s = Add(v, g)
                y = LayerNormalization(s, scale)
            }
            """,
            {"post_norm_depth": 2},
        ),
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each deep Post-LN stack."""
        for stack in context.stacks:
            streams = [stream for stream in stack if _is_post_layer_norm(stream)]
            depth = sum(stream.depth for stream in streams)
            if streams and depth >= context.settings.post_norm_depth:
                yield _diagnostic(streams, depth, context)


def _is_post_layer_norm(stream: Stream) -> bool:
    norms = list(_on_sums(stream))
    layer_norms = sum(norm.kind is Kind.LAYER for norm in norms)
    return stream.placement is Place.POST and 2 * layer_norms > len(norms)


def _on_sums(stream: Stream) -> Iterator[Normalization]:
    return (norm for norm, word in stream.placed if word is Place.POST)


def _diagnostic(streams: Sequence[Stream], depth: int, context: Context) -> Diagnostic:
    training = context.settings.intent is Intent.TRAIN
    norms = [norm for stream in streams for norm in _on_sums(stream)]
    blocks = sum(stream.blocks for stream in streams)
    layers = f"{depth} layers"
    if len(streams) > 1:
        layers += f" ({' and '.join(str(stream.depth) for stream in streams)})"
    return Diagnostic(
        f"Post-LN stack of {layers}: {len(norms)} LayerNorms stand on the sums of {blocks} "
        "residual additions, none on a scaled skip path (DeepNorm, Admin); such stacks are known "
        "to be hard to train or fine-tune without warm-up, inference is unaffected",
        node=norms[0].anchor,
        nodes=tuple(norm.anchor for norm in norms),
        severity=Severity.WARNING if training else Severity.INFO,
        evidence={
            "depth": depth,
            "blocks": blocks,
            "streams": [stream.index for stream in streams],
            "placement": str(Place.POST),
            "attention": any(stream.has_attention for stream in streams),
            "threshold": context.settings.post_norm_depth,
        },
    )
