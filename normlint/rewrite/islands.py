"""Computing a norm in float within a model of half precision, between Casts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from normlint.graph import FLOATS
from normlint.normalization import Kind
from normlint.recognise.parameter import static
from normlint.rewrite.norm_ops import group_norm, instance_norm, layer_norm, rms_norm
from normlint.rule import Applicability, Computed, NewNode, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.context import Context
    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Operand

    Array = np.ndarray[Any, Any]
    Maker = Callable[[Context, Normalization], Rewrite | NotFixed]

_NARROW = FLOATS - {TensorProto.DOUBLE}
_CASTS = frozenset(("Cast", "CastLike"))
FUSED: dict[Kind, Maker] = {
    Kind.LAYER: layer_norm,
    Kind.RMS: rms_norm,
    Kind.INSTANCE: instance_norm,
    Kind.GROUP: group_norm,
}
"""What puts one operator in the place of a spelled-out norm."""


def float_statistics(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Compute the statistics of a norm in float: by an operator that does, else in an island."""
    make = FUSED.get(norm.kind)
    if make is not None and not norm.is_op:
        fused = make(context, norm)
        if isinstance(fused, Rewrite) and _is_to_prefer(fused, norm):
            return fused
    if norm.is_op and "stash_type" in norm.anchor.attrs and not _statistics_are_read(norm.anchor):
        return _stashed_in_float(norm)
    return island(context, norm)


def _statistics_are_read(node: Node) -> bool:
    return any(tensor.consumers or tensor.is_output for tensor in node.outputs[1:])


def _stashed_in_float(norm: Normalization) -> Rewrite:
    """Let an operator that says in which type its statistics are computed say float."""
    node = norm.anchor
    new = NewNode(node.op, tuple(node.inputs), _in_float(node), like=node, domain=node.domain or "")
    return Rewrite(
        "compute the statistics in float (stash_type 1)",
        Applicability.SAFE,
        (Replace((norm.y,), new),),
        norm.nodes,
    )


def _in_float(node: Node) -> dict[str, Any]:
    """Give the attributes of a node whose statistics are to be float."""
    attrs = dict(node.attrs)
    if "stash_type" in attrs:
        attrs["stash_type"] = int(TensorProto.FLOAT)
    return attrs


def _is_to_prefer(fused: Rewrite, norm: Normalization) -> bool:
    """Whether an operator serves better than an island: not between Transposes, nor in half."""
    between_transposes = fused.applicability is not Applicability.SAFE and not norm.one_pass
    return not between_transposes and not _is_half_instance(fused)


def _is_half_instance(rewrite: Rewrite) -> bool:
    """Whether the operator that takes its place leaves the type of its statistics open."""
    edit = rewrite.edits[0]
    if not isinstance(edit, Replace):
        return False
    node: Operand = edit.by
    while isinstance(node, NewNode) and node.op != "InstanceNormalization":
        node = node.inputs[0] if node.inputs else None
    return isinstance(node, NewNode) and not _is_cast_to_float(node.inputs[0])


def _is_cast_to_float(operand: Operand) -> bool:
    return isinstance(operand, NewNode) and operand.attrs.get("to") == TensorProto.FLOAT


def island(context: Context, norm: Normalization, more_epsilon: float = 0.0) -> Rewrite | NotFixed:
    """Repeat the nodes of a norm up to its quotient in float, between Casts.

    `more_epsilon` is added to what the root is taken of.
    """
    end = _end(norm)
    builder = _Island(norm, end, context.constants, more_epsilon)
    try:
        made = builder.build()
    except _Stuck as stuck:
        return stuck.reason
    dtype = end.dtype or norm.dtype
    return Rewrite(
        "compute it in float, between Casts",
        Applicability.UNSAFE if more_epsilon else Applicability.SAFE,
        (Replace((end,), NewNode("Cast", (made,), {"to": dtype}, like=norm.anchor)),),
        norm.nodes,
        approximate=bool(more_epsilon),
    )


class _Stuck(Exception):  # noqa: N818 - it is an answer and no error
    def __init__(self, reason: NotFixed) -> None:
        super().__init__(reason.detail)
        self.reason = reason


