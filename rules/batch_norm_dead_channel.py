"""NL108."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.batch_norms import batch_norm_ops
from normlint.rule import Applicability, Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context

_MOST_NAMED = 8


class BatchNormDeadChannel(Rule):
    """A channel of a BatchNorm is a constant.

    ## What it does

    Reports channels whose scale is zero, and channels whose variance is far below ε and whose row
    of the weight in front is nothing even after the factor of the BatchNorm.

    ## Why is this bad?

    The channel takes part in every operation and never says anything: it could be pruned. A tiny
    variance alone proves nothing, for the factor may be large; so the folded row is what is judged.

    ## Example

    Rows of 1e-10 with a variance of 1e-14 and ε = 1e-3: the factor is 31.6, the folded row 3e-9.

    ## Fix safety

    Unsafe: the fold is made with zeros in those rows, so the channel is exactly β − μ·s. What it
    said was below what single precision keeps beside the other channels.

    ## When not to follow it

    Where channels are to be pruned by a tool of its own.

    ## References

    - [torchvision: a channel with a variance of 1e-14](https://github.com/pytorch/vision/issues/648)
    """

    code = "NL108"
    severity = Severity.INFO
    applicability = Applicability.UNSAFE

    bad = (
        """
        row_of_nothing (float[1,1,4,4] x) => (float[1,3,3,3] y)
        <float[3,1,2,2] w = {1,2,3,4,1e-10,1e-10,-1e-10,1e-10,-1,0.5,2,1}, float[3] scale = {1,1,1},
         float[3] bias = {0.5,1,2}, float[3] mean = {0.1,0,-0.3}, float[3] var = {0.5,1.9e-14,2}> {
            c = Conv(x, w)
            y = BatchNormalization<epsilon = 0.001>(c, scale, bias, mean, var)
        }
        """,
        """
        no_scale (float[1,3,4,4] x) => (float[1,3,4,4] y)
        <float[3] scale = {1,0,1}, float[3] bias = {0.5,1,2}, float[3] mean = {0.1,0,-0.3},
         float[3] var = {0.5,1,2}> {
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        small_variance_of_small_values (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,0.001,-0.002,0.001,0.003}, float[2] scale = {1,1},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,0}, float[2] var = {0.5,1e-9}> {
            c = Conv(x, w)
            y = BatchNormalization<epsilon = 0.00001>(c, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNorm with channels that are constant."""
        folds = {fold.node: fold for fold in context.folds.batch_norms}
        for op in batch_norm_ops(context):
            if op.is_training:
                continue
            dead = rewrite.fold_dead.dead_channels(op, folds.get(op.node))
            if dead is None:
                continue
            named = ", ".join(map(str, dead.channels[:_MOST_NAMED]))
            more = ", …" if len(dead.channels) > _MOST_NAMED else ""
            noun = "channel" if len(dead.channels) == 1 else "channels"
            verb = "is a constant" if len(dead.channels) == 1 else "are constants"
            yield Diagnostic(
                f"{noun} {named}{more} of a BatchNorm {verb}, whatever the input",
                op.node,
                (op.node,),
                {"channels": list(dead.channels), "of": len(op.parameters["scale"])},
                rewrite=dead.rewrite,
            )
