"""NL211."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.diagnosing import diagnose, over
from normlint.normalization import Kind
from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rule import Diagnostic


class ConstantNorm(Rule):
    """A normalisation over a single element: its output does not depend on its input.

    ## What it does

    Reports a normalisation whose statistics are taken over axes of extent 1, a GroupNorm of groups
    of one element, an InstanceNorm of an image of one pixel.

    ## Why is this bad?

    The one value is its own mean, so the difference is zero and the output is the bias. Without the
    mean (RMSNorm) all that is left of the input is its sign. Everything in front of it is computed
    for nothing. Mostly the wrong axis is normalised, or global pooling went before.

    ## Example

    `LayerNormalization(axis=-1)` of a tensor [N, 64, 1].

    ## What to do

    Look for the axis that was meant. There is no repair: the model computes what it says.

    ## When not to follow it

    Where the extent of 1 is an example's and will be another in use: give it a symbolic extent.

    ## References

    - [InstanceNorm of one pixel](https://github.com/pytorch/pytorch/issues/45687)
    """

    code = "NL211"
    severity = Severity.ERROR

    bad = (
        """
        last_axis_of_one (float[N,8,1] x) => (float[N,8,1] y)
        <float[1] scale = {2}> {
            y = LayerNormalization(x, scale)
        }
        """,
        """
        one_pixel (float[N,3,1,1] x) => (float[N,3,1,1] y)
        <float[3] scale = {1,2,3}, float[3] bias = {1,2,3}> {
            y = InstanceNormalization(x, scale, bias)
        }
        """,
    )
    good = (
        """
        several_elements (float[N,8,2] x) => (float[N,8,2] y)
        <float[2] scale = {2,1}> {
            y = LayerNormalization(x, scale)
        }
        """,
        """
        open_extent (float[N,3,H,W] x) => (float[N,3,H,W] y)
        <float[3] scale = {1,2,3}, float[3] bias = {1,2,3}> {
            y = InstanceNormalization(x, scale, bias)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each normalisation over one element."""
        for norm in context.norms:
            if norm.kind is Kind.L2 or norm.elements != 1:
                continue
            effect = (
                "the output does not depend on the input"
                if norm.centred
                else "of the input only the sign is left"
            )
            where = "each group" if norm.kind is Kind.GROUP else over(norm)
            yield diagnose(norm, f"a {norm.kind} over {where}, which is one element: {effect}")
