"""Changes of constants, computed in float64 when they are needed and rounded once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.rule import Computed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from normlint.context.constants import Constants
    from normlint.context.zero_mean_sites import Site
    from normlint.graph import Node, Tensor

    Array = np.ndarray[Any, Any]

_ADDED, _SCALED, _CENTRED = range(3)
_LARGE = 1 << 21
"""Elements from which on a constant is changed block by block."""
_BLOCK = 1 << 20
"""Elements that are changed at once."""


@dataclass(frozen=True, eq=False)
class Change:
    """What becomes of the values of a constant."""

    key: Hashable
    """Equal for equal changes of the same constant."""
    phase: int
    """Changes are made in this order."""
    apply: Callable[[Array], Array]
    shape: tuple[int, ...] | None = None
    """The shape that the values are broadcast to; None where theirs stays."""
    dtype: int = 0
    """The element type where there was no constant before."""
    apart: tuple[int, ...] | None = None
    """The only axes along which elements depend on each other; None where that is not known."""


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant with its changes; a sum starts from zero where there was none."""

    tensor: Tensor | None
    constants: Constants
    changes: tuple[Change, ...]

    def computed(self) -> Computed:
        """Give the new constant, not yet computed."""
        tensor = self.tensor
        shape: tuple[int, ...] = ()
        dtype = next((c.dtype for c in self.changes if c.dtype), 0)
        if tensor is not None:
            shape = tuple(e for e in tensor.shape or () if isinstance(e, int))
            dtype = tensor.dtype
        shape = np.broadcast_shapes(shape, *(c.shape for c in self.changes if c.shape is not None))
        name = tensor.name if tensor is not None else ""
        return Computed(shape, dtype, self._values, name)

    def _values(self) -> Array:
        if self.tensor is not None and self._block_axis is not None:
            return self._by_blocks(self.constants.values(self.tensor), self._block_axis)
        return self._whole()

    @property
    def _block_axis(self) -> int | None:
        """The axis along which a large constant is changed block by block; None for others."""
        shape = self.tensor.shape if self.tensor is not None else None
        if not shape or any(change.apart is None for change in self.changes):
            return None
        extents = [extent for extent in shape if isinstance(extent, int)]
        free = set(range(len(shape))) - {a for c in self.changes for a in c.apart or ()}
        if len(extents) != len(shape) or math.prod(extents) < _LARGE or not free:
            return None
        return max(free, key=lambda axis: extents[axis])

    def _by_blocks(self, values: Array, axis: int) -> Array:
        """Change a constant block by block, in place: it is not held twice, nor in double."""
        own = values.flags.owndata and values.flags.writeable
        result = values if own else np.empty_like(values)
        size = max(1, _BLOCK * values.shape[axis] // values.size)
        for start in range(0, values.shape[axis], size):
            place = (*(slice(None),) * axis, slice(start, start + size))
            block = values[place].astype(np.float64)
            for change in self.changes:
                block = change.apply(block)
            result[place] = block.astype(values.dtype)
        return result

    def _whole(self) -> Array:
        if self.tensor is None:
            values: Array = np.zeros(())
        else:
            values = self.constants.values(self.tensor).astype(np.float64)
        for change in self.changes:
            values = change.apply(values)
        return values


def centred(at: Site) -> Change:
    """Subtract the mean over the channels."""
    axes = tuple(at.axes)

    def apply(values: Array) -> Array:
        return np.asarray(values - values.mean(axis=axes, keepdims=True))

    return Change(("centred", axes), _CENTRED, apply, apart=axes)


def without_mean(out: Site) -> Change:
    """Subtract the mean over the channels of what a constant is added to, whatever its shape."""
    return _without_mean([axis - len(out.shape) for axis in out.axes])


def added_without_mean(node: Node, out: Site) -> tuple[Change, ...]:
    """Subtract the mean of the sum that a node without a bias is given."""
    return (_without_mean([-1]) if "Conv" in node.op else without_mean(out),)


def _without_mean(inner: Sequence[int]) -> Change:
    def apply(values: Array) -> Array:
        axes = tuple(axis for axis in inner if axis >= -values.ndim)
        return np.asarray(values - values.mean(axis=axes, keepdims=True))

    return Change(("without mean", *inner), _CENTRED, apply)


def scaled_by(factor: Site, at: Site, constants: Constants, *, inverse: bool) -> Change:
    """Multiply each channel by its factor, or divide by it."""

    def apply(values: Array) -> Array:
        vector = constants.values(factor.tensor).astype(np.float64)
        inner = len(at.shape) - at.last - 1
        aligned = vector.reshape(*(e for e in at.widths if isinstance(e, int)), *(1,) * inner)
        with np.errstate(all="ignore"):
            result: Array = values / aligned if inverse else values * aligned
        return result

    key = ("scaled", factor.tensor, inverse, at.first, at.last)
    return Change(key, _SCALED, apply, apart=tuple(at.axes))


def added_scaled(factor: Site, constants: Constants, *, inverse: bool) -> tuple[Change, ...]:
    """Scale the sum that a node without a bias is given along the channels, and centre it."""

    def apply(values: Array) -> Array:
        vector = constants.values(factor.tensor).astype(np.float64).reshape(-1)
        with np.errstate(all="ignore"):
            return np.asarray(values / vector if inverse else values * vector)

    scaled = Change(("scaled", factor.tensor, inverse), _SCALED, apply)
    return scaled, _without_mean([-1])


def added(key: Hashable, values: Callable[[], Array], shape: tuple[int, ...], dtype: int) -> Change:
    """Add values, which are computed when they are needed and have a shape that is known before."""
    return Change(("added", key), _ADDED, lambda old: old + values(), shape, dtype)
