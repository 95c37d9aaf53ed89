"""The one affine algebra: y = scale * x + shift, with one pair of numbers for each channel.

A BatchNormalization on running statistics is one, and so is a Mul, Add, Sub or Div by a constant
that varies along one axis at most. They compose, get across layout, and go into the weights of
linear operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.batch_norms import epsilon_of
from normlint.context.linear import Blocked
from normlint.deferred import dataclass
from normlint.model import ValuesUnavailable
from normlint.recognise.fused import has_batch_statistics
from normlint.rule import Reason

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.context.linear import Passage
    from normlint.graph import Node, Tensor

    Array = np.ndarray[Any, Any]

_LARGEST_VECTOR = 1 << 20
SAME_PAD = 1e-6
"""Relative difference up to which values that a padding must have for each channel count as one."""


@dataclass(frozen=True, eq=False)
class Affine:
    """y = scale * x + shift, both float64 vectors with an entry for each channel."""

    scale: Array
    shift: Array

    @classmethod
    def identity(cls, channels: int) -> Affine:
        """Give y = x."""
        return cls(np.ones(channels), np.zeros(channels))

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.scale)

    @property
    def has_shift(self) -> bool:
        """Whether any channel is shifted."""
        return bool(np.any(self.shift != 0))

    @property
    def is_positive(self) -> bool:
        """Whether every scale is above zero."""
        return bool(np.all(self.scale > 0))

    @property
    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return bool(np.isfinite(self.scale).all() and np.isfinite(self.shift).all())

    def after(self, inner: Affine) -> Affine:
        """Compose: first the inner one, then this one."""
        return Affine(self.scale * inner.scale, self.scale * inner.shift + self.shift)

    def without_shift(self) -> Affine:
        """Give the scale alone."""
        return Affine(self.scale, np.zeros_like(self.shift))

    def across(self, passage: Passage) -> Affine:
        """Give it for the channels on the far side; those from elsewhere stay as they are."""
        channels = passage.channels
        if channels is None:
            return self
        here = channels >= 0
        return Affine(
            np.where(here, self.scale[channels], 1.0), np.where(here, self.shift[channels], 0.0)
        )

    def check(self, passage: Passage, node: Node) -> None:
        """Raise Blocked where it does not meet the demands of a passage across a node."""
        if passage.positive and not self.is_positive:
            raise Blocked(
                _reason(node), node, f"{node.op} stands between, and a scale is not positive"
            )
        if passage.no_shift and self.has_shift:
            raise Blocked(_reason(node), node, f"{node.op} stands between, and there is a shift")

    def pad_before(self, value: float, node: Node) -> float:
        """Give the constant of a Pad that this moves in front of."""
        return _one(self.scale * value + self.shift, node)

    def pad_after(self, value: float, node: Node) -> float:
        """Give the constant of a Pad that this moves behind."""
        if np.any(self.scale == 0):
            raise _padding(node)
        return _one((value - self.shift) / self.scale, node)


def _reason(node: Node) -> Reason:
    known = {"AveragePool": Reason.PADDING, "ReduceSum": Reason.NO_LINEAR_NEIGHBOUR}
    return known.get(node.op, Reason.ACTIVATION_BETWEEN)


def _padding(node: Node) -> Blocked:
    return Blocked(
        Reason.PADDING, node, f"{node.op} pads, and no single value stands for the shift of all"
    )


def _one(values: Array, node: Node) -> float:
    """Give the value that a padding needs, if it is the same for all channels. Raises Blocked."""
    first = float(values[0])
    if not np.allclose(values, first, rtol=SAME_PAD, atol=0):
        raise _padding(node)
    return first


@dataclass(frozen=True, eq=False)
class Weights:
    """Reads what a fold needs to be constant."""

    constants: Constants
    overridable: bool = False
    """Whether initializers that a caller may override count as constants."""
    bias_maps: bool = False
    """Whether a shift may become a constant image behind a convolution."""

    def require(self, tensor: Tensor | None, at: Node) -> Tensor:
        """Give a tensor whose values are known. Raises Blocked."""
        if tensor is None:
            raise Blocked(Reason.WEIGHTS_NOT_CONSTANT, at, f"{at.op} lacks an input")
        if self.constants.is_constant(tensor):
            return tensor
        default = getattr(tensor, "default", None)
        if default is None:
            raise Blocked(Reason.WEIGHTS_NOT_CONSTANT, tensor, f"{tensor.name} is no constant")
        if not self.overridable:
            raise Blocked(
                Reason.OVERRIDABLE_INPUT,
                tensor,
                f"{tensor.name} is an initializer that a caller may override (it is a graph input)",
            )
        return tensor

    def values(self, tensor: Tensor) -> Array:
        """Give the values in float64. Raises ValuesUnavailable."""
        default = getattr(tensor, "default", None)
        values = default.load() if default is not None else self.constants.values(tensor)
        return values.astype(np.float64)

    def vector(self, tensor: Tensor | None, at: Node) -> Array:
        """Give the values of a small constant as a flat float64 vector. Raises Blocked."""
        known = self.require(tensor, at)
        size = np.prod([extent for extent in known.shape or () if isinstance(extent, int)])
        if size > _LARGEST_VECTOR:
            raise Blocked(Reason.BROADCAST, known, f"{known.name} is no vector of channels")
        try:
            return self.values(known).reshape(-1)
        except ValuesUnavailable as fault:
            raise Blocked(Reason.WEIGHTS_NOT_CONSTANT, known, str(fault)) from fault

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Give the extents of a constant. Raises Blocked."""
        shape = tensor.shape
        if shape is not None:
            extents = tuple(extent for extent in shape if isinstance(extent, int))
            if len(extents) == len(shape):
                return extents
        try:
            return tuple(self.values(tensor).shape)
        except ValuesUnavailable as fault:
            raise Blocked(Reason.WEIGHTS_NOT_CONSTANT, tensor, str(fault)) from fault


