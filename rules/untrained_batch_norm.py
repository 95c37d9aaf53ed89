"""NL109."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.batch_norms import batch_norm_ops
from normlint.rule import Diagnostic, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.batch_norms import BatchNormOp


class UntrainedBatchNorm(Rule):
    """A BatchNorm has the parameters that a layer starts with.

    ## What it does

    Reports a BatchNormalization whose mean is 0, variance 1, scale 1 and bias 0 in every channel.

    ## Why is this bad?

    Either its statistics were never updated (trained with the layer frozen, exported before
    training, weights not loaded), and then the model gives other answers than the one that was
    trained; or they were merged into the layer in front before the export, and then it is work for
    nothing.

    ## Example

    A checkpoint whose keys did not match was loaded without `strict`: all statistics are 0 and 1.

    ## When not to follow it

    Where another tool merged the statistics and left the layer in place.
    """

    code = "NL109"

    bad = (
        """
        as_initialised (float[1,3,2,2] x) => (float[1,3,2,2] y)
        <float[3] scale = {1,1,1}, float[3] bias = {0,0,0}, float[3] mean = {0,0,0},
         float[3] var = {1,1,1}> {
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        one_mean_moved (float[1,3,2,2] x) => (float[1,3,2,2] y)
        <float[3] scale = {1,1,1}, float[3] bias = {0,0,0}, float[3] mean = {0,0.1,0},
         float[3] var = {1,1,1}> {
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNormalization with initial statistics, scale and bias."""
        for op in batch_norm_ops(context):
            if not op.is_training and op.is_untrained and _is_plain(op):
                yield Diagnostic(
                    "a BatchNorm has mean 0, variance 1, scale 1 and bias 0: its statistics were "
                    "never updated, or are merged already",
                    op.node,
                    (op.node,),
                    {"channels": len(op.parameters["mean"])},
                )


def _is_plain(op: BatchNormOp) -> bool:
    scale, bias = op.parameters.get("scale"), op.parameters.get("bias")
    if scale is None or bias is None:
        return False
    return bool((scale == 1).all() and (bias == 0).all())