class _Island:
    """The nodes of a norm, again, in float."""

    def __init__(
        self, norm: Normalization, end: Tensor, constants: Constants, more_epsilon: float
    ) -> None:
        self.norm = norm
        self.end = end
        self.constants = constants
        self.more_epsilon = more_epsilon
        self.made: dict[Tensor, Operand] = {}
        self.own = {tensor for node in norm.nodes for tensor in node.outputs}

    def build(self) -> Operand:
        """Give what takes the place of the end. Raises _Stuck."""
        for node in self.norm.nodes:
            if node.op in _CASTS and node.y.is_float:
                self.made[node.y] = self.operand(node.inputs[0], node)
                continue
            inputs = [self.operand(tensor, node) for tensor in node.inputs]
            if self.more_epsilon and node is self.norm.steps.get("root"):
                inputs[0] = self.raised(inputs[0], node)
            attrs = _in_float(node)
            new = NewNode(node.op, tuple(inputs), attrs, like=node, domain=node.domain or "")
            self.made[node.y] = new
            if node.y is self.end:
                break
        return self.made[self.end]

    def raised(self, operand: Operand, node: Node) -> NewNode:
        """Add to what the root is taken of."""
        more = self.more_epsilon
        name = f"{self.norm.y.name}_epsilon"
        constant = Computed((), TensorProto.FLOAT, lambda: np.asarray(more), name)
        return NewNode("Add", (operand, constant), like=node)

    def operand(self, tensor: Tensor, node: Node) -> Operand:
        """Give an input in float: made here, a constant, or cast. Raises _Stuck."""
        if not tensor.name:
            return None
        if tensor in self.made:
            return self.made[tensor]
        if tensor in self.own:
            raise _Stuck(NotFixed(Reason.TYPE_MISMATCH, node, f"{node.op} has several results"))
        if tensor.dtype == TensorProto.FLOAT or not tensor.is_float:
            return tensor
        if self.constants.is_constant(tensor):
            self.made[tensor] = self.constant(tensor)
        else:
            to = {"to": int(TensorProto.FLOAT)}
            self.made[tensor] = NewNode("Cast", (tensor,), to, like=self.norm.anchor)
        return self.made[tensor]

    def constant(self, tensor: Tensor) -> Computed:
        """Give a constant in float."""
        shape = static(tensor.shape)
        if shape is None:
            shape = tuple(self.constants.values(tensor).shape)

        def values() -> Array:
            return self.constants.values(tensor).astype(np.float64).reshape(shape)

        return Computed(shape, TensorProto.FLOAT, values, tensor.name)


def _end(norm: Normalization) -> Tensor:
    """Give the value from which on half precision will do: the quotient, if all goes through it."""
    quotient = norm.steps.get("quotient")
    if quotient is None or norm.is_op or quotient.y.is_output:
        return norm.y
    before = _ancestors(quotient, norm.nodes)
    own = {tensor for node in norm.nodes for tensor in node.outputs}
    for node in norm.nodes:
        if node in before:
            continue
        inner = [tensor for tensor in node.inputs if tensor in own or tensor is norm.x]
        if any(t is not quotient.y and (t.producer in before or t is norm.x) for t in inner):
            return norm.y
    return quotient.y


def _ancestors(node: Node, nodes: Sequence[Node]) -> set[Node]:
    own = set(nodes)
    found: set[Node] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if current in found or current not in own:
            continue
        found.add(current)
        pending.extend(t.producer for t in current.inputs if t.producer is not None)
    return found


def raised_epsilon(context: Context, norm: Normalization, epsilon: float) -> Rewrite | NotFixed:
    """Give a norm a larger epsilon: that of an operator, or one more Add in front of its root."""
    from dataclasses import replace

    make = FUSED.get(norm.kind)
    rewrite: Rewrite | NotFixed
    if norm.is_op:
        rewrite = _with_attribute(norm, epsilon)
    else:
        rewrite = (
            NotFixed(Reason.OPSET)
            if make is None
            else make(context, replace(norm, epsilon=epsilon))
        )
    if isinstance(rewrite, NotFixed) and norm.statistics_dtype in _NARROW - {TensorProto.FLOAT}:
        rewrite = island(context, norm, epsilon - norm.epsilon)
    elif isinstance(rewrite, NotFixed):
        rewrite = _one_more_add(norm, epsilon)
    if isinstance(rewrite, NotFixed):
        return rewrite
    return replace(
        rewrite,
        title=f"{rewrite.title} with an epsilon of {epsilon:.3g}",
        applicability=Applicability.UNSAFE,
        approximate=True,
    )


def _with_attribute(norm: Normalization, epsilon: float) -> Rewrite:
    node = norm.anchor
    inputs = tuple(tensor if tensor.name else None for tensor in node.inputs)
    outputs = tuple(tensor if tensor.name else None for tensor in node.outputs)
    new = NewNode(
        node.op,
        inputs,
        {**node.attrs, "epsilon": epsilon},
        like=node,
        domain=node.domain or "",
        outputs=len(outputs),
    )
    return Rewrite("keep it", Applicability.UNSAFE, (Replace(outputs, new),), (node,))


def _one_more_add(norm: Normalization, epsilon: float) -> Rewrite | NotFixed:
    root = norm.steps.get("root")
    if root is None or math.isnan(norm.epsilon):
        return NotFixed(Reason.TYPE_MISMATCH, norm.anchor, "it has no root of its own")
    variance = root.inputs[0]
    more = epsilon - norm.epsilon
    name = f"{norm.y.name}_epsilon"
    constant = Computed((), variance.dtype or norm.dtype, lambda: np.asarray(more), name)
    total = NewNode("Add", (variance, constant), like=root)
    new = NewNode(root.op, (total, *root.inputs[1:]), root.attrs, like=root)
    return Rewrite("add to the variance", Applicability.UNSAFE, (Replace((root.y,), new),), (root,))
