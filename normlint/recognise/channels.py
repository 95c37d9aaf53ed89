"""Scale and bias for each channel, as elementwise ops behind a tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.graph import Variable
from normlint.recognise.extents import passes
from normlint.recognise.parameter import static

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor

    Array = np.ndarray[Any, Any]

_SCALES = frozenset(("Mul", "Div"))
_SHIFTS = frozenset(("Add", "Sub"))
_RELABELS = frozenset(("Unsqueeze", "Reshape", "Identity", "Cast", "CastLike"))


@dataclass(frozen=True)
class Step:
    """One elementwise op by a constant for each channel."""

    node: Node
    operand: Tensor
    constants: Constants

    @property
    def size(self) -> int:
        """Number of values: the channels, or 1."""
        shape = constant_shape(self.operand, self.constants)
        return 1 if shape is None else int(np.prod(shape))

    @property
    def is_constant(self) -> bool:
        """Whether its values are known before the model runs."""
        return self.constants.is_constant(self.operand)

    @property
    def is_plain(self) -> bool:
        """Whether the operand itself is the scale or the bias."""
        return self.node.op in {"Mul", "Add"}

    def values(self) -> Array:
        """Give the values by which to multiply, or which to add, in float64."""
        values = self.constants.values(self.operand).astype(np.float64).reshape(-1)
        if self.node.op == "Div":
            return 1.0 / values
        return -values if self.node.op == "Sub" else values


@dataclass(frozen=True)
class Tail:
    """What follows a tensor: at most one scale, then at most one bias."""

    y: Tensor
    nodes: tuple[Node, ...] = ()
    scale: Step | None = None
    bias: Step | None = None


@dataclass(frozen=True)
class Channels:
    """The channels of a tensor, as far as they are known."""

    constants: Constants
    rank: int | None
    count: int | None
    last: bool = False
    """Whether they are the last axis instead of axis 1."""

    def affine_after(self, tensor: Tensor) -> Tail:
        """Follow a tensor through its only readers as long as these are its affine."""
        tail = Tail(tensor)
        while tail.bias is None:
            between, node = downstream(tail.y)
            step = None if node is None else self._step(node, between[-1].y if between else tail.y)
            if step is None or (tail.scale is not None and step.node.op in _SCALES):
                break
            part = "scale" if step.node.op in _SCALES else "bias"
            nodes = (*tail.nodes, *between, step.node)
            tail = replace(tail, y=step.node.y, nodes=nodes, **{part: step})
        return tail

    def _step(self, node: Node, source: Tensor) -> Step | None:
        if node.op not in _SCALES | _SHIFTS or len(node.inputs) != 2 or not node.is_standard:
            return None
        left = node.inputs[0] is source
        operand = node.inputs[1] if left else node.inputs[0]
        if operand is source or (not left and node.op in {"Div", "Sub"}):
            return None
        return Step(node, operand, self.constants) if self._runs_along(operand) else None

    def _runs_along(self, operand: Tensor) -> bool:
        """Whether a constant varies along the channels only; plain numbers do not count."""
        if not is_parameter(operand, self.constants):
            return False
        shape = constant_shape(operand, self.constants)
        if not shape or (len(shape) == 1 and not self.last and self.rank != 2):
            return False
        axis = len(shape) - 1 if self.last else 0
        if not self.last and self.rank is not None:
            axis = len(shape) - self.rank + 1
        if not 0 <= axis <= len(shape) - 1 or any(
            extent != 1 for index, extent in enumerate(shape) if index != axis
        ):
            return False
        if shape[axis] == 1:
            return len(shape) > 1
        return shape[axis] == self.count if self.count is not None else not self.last


def downstream(tensor: Tensor) -> tuple[list[Node], Node | None]:
    """Follow the only reader through Casts, Identity and Q/DQ; give those and the reader behind."""
    passed: list[Node] = []
    while True:
        readers = {reader for reader in tensor.consumers if reads_values(reader, tensor)}
        if len(readers) != 1 or tensor.is_output:
            return passed, None
        (reader,) = readers
        if not passes(reader) or reader.inputs[0] is not tensor:
            return passed, reader
        passed.append(reader)
        tensor = reader.y


def reads_values(node: Node, tensor: Tensor) -> bool:
    """Whether a reader of a tensor looks at more than its extents and its type."""
    if node.op in {"Shape", "Size"}:
        return False
    return node.op != "CastLike" or node.inputs[0] is tensor


def is_parameter(tensor: Tensor, constants: Constants) -> bool:
    """Whether a tensor is a constant, or a default that the caller may override."""
    if constants.is_constant(tensor):
        return True
    while (producer := tensor.producer) is not None and producer.op in _RELABELS:
        tensor = producer.inputs[0]
    return isinstance(tensor, Variable) and tensor.default is not None


def constant_shape(tensor: Tensor, constants: Constants) -> tuple[int, ...] | None:
    """Give the extents of a constant, computed where inference does not know them."""
    shape = static(tensor.shape)
    if shape is not None or tensor.is_constant:
        return shape
    values = constants.known(tensor)
    return None if values is None else values.shape
