"""NL302."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.neighbours import feature_axis, is_batch_norm, remark
from normlint.rule import Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.steps import Step
    from normlint.normalization import Normalization


class BatchNormInSequenceModel(Rule):
    """A BatchNorm stands on the tokens of a transformer or recurrent model.

    ## What it does

    Reports a BatchNormalization on a sequence that attention, an LSTM, a GRU or an RNN reads or has
    written. It is an error where the statistics are those of the batch, where the model makes one
    token after the other (a key-value cache, or causal attention over looked-up tokens), and where
    the statistics are kept for each position instead of each feature: then the axes are mixed up
    and the length is pinned.

    ## Why is this bad?

    Features of text and of other sequences vary much from batch to batch, so that running
    statistics describe no batch well, and what was trained is not what runs. Padding makes it
    worse: a mask keeps padded tokens out of the attention, and not out of the statistics that were
    gathered in training. With batch statistics the answer for one sequence depends on its
    neighbours, and in generation on tokens that a cached run does not see. LayerNorm and RMSNorm
    take their statistics from one token and know none of this.

    With running statistics the operator is a scale and a shift for each channel: harmless to run,
    and foldable into a linear layer next to it (NL101, NL102).

    ## Example

    ```
    x = BatchNorm(x + attention(x))      reported
    y = LSTM(BatchNorm(embedded))        reported
    x = x + pointwise(swish(BatchNorm(depthwise(x))))    Conformer: not reported
    ```

    ## When not to follow it

    BatchNorm behind or in front of a convolution is usual and not reported: the convolution module
    of a Conformer, wav2letter, QuartzNet, temporal convolutional networks, the stems of hybrid
    networks; `normlint check -v` names what is passed over. Elsewhere, where validation shows that
    running statistics serve. LayerNorm in its place is another function, to be trained anew, so
    there is no repair.

    ## References

    - Shen et al. 2020, PowerNorm: Rethinking Batch Normalization in Transformers
    - Cooijmans et al. 2016, Recurrent Batch Normalization
    - [torchaudio 4205](https://github.com/pytorch/audio/issues/4205): padding and BatchNorm
    """

    code = "NL302"
    severity = Severity.WARNING

    bad = (
        """
        in_front_of_a_recurrence (float[T,1,4] x) => (float[T,1,1,4] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] ones = {1,2,1,1},
         float[4] zeros = {0,1,0,0},
         float[1,4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
            f = MatMul(x, a)
            t = Transpose<perm = [1,2,0]>(f)
            n = BatchNormalization(t, ones, zeros, zeros, ones)
            s = Transpose<perm = [2,0,1]>(n)
            y, last = RNN<hidden_size = 4>(s, w, w)
        }
        """,
        """
        on_the_wrong_axis (float[1,4,4] x) => (float[4,1,1,4] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] ones = {1,2,1,1},
         float[4] zeros = {0,1,0,0},
         float[1,4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
            f = MatMul(x, a)
            n = BatchNormalization(f, ones, zeros, zeros, ones)
            s = Transpose<perm = [1,0,2]>(n)
            y, last = RNN<hidden_size = 4>(s, w, w)
        }
        """,
    )
    good = (
        """
        behind_a_convolution (float[1,4,T] x) => (float[T,1,1,4] y)
        <float[4,1,3] k = {1,0,1,1,0,1,1,0,1,1,0,1}, float[4] ones = {1,2,1,1},
         float[4] zeros = {0,1,0,0},
         float[1,4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
            f = Conv<group = 4, pads = [1,1]>(x, k)
            n = BatchNormalization(f, ones, zeros, zeros, ones)
            a = Relu(n)
            s = Transpose<perm = [2,0,1]>(a)
            y, last = RNN<hidden_size = 4>(s, w, w)
        }
        """,
        """
        no_sequence (float[B,4] x) => (float[B,4] y)
        <float[4,4] a = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, float[4] ones = {1,2,1,1},
         float[4] zeros = {0,1,0,0}> {
            f = MatMul(x, a)
            n = BatchNormalization(f, ones, zeros, zeros, ones)
            y = Relu(n)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each BatchNorm on tokens."""
        norms = [norm for norm in context.norms if is_batch_norm(norm)]
        if not norms or not context.sequence.is_sequence:
            return
        for norm in norms:
            if not remark(norm, context):
                yield _diagnostic(norm, context.structure.step_of[norm], context)


def _diagnostic(norm: Normalization, step: Step, context: Context) -> Diagnostic:
    evidence = context.sequence
    axis = feature_axis(step)
    rank = norm.x.rank
    on_tokens = axis is not None and rank is not None and rank > 2 and axis != 1
    severity = Severity.ERROR
    if norm.training:
        what = "with the statistics of the batch, so that a sequence's answer depends on the others"
    elif evidence.is_autoregressive:
        what = "in a model that makes one token after the other"
    elif on_tokens:
        what = "with statistics for each position instead of each feature, which pins the length"
    else:
        severity = Severity.WARNING
        what = "whose running statistics are not those of the sequences and the padding it will see"
    return Diagnostic(
        f"BatchNorm on the tokens of a sequence model, {what}",
        node=norm.anchor,
        nodes=norm.nodes,
        severity=severity,
        evidence={
            **evidence.described(),
            "batch_statistics": norm.training,
            "autoregressive": evidence.is_autoregressive,
            "token_axis": on_tokens,
            "placement": str(context.placement(norm).word),
        },
    )
