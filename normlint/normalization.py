"""Facts about normalisations: what is computed, whatever it is spelled like."""

from __future__ import annotations

import math
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from normlint.deferred import dataclass
from normlint.model.fault import ValuesUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from normlint.graph import Graph, Node, Tensor

_LARGEST = 1 << 20
SKIP_LAYER_NORM = "com.microsoft::SkipLayerNormalization"
EMBED_LAYER_NORM = "com.microsoft::EmbedLayerNormalization"
_SUMS = {SKIP_LAYER_NORM: 3, EMBED_LAYER_NORM: 2}
"""Operators that add first, and their output for the sum."""


class Kind(StrEnum):
    """What a normalisation takes its statistics of."""

    BATCH = "BatchNorm"
    LAYER = "LayerNorm"
    RMS = "RMSNorm"
    GROUP = "GroupNorm"
    INSTANCE = "InstanceNorm"
    L2 = "L2Norm"
    OTHER = "other"


class Form(StrEnum):
    """Whether one operator computes it, or several spell it out."""

    OP = "op"
    DECOMPOSED = "decomposed"


@dataclass(frozen=True, eq=False)
class Parameter:
    """A scale or a bias, as it acts on the normalised value.

    `shape` is aligned to the axes of x (same rank; extent 1 where it does not vary), or None where
    the rank of x is not known. `compute` gives its values in float64 in that shape; it is None
    where the parameter depends on a graph input.
    """

    shape: tuple[int, ...] | None
    tensors: tuple[Tensor, ...]
    """What it is made of; empty for a plain number."""
    compute: Callable[[], np.ndarray[Any, Any]] | None
    tensor: Tensor | None = None
    """The one tensor that it is, unchanged; None where several or a factor make it up."""

    @property
    def is_constant(self) -> bool:
        """Whether its values can be computed from the file alone."""
        return self.compute is not None

    def is_always(self, value: float) -> bool:
        """Whether it is this value everywhere, up to rounding. Large ones count as varied."""
        if self.compute is None or (self.shape is not None and math.prod(self.shape) > _LARGEST):
            return False
        try:
            return bool((abs(self.compute() - value) < 1e-6).all())
        except ValuesUnavailable:
            return False


@dataclass(frozen=True, eq=False)
class Normalization:
    """y = scale * (x - mean(x)) / sqrt(var(x) + epsilon) + bias, or the same without the mean.

    For a BatchNorm on running statistics the mean and the variance are constants.
    """

    kind: Kind
    form: Form
    nodes: tuple[Node, ...]
    """All nodes that compute it, in topological order; for an op the one node."""
    x: Tensor
    y: Tensor
    axes: tuple[int, ...] | None
    """Axes of x that the statistics are taken over, negative, ascending; None: running ones."""
    epsilon: float
    """What stands beside the variance (or the mean square) inside the root."""
    scale: Parameter | None = None
    bias: Parameter | None = None
    op_type: str | None = None
    """Operator of an op form, with its domain: `com.microsoft::GroupNorm`."""
    groups: int | None = None
    channels_last: bool = False
    """Whether the channels of a GroupNorm, InstanceNorm or BatchNorm are the last axis of x."""
    dtype: int = 0
    """Element type of x."""
    statistics_dtype: int = 0
    """Element type in which the statistics are computed (`stash_type` of an op)."""
    centred: bool = True
    """Whether the mean is subtracted."""
    one_pass: bool = False
    """Whether the variance is mean(x²) - mean(x)², which cancels where the mean is large."""
    clipped: bool = False
    """Whether the root is clipped from below instead of having an epsilon added."""
    training: bool = False
    """Whether a BatchNorm uses the statistics of the batch."""
    permutation: tuple[int, ...] | None = None
    """Axes of y as axes of x where y is transposed against x; None where they are the same."""
    quantized: str = "none"
    """none, input, output, both or inside: where Q/DQ pairs stand."""
    steps: Mapping[str, Node] = field(default_factory=dict)
    """Nodes of a spelled-out form by their part: mean, difference, square, variance, root…"""
    constant: bool = False
    """Whether it normalises constants only (weight standardisation)."""

    @cached_property
    def normalised(self) -> Tensor:
        """What the statistics are taken of: x, or the sum that the operator computes first.

        Where the node has no output for the sum, no node reads the tensor.
        """
        from normlint.graph import hidden

        if self.op_type not in _SUMS:
            return self.x
        total = self.anchor.output(_SUMS[self.op_type])
        return hidden(f"{self.y.name}_sum", self.anchor, self.y) if total is None else total

    @property
    def anchor(self) -> Node:
        """The node by which it is named."""
        return self.nodes[0]

    @property
    def graph(self) -> Graph:
        """The graph or subgraph that it stands in."""
        return self.anchor.graph

    @property
    def is_op(self) -> bool:
        """Whether one operator computes it."""
        return self.form is Form.OP

    @property
    def has_scale(self) -> bool:
        """Whether it has a scale other than one: some operators demand one. Reads the values."""
        return self.scale is not None and not self.scale.is_always(1.0)

    @property
    def has_bias(self) -> bool:
        """Whether it has a bias other than zero. Reads the values."""
        return self.bias is not None and not self.bias.is_always(0.0)

    @property
    def elements(self) -> int | None:
        """Number of elements that share their statistics, where it is known."""
        shape = self.x.shape
        if shape is None or not self.axes:
            return None
        extents = [shape[axis] for axis in self.axes if -axis <= len(shape)]
        known = [extent for extent in extents if isinstance(extent, int)]
        if len(known) != len(extents):
            return None
        return math.prod(known) // (self.groups or 1)

    @property
    def channel_axis(self) -> int | None:
        """The axis (negative) along which scale and bias run, where there is exactly one."""
        if self.kind in {Kind.LAYER, Kind.RMS}:
            return self.axes[0] if self.axes is not None and len(self.axes) == 1 else None
        rank = self.x.rank
        if rank is None or rank < 2:
            return None
        return -1 if self.channels_last else 1 - rank


@dataclass(frozen=True, eq=False)
class NearNorm:
    """Looks like a normalisation and is none."""

    reason: str
    """keepdims, epsilon-outside, exponent, operand-order, axes, broadcast, numerator, …"""
    like: Kind
    nodes: tuple[Node, ...]
    x: Tensor
    y: Tensor
    detail: str = ""
    """A sentence that says what is computed instead."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
