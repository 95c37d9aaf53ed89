"""NL102."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Applicability, Diagnostic, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context


class BatchNormBeforeLinear(Rule):
    """A BatchNorm stands in front of linear operators that could do its work.

    ## What it does

    Reports a `BatchNormalization` on running statistics all of whose readers are a Conv, Gemm,
    MatMul, LSTM, GRU or RNN that can take it up exactly, also through layout operators, pooling
    and Pad. And one that is added to a convolution of the same input, as in a block of RepVGG that
    was not put together after training: the tap of the kernel that reads the place which it writes
    takes it up.

    ## Why is this bad?

    It reads and writes the whole activation for a factor and a shift that the weights behind it
    could hold. The tools that fold BatchNorms look backward only and leave these.

    ## Example

    `BatchNormalization`, `MatMul(·, W)` becomes `MatMul(x, diag(s)·W)`, `Add(·, Wᵀt)`.

    ## Fix safety

    Safe, for it is made only where it is exact. A convolution that pads with zeros does not see
    the shift at its borders: then the BatchNorm stays (NL111, reason `padding`), unless the shift
    is zero or one value put in by a Pad stands for the shift of every channel. With
    `bias-maps = true` it goes even so, where the extents of the image are fixed: what the
    convolution makes of the shift is a constant image, which is added behind it. That is exact, and
    costs the memory of one image of the convolution's output; the finding says how much.

    ## When not to follow it

    Where the file is trained further.

    ## References

    - [Jacob et al. 2018: batch normalisation folding](https://arxiv.org/abs/1712.05877)
    """

    code = "NL102"
    applicability = Applicability.SAFE

    bad = (
        """
        before_unpadded_convolution (float[1,2,4,4] x) => (float[1,1,3,3] y)
        <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            y = Conv(n, w)
        }
        """,
        """
        before_product (float[N,2] x) => (float[N,3] y)
        <float[2,3] w = {1,2,3,4,-1,0.5}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            y = MatMul(n, w)
        }
        """,
        """
        each_channel_repeated_over_its_pixels (float[N,2,1,2] x) => (float[N,1] y)
        <float[4,1] w = {1,2,3,4}, float[1] b = {1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            flat = Flatten(n)
            y = Gemm(flat, w, b)
        }
        """,
        """
        same_padding_for_every_channel (float[1,2,4,4] x) => (float[1,1,5,5] y)
        <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {2,-4},
         float[2] bias = {0,0}, float[2] mean = {0.5,0.5}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            y = Conv<pads = [1,1,1,1]>(n, w)
        }
        """,
        """
        beside_a_convolution (float[1,2,4,4] x) => (float[1,2,4,4] y)
        <float[2,1,3,1] w = {1,2,3,4,-1,0.5}, float[2] scale = {1.5,-2}, float[2] bias = {0.5,1},
         float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            c = Conv<pads = [1,0,1,0], group = 2>(x, w)
            y = Add(n, c)
        }
        """,
        (
            """
            a_constant_image_for_the_borders (float[N,2,4,4] x) => (float[N,1,5,5] y)
            <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
             float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
                n = BatchNormalization(x, scale, bias, mean, var)
                y = Conv<pads = [1,1,1,1]>(n, w)
            }
            """,
            {"bias_maps": True},
        ),
    )
    good = (
        """
        before_padded_convolution (float[1,2,4,4] x) => (float[1,1,5,5] y)
        <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            y = Conv<pads = [1,1,1,1]>(n, w)
        }
        """,
        """
        maximum_under_a_negative_scale (float[1,2,4,4] x) => (float[1,1,1,1] y)
        <float[1,2,2,2] w = {1,2,3,4,-1,0.5,2,1}, float[2] scale = {1.5,-2},
         float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3}, float[2] var = {0.5,2}> {
            n = BatchNormalization(x, scale, bias, mean, var)
            p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(n)
            y = Conv(p, w)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNorm that can go forward."""
        for fold in context.folds.batch_norms:
            if fold.direction is None or fold.is_backward or fold.refusal:
                continue
            yield Diagnostic(
                f"a BatchNorm can go into the {fold.into} {fold.where} it{fold.cost}",
                fold.node,
                (*fold.nodes, *fold.linear),
                fold.evidence,
                rewrite=fold.rewrite,
                output=fold.node.y,
            )
