"""What can be made of a BatchNormalization that uses the statistics of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.digits import shortest
from normlint.rewrite.fold_weights import vector
from normlint.rule import Applicability, NewNode, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.context.batch_norms import BatchNormOp
    from normlint.graph import Node
    from normlint.rule import Operand


def as_instance_norm(op: BatchNormOp, context: Context) -> Rewrite | NotFixed:
    """Describe the InstanceNormalization that it is where the leading extent is 1.

    The statistics of a batch of one are those of each image. What the training form gives out
    besides must not be read.
    """
    node = op.node
    read = _read_statistics(node)
    if read is not None:
        return read
    shape = node.inputs[0].shape
    if shape is None or len(shape) < 3:
        return NotFixed(Reason.SHAPE_UNKNOWN, node.inputs[0], "its extents are not known")
    if shape[0] != 1:
        return NotFixed(
            Reason.BATCH_STATISTICS, node, "the leading extent is not 1, so the batch counts"
        )
    lacking = _unsupported(node, context)
    if lacking is not None:
        return lacking
    parameters = [_in_type(op, position, context) for position in (1, 2)]
    if any(isinstance(parameter, NotFixed) for parameter in parameters):
        return next(p for p in parameters if isinstance(p, NotFixed))
    operands = [p for p in parameters if not isinstance(p, NotFixed)]
    recipe = NewNode(
        "InstanceNormalization", (node.inputs[0], *operands), {"epsilon": op.epsilon}, node
    )
    return Rewrite(
        f"replace by InstanceNormalization(epsilon={shortest(op.epsilon)})",
        Applicability.SAFE,
        (Replace((node.y,), recipe),),
        (node,),
    )


def _unsupported(node: Node, context: Context) -> NotFixed | None:
    """Say what keeps InstanceNormalization from the element type."""
    dtype = node.inputs[0].dtype
    if dtype == TensorProto.DOUBLE:
        return NotFixed(Reason.TARGET, node, "onnxruntime has no InstanceNormalization of double")
    if dtype == TensorProto.BFLOAT16 and context.opset < 22:
        return NotFixed(Reason.OPSET, node, "InstanceNormalization of bfloat16 needs opset 22")
    return None


def on_running_statistics(op: BatchNormOp, *, fallback: NotFixed) -> Rewrite | NotFixed:
    """Describe the same on its running statistics; the fallback where those are of no use."""
    node = op.node
    if _read_statistics(node) is not None:
        return fallback
    if "mean" not in op.parameters or "variance" not in op.parameters:
        return NotFixed(Reason.BATCH_STATISTICS, node, "its running statistics are no constants")
    if op.is_untrained:
        return NotFixed(
            Reason.BATCH_STATISTICS, node, "its running statistics were never updated (0 and 1)"
        )
    attrs = {
        key: value for key, value in node.attrs.items() if key not in {"training_mode", "momentum"}
    }
    recipe = NewNode("BatchNormalization", tuple(node.inputs[:5]), attrs, node)
    return Rewrite(
        "use the running statistics",
        Applicability.UNSAFE,
        (Replace((node.y,), recipe),),
        (node,),
        approximate=True,
    )


def _read_statistics(node: Node) -> NotFixed | None:
    for tensor in node.outputs[1:]:
        if tensor.name and (tensor.consumers or tensor.is_output):
            return NotFixed(
                Reason.BATCH_STATISTICS, tensor, f"the new statistics are read ({tensor.name})"
            )
    return None


def _in_type(op: BatchNormOp, position: int, context: Context) -> Operand | NotFixed:
    """Give scale or bias in the type of what is normalised, as InstanceNormalization wants it."""
    tensor = op.node.inputs[position]
    dtype = op.node.inputs[0].dtype
    if tensor.dtype == dtype or not dtype:
        return tensor
    name = ("scale", "bias")[position - 1]
    if name not in op.parameters or not context.constants.is_constant(tensor):
        return NotFixed(Reason.TYPE_MISMATCH, tensor, f"its {name} has another element type")
    return vector(op.parameters[name], dtype, tensor.name)
