"""What lies between a scale and shift and what takes it up, put back in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import Blocked
from normlint.deferred import dataclass
from normlint.rewrite.fold_weights import computed, vector
from normlint.rule import NewNode, Reason, Replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.linear import Passage
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Elementwise, Weights
    from normlint.rule import Edit, Operand

    Array = np.ndarray[Any, Any]
    Wrap = Callable[[Operand], Operand]

_LARGEST_SPREAD = 1 << 16
"""Elements that the constant of an Add may grow to."""


@dataclass(frozen=True, eq=False)
class Tap:
    """Makes a node read the extents or the type of another tensor; passes the value on."""

    reader: Node
    tensor: Tensor
    """What it reads now."""
    edits: list[Edit]
    instead: Tensor | None
    """What it reads; None for the value that is passed on."""

    def __call__(self, inner: Operand) -> Operand:
        """Note what the reader becomes."""
        reader = self.reader
        source = inner if self.instead is None else self.instead
        inputs = tuple(source if given is self.tensor else given for given in reader.inputs)
        recipe = NewNode(reader.op, inputs, reader.attrs, reader)
        self.edits.append(Replace((reader.y,), recipe))
        return inner


def wrapped(operand: Operand, wraps: list[Wrap]) -> Operand:
    """Put what was passed on the way back around an operand, the last one first."""
    for wrap in reversed(wraps):
        operand = wrap(operand)
    return operand


def rebuild(node: Node, passage: Passage, affine: Affine) -> Wrap:
    """Describe a node that passes: the same on another input, a Pad with a constant that fits."""
    rest: list[Operand] = [tensor if tensor.name else None for tensor in node.inputs[1:]]
    attrs = dict(node.attrs)
    if passage.pad is not None:
        value = affine.pad_before(passage.pad, node)
        dtype = node.y.dtype or node.inputs[0].dtype
        if node.inputs[1:]:
            rest.extend([None] * (2 - len(rest)))
            rest[1] = vector(np.asarray(value), dtype, f"{node.y.name}_value")
        else:
            attrs["value"] = value
    return lambda inner: NewNode(node.op, (inner, *rest), attrs, node, node.domain or "")


def shifted(step: Elementwise, axis: int, affine: Affine, weights: Weights) -> Wrap:
    """Describe an Add or Sub whose constant is no vector of channels: it takes the shift."""
    node, constant = step.node, step.constant
    rank = step.x.rank
    if rank is None or node.y.rank != rank:
        raise Blocked(Reason.SHAPE_UNKNOWN, node, f"the rank of what {node.op} reads is unknown")
    shape = tuple(-1 if k == axis else 1 for k in range(rank))
    scale, shift = affine.scale.reshape(shape), affine.shift.reshape(shape)
    before = weights.shape(constant)
    after = np.broadcast_shapes(before, scale.shape)
    if math.prod(after) > max(math.prod(before), _LARGEST_SPREAD):
        raise Blocked(Reason.BROADCAST, node, f"the constant of {node.op} would grow")
    sign = -1 if node.op == "Sub" and step.position == 0 else 1

    def compute() -> Array:
        return np.asarray(scale * weights.values(constant) + sign * shift)

    new = computed(after, constant.dtype, compute, constant.name, node)
    position = step.position

    def wrap(inner: Operand) -> NewNode:
        inputs = (inner, new) if position == 0 else (new, inner)
        return NewNode(node.op, inputs, node.attrs, node)

    return wrap
