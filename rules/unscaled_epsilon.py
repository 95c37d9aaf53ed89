"""NL505."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.diagnosing import diagnose, named
from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class UnscaledEpsilon(Rule):
    """The input of a norm is scaled down, and its epsilon is not.

    ## What it does

    Reports a norm that reads 2⁻ᵏ·t, an input scaled so that it fits half precision, with an epsilon
    of a usual value.

    ## Why is this bad?

    Norm(a·t, ε) is Norm(t, ε/a²): with a = 1/16 and ε = 1e-5 the norm works as if ε were 2.6e-3,
    and quiet rows come out too small. An error of 6 % was seen. With ε·a² it is exact.

    ## Example

    `Mul(t, 0.0625) → LayerNormalization(epsilon = 1e-5)` should have an epsilon of 3.9e-8.

    ## Fix safety

    There is no repair: whether the network was trained that way cannot be known.

    ## When not to follow it

    Where the scale was there in training.
    """

    code = "NL505"
    severity = Severity.INFO

    bad = (
        """
        scaled_by_a_sixteenth (float16[2,3,4] x) => (float16[2,3,4] y)
        <float16 part = {11264}, float[4] g = {1,2,3,4}> {
            scale = Cast<to = 10>(g)
            small = Mul(x, part)
            y = LayerNormalization<epsilon = 1e-5>(small, scale)
        }
        """,
    )
    good = (
        """
        epsilon_scaled_too (float16[2,3,4] x) => (float16[2,3,4] y)
        <float16 part = {11264}, float[4] g = {1,2,3,4}> {
            scale = Cast<to = 10>(g)
            small = Mul(x, part)
            y = LayerNormalization<epsilon = 3.90625e-8>(small, scale)
        }
        """,
        """
        scaled_up_as_embeddings_are (float[2,3,4] x) => (float[2,3,4] y)
        <float size = {2}, float[4] scale = {1,2,3,4}> {
            large = Mul(x, size)
            y = LayerNormalization<epsilon = 1e-5>(large, scale)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each norm of an input that is scaled by a negative power of two."""
        for norm, exponent, node in context.precision.rescaled():
            wanted = norm.epsilon * 4.0**-exponent
            yield diagnose(
                norm,
                f"the input of {named(norm)} is scaled by 2^-{exponent}, and its epsilon of "
                f"{norm.epsilon:.3g} is not: {wanted:.3g} would do the same as before",
                scaled_by=node.name or node.op,
                exponent=exponent,
                epsilon_wanted=wanted,
            )
