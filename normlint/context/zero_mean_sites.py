"""Where a mean is taken: a tensor with the neighbouring axes that count as its channels."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.graph import Node, Shape, Tensor

Extent = int | str | None


class Site(NamedTuple):
    """A tensor and its channel axes `first` to `last`, counted from 0.

    The extents of these axes are numbers, and the outermost two are not 1.
    """

    tensor: Tensor
    first: int
    last: int

    @property
    def axes(self) -> range:
        """The channel axes."""
        return range(self.first, self.last + 1)

    @property
    def shape(self) -> Shape:
        """The extents of the tensor, which are known."""
        assert self.tensor.shape is not None  # noqa: S101 - for the type checker
        return self.tensor.shape

    @property
    def widths(self) -> tuple[Extent, ...]:
        """The extents of the channel axes."""
        return self.shape[self.first : self.last + 1]

    @property
    def width(self) -> int:
        """Number of channels."""
        return prod(extent for extent in self.widths if isinstance(extent, int))

    @property
    def is_last(self) -> bool:
        """Whether the channels are the innermost axes."""
        return self.last == len(self.shape) - 1


def site(tensor: Tensor, axes: Sequence[int]) -> Site | None:
    """Give the site of a tensor whose mean is taken over some axes, negative or not.

    None where the axes are no neighbours, their extents are not known, or there is one channel.
    """
    shape = tensor.shape
    if shape is None or not axes:
        return None
    places = sorted({axis % len(shape) for axis in axes if -len(shape) <= axis < len(shape)})
    if len(places) != len(axes):
        return None
    while places and shape[places[0]] == 1:
        places.pop(0)
    while places and shape[places[-1]] == 1:
        places.pop()
    if not places or any(not isinstance(shape[axis], int) for axis in places):
        return None
    between = set(range(places[0], places[-1] + 1)) - set(places)
    if any(shape[axis] != 1 for axis in between):
        return None
    return Site(tensor, places[0], places[-1])


def sites_of_width(tensor: Tensor, width: int) -> Iterator[Site]:
    """Give every site of a tensor that has so many channels."""
    shape = tensor.shape or ()
    for first in range(len(shape)):
        channels = 1
        for last in range(first, len(shape)):
            extent = shape[last]
            if not isinstance(extent, int) or channels * extent > width:
                break
            channels *= extent
            if channels == width and shape[first] != 1 and extent != 1:
                yield Site(tensor, first, last)


def same_extents(one: Sequence[Extent], other: Sequence[Extent]) -> bool:
    """Whether two shapes are known to be equal: the same numbers and the same names."""
    return len(one) == len(other) and all(
        a == b and a is not None for a, b in zip(one, other, strict=True)
    )


def known_product(extents: Sequence[Extent]) -> int | None:
    """Give the product of extents; None where one is not a number."""
    numbers = [extent for extent in extents if isinstance(extent, int)]
    return prod(numbers) if len(numbers) == len(extents) else None


@dataclass(frozen=True, eq=False)
class Step:
    """How an output of a node follows from operands that have the same channels."""

    node: Node
    full: tuple[tuple[int, Site], ...]
    """Operands, by their position, with the axes that are their channels."""
    shifts: tuple[int, ...] = ()
    """Positions of operands that are the same for all channels and are added."""

    def reads(self, operand: Site) -> bool:
        """Whether the node reads a tensor in this way only."""
        places = [k for k, tensor in enumerate(self.node.inputs) if tensor is operand.tensor]
        full = {k for k, found in self.full if found == operand}
        return all(place in full for place in places)


def kept(node: Node, out: Site, place: int = 0) -> Step | None:
    """Read an operand that has the same channels, on the same axes."""
    x = node.inputs[place]
    if x.shape is None or len(x.shape) != len(out.shape):
        return None
    found = Site(x, out.first, out.last)
    return Step(node, ((place, found),)) if found.widths == out.widths else None


FULL, ONE = "full", "one"
"""Operands that have all channels, and those that have one for all."""


def role(tensor: Tensor, out: Site) -> tuple[str, Site] | None:
    """Tell how an operand that is broadcast to the output covers the channels."""
    if tensor.shape is None:
        return None
    offset = len(out.shape) - len(tensor.shape)
    extents = [tensor.shape[axis - offset] if axis >= offset else 1 for axis in out.axes]
    if all(extent == 1 for extent in extents):
        return ONE, out
    if tuple(extents) != tuple(out.widths):
        return None
    return FULL, Site(tensor, out.first - offset, out.last - offset)


def roles(node: Node, out: Site, places: Sequence[int]) -> tuple[list[tuple[int, Site]], list[int]]:
    """Sort operands into full ones and ones without channels. Raises ValueError for others."""
    full: list[tuple[int, Site]] = []
    ones: list[int] = []
    for place in places:
        found = role(node.inputs[place], out)
        if found is None:
            raise ValueError(place)
        if found[0] == FULL:
            full.append((place, found[1]))
        else:
            ones.append(place)
    return full, ones
