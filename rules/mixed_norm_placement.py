"""NL304."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from normlint.context.places import Place
from normlint.rule import Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.streams import Stream

    Pattern = frozenset[Place]

_MOST_NAMED = 8


class MixedNormPlacement(Rule):
    """Layers of one residual stream have their norms in different places.

    ## What it does

    Compares the layers of each stream: whether their norms stand at the start of the branches
    (pre), on the sums (post), at the end of the branches (res-post), at both ends (sandwich), and
    so on. Reports a stream in which some layers differ from the others, and names them.

    ## Why is this bad?

    It is seldom meant. A layer that was loaded from another checkpoint, a norm that an optimiser
    folded or a conversion lost, a stack that was put together from two models: they show in the
    structure first. Where it is meant (Mix-LN has Post-LN in the first layers and Pre-LN behind
    them), it is worth knowing: what is true of one part of the stack is not of the other.

    ## Example

    ```
    layer 0   x + f(norm(x))
    layer 1   x + f(norm(x))
    layer 2   norm(x + f(x))    reported
    ```

    ## When not to follow it

    Where the architecture is like that. Moving a norm changes the function, so there is no repair.

    ## References

    - Li et al. 2024, Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN
    """

    code = "NL304"
    severity = Severity.INFO

    bad = (
        """
        third_layer_differs (float[B,T,4] x) => (float[B,T,4] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] scale = {1,1,1,1}> {
            n = LayerNormalization(x, scale)
            f = MatMul(n, a)
            r = Add(x, f)
            m = LayerNormalization(r, scale)
            g = MatMul(m, a)
            s = Add(r, g)
            h = MatMul(s, a)
            k = LayerNormalization(h, scale)
            t = Add(s, k)
            y = LayerNormalization(t, scale)
        }
        """,
    )
    good = (
        """
        all_alike (float[B,T,4] x) => (float[B,T,4] y)
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
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each stream whose layers differ."""
        for stream in context.streams:
            patterns = _patterns(stream)
            if len(set(patterns.values())) > 1:
                yield _diagnostic(stream, patterns)


def _patterns(stream: Stream) -> dict[int, Pattern]:
    """Give the placements of each layer that has norms."""
    words: dict[int, set[Place]] = {}
    for layer, word in zip(stream.layer_of, stream.words, strict=True):
        if word not in {Place.NONE, Place.BRANCH}:
            words.setdefault(layer, set()).add(word)
    return {layer: frozenset(places) for layer, places in words.items()}


def _diagnostic(stream: Stream, patterns: dict[int, Pattern]) -> Diagnostic:
    usual = Counter(patterns.values()).most_common(1)[0][0]
    others = [layer for layer, pattern in patterns.items() if pattern != usual]
    named = ", ".join(f"{layer} ({_words(patterns[layer])})" for layer in others[:_MOST_NAMED])
    if len(others) > _MOST_NAMED:
        named += f" and {len(others) - _MOST_NAMED} more"
    first = stream.layer_of.index(others[0])
    return Diagnostic(
        f"the norms of a stream of {stream.depth} layers stand in different places: "
        f"{_words(usual)} in most layers, otherwise in layer {named}",
        node=stream.adds[first].step.node,
        evidence={
            "stream": stream.index,
            "depth": stream.depth,
            "usual": sorted(usual),
            "layers": {str(layer): sorted(patterns[layer]) for layer in others},
        },
    )


def _words(pattern: Pattern) -> str:
    return " and ".join(sorted(pattern))
