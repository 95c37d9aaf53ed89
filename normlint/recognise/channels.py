"""Scale and bias for each channel, as elementwise ops behind a tensor."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.recognise.extents import above, passes, reshaped, source_of
from normlint.recognise.parameter import static
from normlint.recognise.reading import is_weight

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.recognise.extents import Extent

    Array = np.ndarray[Any, Any]

_SCALES = frozenset(("Mul", "Div"))
_SHIFTS = frozenset(("Add", "Sub"))
_FARTHEST = 64
_MOST_RESHAPES = 3


@dataclass(frozen=True)
class Step:
    """One elementwise op by a constant for each channel."""

    node: Node
    operand: Tensor
    constants: Constants

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the operand."""
        return constant_shape(self.operand, self.constants) or ()

    @property
    def size(self) -> int:
        """Number of values: the channels, or 1."""
        return math.prod(self.shape)

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


class Along:
    """Which axes of a tensor an affine may run along."""

    constants: Constants

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an operand of this shape varies along these axes only; numbers do not count."""
        raise NotImplementedError

    def affine_after(self, tensor: Tensor) -> Tail:
        """Follow a tensor through its only readers as long as these are its affine."""
        tail = Tail(tensor)
        while tail.bias is None:
            between, node = downstream(tail.y)
            step = None if node is None else self.step(node, between[-1].y if between else tail.y)
            if step is None or (tail.scale is not None and step.node.op in _SCALES):
                break
            part = "scale" if step.node.op in _SCALES else "bias"
            nodes = (*tail.nodes, *between, step.node)
            tail = replace(tail, y=step.node.y, nodes=nodes, **{part: step})
        return tail

    def step(self, node: Node, source: Tensor) -> Step | None:
        """Read an elementwise op by a parameter along these axes; None where it is another."""
        if node.op not in _SCALES | _SHIFTS or len(node.inputs) != 2 or not node.is_standard:
            return None
        left = node.inputs[0] is source
        operand = node.inputs[1] if left else node.inputs[0]
        if operand is source or (not left and node.op in {"Div", "Sub"}):
            return None
        if not is_parameter(operand, self.constants):
            return None
        shape = constant_shape(operand, self.constants)
        return Step(node, operand, self.constants) if shape and self.accepts(shape) else None


@dataclass(frozen=True)
class Channels(Along):
    """The channels of a tensor, as far as they are known."""

    constants: Constants
    rank: int | None
    count: int | None
    last: bool = False
    """Whether they are the last axis instead of axis 1."""

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an operand of this shape varies along the channels only."""
        if len(shape) == 1 and not self.last and self.rank != 2:
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


@dataclass(frozen=True)
class Trailing(Along):
    """The last axes of a tensor."""

    constants: Constants
    extents: tuple[int, ...]

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an operand of this shape varies along these axes only."""
        width = len(self.extents)
        inside = shape[-width:]
        return (
            all(extent == 1 for extent in shape[:-width])
            and all(e in {1, a} for e, a in zip(inside[::-1], self.extents[::-1], strict=False))
            and any(extent != 1 for extent in inside)
        )


def downstream(tensor: Tensor) -> tuple[list[Node], Node | None]:
    """Follow the only reader through Casts, Identity and Q/DQ; give those and the reader behind."""
    passed: list[Node] = []
    while len(passed) < _FARTHEST:
        readers = {reader for reader in tensor.consumers if reads_values(reader, tensor)}
        if len(readers) != 1 or tensor.is_output:
            return passed, None
        (reader,) = readers
        if not passes(reader) or reader.inputs[0] is not tensor:
            return passed, reader
        passed.append(reader)
        tensor = reader.y
    return passed, None


@dataclass(frozen=True)
class Reshaped:
    """Two Reshapes with a normalisation between them."""

    before: Node
    after: Node
    between: tuple[Node, ...]
    """Casts, Identity and Q/DQ between the Reshapes and the normalisation."""
    earlier: tuple[Node, ...] = ()
    """Reshapes in front of `before` that it undoes or goes on with, the first one last."""

    @property
    def x(self) -> Tensor:
        """What is reshaped first."""
        return (self.earlier or (self.before,))[-1].inputs[0]

    @property
    def reshapes(self) -> tuple[Node, ...]:
        """All Reshapes."""
        return (*self.earlier, self.before, self.after)

    def made(self, constants: Constants) -> tuple[Extent, ...] | None:
        """Give the extents of what is normalised; None where not even the rank is known."""
        extents = None
        for node in self.earlier[::-1]:
            extents = reshaped(node, constants, extents)
        return reshaped(self.before, constants, extents)


def reshaped_around(norm: Normalization) -> Reshaped | None:
    """Find the Reshapes right before and right behind a normalisation."""
    passed: list[Node] = []
    before = None
    for node in above(norm.x):
        if node.op == "Reshape" or not passes(node):
            before = node
            break
        passed.append(node)
    between, after = downstream(norm.y)
    if before is None or after is None or before.op != "Reshape" or after.op != "Reshape":
        return None
    if source_of(after.inputs[0]) is not source_of(norm.y):
        return None
    return Reshaped(before, after, (*passed, *between))


def farther(around: Reshaped) -> Reshaped | None:
    """Take in the Reshape in front of the first one: two in a row are one."""
    passed: list[Node] = []
    for node in above(around.x):
        if node.op == "Reshape" and len(around.earlier) < _MOST_RESHAPES:
            between = (*around.between, *passed)
            return replace(around, earlier=(*around.earlier, node), between=between)
        if not passes(node):
            break
        passed.append(node)
    return None


def reads_values(node: Node, tensor: Tensor) -> bool:
    """Whether a reader of a tensor looks at more than its extents and its type."""
    if node.op in {"Shape", "Size"}:
        return False
    return node.op != "CastLike" or node.inputs[0] is tensor


def is_parameter(tensor: Tensor, constants: Constants) -> bool:
    """Whether a tensor is a constant, or a weight that the caller gives."""
    return constants.is_constant(tensor) or is_weight(tensor)


def constant_shape(tensor: Tensor, constants: Constants) -> tuple[int, ...] | None:
    """Give the extents of a constant, computed where inference does not know them."""
    shape = static(tensor.shape)
    if shape is not None or tensor.is_constant:
        return shape
    values = constants.known(tensor)
    return None if values is None else values.shape
