"""NL106."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.batch_norms import batch_norm_ops
from normlint.diagnosing import diagnose, type_name
from normlint.normalization import Form, Kind
from normlint.rule import (
    Applicability,
    Diagnostic,
    NotFixed,
    Reason,
    Rewrite,
    Rule,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.batch_norms import BatchNormOp
    from normlint.normalization import Normalization


_MESSAGE = "a BatchNorm uses the statistics of the batch, so each answer depends on the others"


class BatchNormBatchStatistics(Rule):
    """A BatchNorm uses the statistics of the batch at inference.

    ## What it does

    Reports a BatchNormalization in training mode: `training_mode = 1`, or before opset 14 the
    form with more than one output.

    ## Why is this bad?

    Each answer depends on what else is in the batch, and a batch of one normalises each image by
    itself. In the framework the layer used its running statistics, so the exported model gives
    other answers than the one that was tested.

    ## Example

    Export after `model.eval()`, or with `training=False`.

    ## Fix safety

    Where the leading extent is 1, it is an InstanceNorm (or a LayerNorm) in disguise, as some
    exporters write them on purpose: that is made of it, safe. Else running statistics can be used
    instead, which changes the function: unsafe, and never where they were not trained or something
    reads the new ones.

    ## When not to follow it

    Where a model is to be adapted to its input at test time.

    ## References

    - [PyTorch: instance norm exported as BatchNorm](https://github.com/pytorch/pytorch/issues/75252)
    - [ONNX Runtime: three outputs in training mode](https://github.com/microsoft/onnxruntime/issues/16867)
    """

    code = "NL106"
    severity = Severity.ERROR
    applicability = Applicability.SAFE

    bad = (
        """
        instance_norm_in_disguise (float[2,3,4,4] x) => (float[2,3,4,4] y)
        <int64[4] one = {1,6,4,4}, int64[4] back = {2,3,4,4}, float[6] scale = {1,2,3,1,2,3},
         float[6] bias = {0,1,-1,0,1,-1}, float[6] mean = {0,0,0,0,0,0},
         float[6] var = {1,1,1,1,1,1}> {
            r = Reshape(x, one)
            n, m, v = BatchNormalization<training_mode = 1>(r, scale, bias, mean, var)
            y = Reshape(n, back)
        }
        """,
        """
        trained_statistics (float[4,2,3,3] x) => (float[4,2,3,3] y)
        <float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            y, m, v = BatchNormalization<training_mode = 1>(x, scale, bias, mean, var)
        }
        """,
        """
        statistics_are_read (float[1,2,3,3] x) => (float[1,2,3,3] y, float[2] m)
        <float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            y, m, v = BatchNormalization<training_mode = 1>(x, scale, bias, mean, var)
        }
        """,
        """
        spelled_out (float[4,2,3,3] x) => (float[4,2,3,3] y)
        <float epsilon = {1e-5}, float[2,1,1] scale = {1.5,-2}> {
            mean = ReduceMean<axes = [0, 2, 3]>(x)
            centred = Sub(x, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [0, 2, 3]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            normal = Div(centred, root)
            y = Mul(normal, scale)
        }
        """,
    )
    good = (
        """
        running_statistics (float[4,2,3,3] x) => (float[4,2,3,3] y)
        <float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            y = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNormalization in training form, and each BatchNorm spelled out so."""
        for op in batch_norm_ops(context):
            if op.is_training:
                yield _diagnostic(op, context)
        for norm in context.norms:
            if norm.kind is Kind.BATCH and norm.form is Form.DECOMPOSED and _is_of_many(norm):
                detail = "it is spelled out, and has no running statistics"
                yield diagnose(
                    norm, _MESSAGE, NotFixed(Reason.BATCH_STATISTICS, norm.anchor, detail)
                )


def _is_of_many(norm: Normalization) -> bool:
    """Whether statistics are taken over a batch that may have more than one element."""
    shape = norm.x.shape
    return norm.training and shape is not None and shape[0] != 1


def _diagnostic(op: BatchNormOp, context: Context) -> Diagnostic:
    node = op.node
    disguised = _in_disguise(op, context)
    outcome: Rewrite | NotFixed
    if disguised is not None:
        outcome = rewrite.norm_ops.layer_norm(context, disguised)
        message = (
            f"a BatchNorm with the statistics of a batch of one is a {disguised.kind} in disguise"
        )
    else:
        outcome = rewrite.fold_training.as_instance_norm(op, context)
        if isinstance(outcome, NotFixed):
            outcome = rewrite.fold_training.on_running_statistics(op, fallback=outcome)
        message = _MESSAGE
    return Diagnostic(
        message,
        node,
        (node,),
        {"epsilon": op.epsilon, "type": type_name(node.inputs[0].dtype)},
        rewrite=outcome if isinstance(outcome, Rewrite) else None,
        not_fixed=outcome if isinstance(outcome, NotFixed) else None,
    )


def _in_disguise(op: BatchNormOp, context: Context) -> Normalization | None:
    """Give the LayerNorm that it is a part of."""
    return next((n for n in context.norms if n.kind is Kind.LAYER and op.node in n.nodes), None)
