"""ACME101."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import Diagnostic, Kind, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint import Context


class L2Norm(Rule):
    """An L2 normalisation, which the accelerators of Acme do not run.

    ## Why is this bad?

    It falls back to the host, and every token crosses the bus twice.
    """

    code = "ACME101"
    severity = Severity.INFO
    bad = (
        """
        unit_length (float[2,8] x) => (float[2,8] y) {
            y = LpNormalization<axis = -1, p = 2>(x)
        }
        """,
    )
    good = (
        """
        other (float[2,8] x, float[8] scale) => (float[2,8] y) {
            y = LayerNormalization<axis = -1>(x, scale)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each L2 normalisation."""
        for norm in context.norms:
            if norm.kind is Kind.L2:
                yield Diagnostic("an L2 normalisation falls back to the host", norm.anchor)