def is_per_channel(node: Node) -> bool:
    """Whether a BatchNormalization is a scale and shift per channel."""
    return is_spatial(node) and not has_batch_statistics(node)


def is_spatial(node: Node) -> bool:
    """Whether its parameters run along channels, not every feature (`spatial` 0, before 9)."""
    return bool(node.attrs.get("spatial", 1)) or node.inputs[0].rank == 2


def of_batch_norm(node: Node, weights: Weights) -> Affine:
    """Give what a BatchNormalization on running statistics computes. Raises Blocked."""
    scale, bias, mean, variance = (
        weights.vector(node.input(position), node) for position in range(1, 5)
    )
    if not len(scale) == len(bias) == len(mean) == len(variance):
        raise Blocked(Reason.BROADCAST, node, "its parameters differ in length")
    if not len(scale):
        raise Blocked(Reason.BROADCAST, node, "it has no channels")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + epsilon_of(node))
        return Affine(factor, bias - factor * mean)


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A Mul, Add, Sub or Div of a computed tensor and a constant."""

    node: Node
    x: Tensor
    constant: Tensor
    position: int
    """Which input x is."""

    def varies(self) -> tuple[int, ...] | None:
        """Give the axes of x (from the front) along which the constant varies.

        None where that is not known, or where the constant has axes that x has not.
        """
        rank, shape = self.x.rank, self.constant.shape
        if shape is None or not all(isinstance(extent, int) for extent in shape):
            return None
        axes = tuple(k - len(shape) for k, extent in enumerate(shape) if extent != 1)
        if not axes and (rank is None or len(shape) <= rank):
            return () if len(shape) == 0 or rank is not None else None
        if rank is None or len(shape) > rank:
            return None
        return tuple(axis + rank for axis in axes)

    @property
    def is_shift(self) -> bool:
        """Whether it leaves the scale alone."""
        return self.node.op == "Add" or (self.node.op == "Sub" and self.position == 0)

    def affine(self, axis: int, channels: int, weights: Weights) -> Affine:
        """Give it per channel of an axis. Raises Blocked where it varies along another."""
        axes = self.varies()
        if axes is None or any(a != axis for a in axes):
            raise Blocked(
                Reason.CHANNEL_AXIS_MOVED,
                self.node,
                f"the constant of {self.node.op} varies otherwise",
            )
        values = weights.vector(self.constant, self.node)
        if len(values) not in {1, channels} or not self._fits(axis, len(values)):
            raise Blocked(Reason.BROADCAST, self.node, f"the constant of {self.node.op} broadcasts")
        values = np.broadcast_to(values, (channels,))
        one, zero = np.ones(channels), np.zeros(channels)
        with np.errstate(all="ignore"):
            match self.node.op:
                case "Mul":
                    return Affine(values, zero)
                case "Div":
                    return Affine(1 / values, zero)
                case "Add":
                    return Affine(one, values)
        return Affine(one, -values) if self.position == 0 else Affine(-one, values)

    def _fits(self, axis: int, count: int) -> bool:
        """Whether x has as many channels, so that the constant does not widen it."""
        shape = self.x.shape
        return count == 1 or (shape is not None and shape[axis] == count)


def elementwise(node: Node, constants: Constants) -> Elementwise | None:
    """Read a node as arithmetic of a computed tensor and a constant; None where it is none."""
    if node.op not in {"Mul", "Add", "Sub", "Div"} or not node.is_standard or len(node.inputs) != 2:
        return None
    # Before opset 7 an attribute says how the second operand is broadcast.
    if node.graph.opset < 7 or not any(tensor.is_float for tensor in node.inputs):
        return None
    first, second = node.inputs
    if constants.is_constant(second) and not constants.is_constant(first):
        return Elementwise(node, first, second, 0)
    if constants.is_constant(first) and not constants.is_constant(second) and node.op != "Div":
        return Elementwise(node, second, first, 1)
    return None
