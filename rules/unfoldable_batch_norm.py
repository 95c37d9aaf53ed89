"""NL111."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Applicability, Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.rewrite.fold import Fold


class UnfoldableBatchNorm(Rule):
    """A BatchNorm stays in the graph, and this is why.

    ## What it does

    Names for each BatchNorm on running statistics that no neighbour can take up what stands in the
    way: the reason, and the node or tensor that causes it. One in training mode is reported as
    NL106 instead; one whose statistics the graph computes from its input stays as well
    (`batch-statistics`).

    ## Why is this bad?

    It need not be. A BatchNorm in front of an activation (pre-activation networks) costs a pass
    over the activation and nothing else. Some of the reasons can be removed where the model is
    exported:

    - `other-reader`, `graph-output`: something else needs the value in between
    - `overridable-input`: export without the initializers among the inputs, or `--unsafe-fixes`
    - `weights-not-constant`: a parameter is computed, or is a true input
    - `padding`: a convolution behind it pads with zeros, which the shift does not reach
      (`bias-maps = true` folds it at the cost of a constant image)
    - `channel-axis-moved`: the channels are not those that the weights make
    - `quantized-between`: fold before quantising
    - `shape-unknown`: run shape inference, or export with shapes
    - `type-mismatch`, `would-overflow`: the numbers do not fit the type of the weights

    ## Fix safety

    There is a repair for `overridable-input`: unsafe, since a caller may rely on overriding the
    initializer. Afterwards that has no effect any more.

    With `--targets tflite` a BatchNorm of images that stays becomes a depthwise Conv, which is the
    same function and safe: TFLite has no BatchNormalization, and its converters make a Mul and an
    Add of one, two passes that are each quantised with a range of their own. For other targets a
    BatchNormalization is one pass, and stays.

    ## When not to follow it

    It is information.

    ## References

    - TFLite has no operator for it: [NNEF-Tools](https://github.com/KhronosGroup/NNEF-Tools/issues/108),
      and makes [Mul and Add](https://github.com/Samsung/ONE/issues/1671) of it
    - A [depthwise convolution](https://github.com/pytorch/executorch/issues/11586) instead
    """

    code = "NL111"
    severity = Severity.INFO

    bad = (
        """
        activation_between (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w)
            r = Relu(c)
            y = BatchNormalization(r, scale, bias, mean, var)
        }
        """,
        """
        scale_from_outside (float[1,1,4,4] x, float[2] scale) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        zero_padding_behind (float[1,2,4,4] x) => (float[1,1,5,5] y)
        <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            y = Conv<pads = [1,1,1,1]>(n, w)
        }
        """,
        (
            """
            alone_for_tflite (float[1,2,4,4] x) => (float[1,2,4,4] y)
            <float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
             float[2] var = {0.5,2}> {
                r = Relu(x)
                n = BatchNormalization(r, scale, bias, mean, var)
                y = Sigmoid(n)
            }
            """,
            {"targets": frozenset({"tflite"})},
        ),
    )
    good = (
        """
        can_be_folded (float[1,1,4,4] x) => (float[1,2,3,3] y)
        <float[2,1,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            c = Conv(x, w)
            y = BatchNormalization(c, scale, bias, mean, var)
        }
        """,
        """
        statistics_of_the_batch (float[4,1,4,4] x) => (float[4,1,4,4] y)
        <float[1] scale = {1.5}, float[1] bias = {0.5}, float[1] mean = {0.1},
         float[1] var = {0.5}> {
            y, m, v = BatchNormalization<training_mode = 1>(x, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNorm that stays, with the reason."""
        for fold in context.folds.batch_norms:
            if fold.refusal is None:
                continue
            safe = fold.rewrite is not None and fold.rewrite.applicability is Applicability.SAFE
            made = fold.rewrite is not None and (safe or context.settings.unsafe_fixes)
            yield Diagnostic(
                f"a BatchNorm stays ({fold.refusal.reason.value}): {fold.refusal.detail}"
                f"{_as_convolution(fold) if safe else ''}",
                fold.node,
                (fold.node,),
                fold.evidence,
                rewrite=fold.rewrite,
                not_fixed=None if made else fold.refusal,
                output=fold.node.y,
            )


def _as_convolution(fold: Fold) -> str:
    targets = " and ".join(fold.evidence["targets"])
    return f"; {targets} has no BatchNormalization, so it can be a depthwise Conv"
