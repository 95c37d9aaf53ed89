"""NL107."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint.context.batch_norms import PARAMETERS, batch_norm_ops
from normlint.rule import Diagnostic, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.batch_norms import BatchNormOp

_MOST_NAMED = 8


class BatchNormInvalidStatistics(Rule):
    """A BatchNorm's parameters give NaN or Inf, or do not fit its channels.

    ## What it does

    Reports a BatchNormalization with a variance below −ε (the root of a negative number), with NaN
    or Inf in a parameter, or with parameters of the wrong length. Where it is channel 0 alone in
    every layer of the model, it says so: then the parameters were most likely shifted when they
    were imported.

    ## Why is this bad?

    The channel is NaN for every input, and soon the whole activation is. Neither the checker of
    ONNX nor a runtime says anything.

    ## Example

    `variance = [1, −0.5, 2]` with ε = 1e-5 makes channel 1 NaN.

    ## Fix safety

    There is no repair: clamping a variance hides that the numbers are not those of the trained
    model. Export or convert it again.

    ## References

    - [TensorFlow: negative moving variance](https://github.com/tensorflow/tensorflow/issues/18334)
    """

    code = "NL107"
    severity = Severity.ERROR

    bad = (
        """
        negative_variance (float[1,3,2,2] x) => (float[1,3,2,2] y)
        <float[3] scale = {1,1,1}, float[3] bias = {0,0,0}, float[3] mean = {0,0,0},
         float[3] var = {1,-0.5,2}> {
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
        """
        too_few_means (float[1,3,2,2] x) => (float[1,3,2,2] y)
        <float[3] scale = {1,1,1}, float[3] bias = {0,0,0}, float[2] mean = {0,0},
         float[3] var = {1,0.5,2}> {
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        within_epsilon (float[1,3,2,2] x) => (float[1,3,2,2] y)
        <float[3] scale = {1,1,1}, float[3] bias = {0,0,0}, float[3] mean = {0,0,0},
         float[3] var = {1,-0.000001,0}> {
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNormalization whose parameters cannot be right."""
        ops = [op for op in batch_norm_ops(context) if not op.is_training and op.parameters]
        channels = [_bad_channels(op) for op in ops]
        misaligned = len(ops) > 1 and all(bad == [0] for bad in channels)
        for op, bad in zip(ops, channels, strict=True):
            problem = _wrong_length(op) or _problem(op, bad)
            if not problem:
                continue
            if misaligned:
                problem += "; channel 0 in every layer points to a misaligned import"
            yield Diagnostic(
                problem,
                op.node,
                (op.node,),
                {"channels": bad, "epsilon": op.epsilon, "misaligned": misaligned},
            )


def _bad_channels(op: BatchNormOp) -> list[int]:
    bad: set[int] = set()
    for name, values in op.parameters.items():
        wrong = ~np.isfinite(values)
        if name == "variance":
            wrong |= values + op.epsilon <= 0
        bad.update(np.flatnonzero(wrong).tolist())
    return sorted(bad)


def _wrong_length(op: BatchNormOp) -> str:
    lengths = {name: len(values) for name, values in op.parameters.items()}
    if not op.node.attrs.get("spatial", 1):
        return ""
    expected = op.channels if op.channels is not None else next(iter(lengths.values()))
    wrong = [f"{name} has {length}" for name, length in lengths.items() if length != expected]
    if not wrong:
        return ""
    return f"a BatchNorm of {expected} channels has parameters of another length: {wrong[0]}"


def _problem(op: BatchNormOp, bad: list[int]) -> str:
    if not bad:
        return ""
    named = ", ".join(map(str, bad[:_MOST_NAMED])) + (", …" if len(bad) > _MOST_NAMED else "")
    noun = "channel" if len(bad) == 1 else "channels"
    cause = next(
        (
            f"the {name} is not finite"
            for name in PARAMETERS
            if name in op.parameters and not np.isfinite(op.parameters[name]).all()
        ),
        "the variance is negative beyond epsilon",
    )
    return f"{noun} {named} of a BatchNorm cannot be computed: {cause}"
