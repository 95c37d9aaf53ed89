"""How an axis of a tensor lies in a tensor of the same elements with other extents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor

    Array = np.ndarray[Any, Any]

_MOST_CHANNELS = 1 << 24
"""Channels above which nothing is known for each of them: a file may claim any number."""
Extent: TypeAlias = "int | str | tuple[Tensor, int]"
"""A number, the name of a symbolic extent, or an axis whose extent is not known."""


@dataclass(frozen=True)
class Product:
    """A product of extents: a number times the symbols that are not numbers."""

    number: int
    symbols: tuple[str, ...]

    @classmethod
    def of(cls, extents: Sequence[Extent]) -> Product:
        """Multiply extents."""
        number = 1
        symbols = []
        for extent in extents:
            if isinstance(extent, int):
                number *= extent
            else:
                symbols.append(_symbol(extent))
        return cls(number, tuple(sorted(symbols)))

    def over(self, other: Product) -> int | None:
        """Divide by another product; None where the quotient is no known whole number."""
        if self.symbols != other.symbols or other.number <= 0 or self.number % other.number:
            return None
        return self.number // other.number


def _symbol(extent: str | tuple[Tensor, int]) -> str:
    if isinstance(extent, str):
        return f"name {extent}"
    tensor, axis = extent
    return f"axis {id(tensor)} {axis}"


def extents(tensor: Tensor) -> tuple[Extent, ...] | None:
    """Give the extents of a tensor of known rank, with a symbol for each that is not known."""
    if tensor.shape is None:
        return None
    return tuple(
        (tensor, axis) if extent is None else extent for axis, extent in enumerate(tensor.shape)
    )


def reshaped(
    node: Node, constants: Constants
) -> tuple[tuple[Extent, ...], tuple[Extent, ...]] | None:
    """Give the extents before and after a Reshape or Flatten, as far as both ranks are known.

    A 0 in the target of a Reshape copies an extent, which is then known to be the same one.
    """
    before = extents(node.inputs[0])
    after = extents(node.y)
    if before is None:
        return None
    target = _target(node, constants)
    if target is None:
        return None if after is None else (before, after)
    if after is None or len(after) != len(target):
        after = tuple((node.y, axis) for axis in range(len(target)))
    copies = not node.attrs.get("allowzero", 0)
    return before, tuple(
        _wanted(wish, seen, before, axis, copies=copies)
        for axis, (wish, seen) in enumerate(zip(target, after, strict=True))
    )


def _target(node: Node, constants: Constants) -> tuple[int, ...] | None:
    if node.op != "Reshape":
        return None
    if "shape" in node.attrs:
        return tuple(node.attrs["shape"])
    return constants.integers(node.input(1))


def _wanted(
    wish: int, seen: Extent, before: tuple[Extent, ...], axis: int, *, copies: bool
) -> Extent:
    if wish > 0:
        return wish
    if wish == 0 and copies and axis < len(before):
        return before[axis]
    return seen


def through_reshape(
    near: tuple[Extent, ...], axis: int, channels: int, far: tuple[Extent, ...]
) -> tuple[int, Array | None] | None:
    """Find the axis on the far side of a Reshape along which values per channel run.

    With S the number of elements that one step along an axis passes over, the element at flat
    position f belongs to channel (f // S) % channels. A far axis of extent D and step S' carries
    the same values if
    S = r * S' and D is a multiple of r * channels: its i-th element belongs to channel
    (i // r) % channels. So a channel axis may be kept, merged with axes behind it (each value is
    repeated) or in front of it (the values are tiled), or be split off from such. Extents that
    happen to be equal prove nothing. Returns the axis and the channel of each of its elements,
    None for the latter where they are the same; None where no axis carries the values.
    """
    if near[axis] != channels:
        return None
    if channels == 1:
        return _anywhere(far)
    for candidate, extent in enumerate(far):
        if not isinstance(extent, int) or not channels <= extent <= _MOST_CHANNELS:
            continue
        repeat = _steps(near, axis, far, candidate)
        if repeat is None or repeat < 1 or extent % (repeat * channels):
            continue
        if repeat == 1 and extent == channels:
            return candidate, None
        return candidate, (np.arange(extent) // repeat) % channels
    return None


def _anywhere(far: tuple[Extent, ...]) -> tuple[int, Array | None] | None:
    """Find an axis for values that are the same for every element."""
    if 1 in far:
        return far.index(1), None
    known = [
        (axis, extent)
        for axis, extent in enumerate(far)
        if isinstance(extent, int) and extent <= _MOST_CHANNELS
    ]
    return (known[-1][0], np.zeros(known[-1][1], np.int64)) if known else None


def _steps(
    near: tuple[Extent, ...], axis: int, far: tuple[Extent, ...], candidate: int
) -> int | None:
    """Give the step of the near axis in steps of the far one."""
    behind = Product.of(near[axis + 1 :]).over(Product.of(far[candidate + 1 :]))
    if behind is not None:
        return behind
    # Both tensors have as many elements: near front * C * S = far front * D * S'.
    return Product.of(far[: candidate + 1]).over(Product.of(near[: axis + 1]))
