"""What a shift in front of a convolution becomes where it does not reach every place alike.

A convolution is linear: conv(s x + t) = conv_s(x) + conv(t). Where zeros are padded, or where a
transposed convolution sums fewer taps, conv(t) is no bias but an image: constant, and exact. It is
computed from the taps that read the inside of the image at each place, one axis at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from normlint.context.linear import Blocked
from normlint.deferred import dataclass
from normlint.rewrite.fold_weights import computed, type_of
from normlint.rule import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Node, Tensor
    from normlint.rewrite.fold_use import Use
    from normlint.rule import Computed

    Array = np.ndarray[Any, Any]

_LARGEST = 1 << 28
"""Elements of a map beyond which nobody wants it, and taps times places that are looked at."""


@dataclass(frozen=True, eq=False)
class Reach:
    """Which taps of a kernel read the inside of the image, for each axis by itself.

    `axes[k]` is a matrix of 0 and 1, [places, taps]; of one row where every place is alike.
    """

    axes: tuple[Array, ...]

    @property
    def is_uniform(self) -> bool:
        """Whether every place sees the same, so that a shift is a bias."""
        return all(len(rows) == 1 for rows in self.axes)

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the map; 1 along an axis that it does not vary along."""
        return tuple(len(rows) for rows in self.axes)

    def summed(self, taps: Array) -> Array:
        """Sum the taps [.., kernel] that reach the inside; give [.., places]."""
        total = taps
        for rows in self.axes:
            total = np.tensordot(total, rows, ([taps.ndim - len(self.axes)], [1]))
        return total


def everywhere(kernel: tuple[int, ...]) -> Reach:
    """Give what a convolution sees that reads nothing but the inside."""
    return Reach(tuple(np.ones((1, taps)) for taps in kernel))


def reach(node: Node, source: Tensor, kernel: tuple[int, ...]) -> Reach | None:
    """Find the taps that read the inside of an image; None where extents are not known.

    `source` is what the convolution reads, [N, C, ...]; `kernel` its spatial extents.
    """
    shape = source.shape
    count = len(kernel)
    spatial = shape[2:] if shape is not None and len(shape) == count + 2 else (None,) * count
    strides = node.attrs.get("strides") or [1] * count
    dilations = node.attrs.get("dilations") or [1] * count
    pads = [int(pad) for pad in node.attrs.get("pads") or [0] * (2 * count)]
    axes: list[Array] = []
    for k in range(count):
        extent = spatial[k]
        axis = _Axis(
            kernel[k], int(strides[k]), int(dilations[k]), pads[k], pads[k + count], node, k
        )
        known = extent if isinstance(extent, int) else None
        rows = axis.transposed(known) if node.op == "ConvTranspose" else axis.direct(known)
        if rows is None:
            return None
        axes.append(rows[:1] if len(rows) and (rows == rows[0]).all() else rows)
    return Reach(tuple(axes))


@dataclass(frozen=True, eq=False)
class _Axis:
    """One spatial axis of a convolution."""

    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    node: Node
    index: int

    @property
    def _span(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    def direct(self, extent: int | None) -> Array | None:
        """Give which taps of a convolution read the inside, at each place."""
        padding = self._padding(extent)
        if padding == (0, 0):
            return np.ones((1, self.kernel))
        if extent is None or padding is None:
            return None
        before, after = padding
        places = (extent + before + after - self._span) // self.stride + 1
        if not 0 < places * self.kernel <= _LARGEST:
            return None
        taps = np.arange(self.kernel) * self.dilation - before
        read = np.arange(places)[:, None] * self.stride + taps
        return np.asarray((read >= 0) & (read < extent), np.float64)

    def _padding(self, extent: int | None) -> tuple[int, int] | None:
        """Give the zeros in front and behind; None where they depend on an unknown extent."""
        auto = self.node.attrs.get("auto_pad", "NOTSET")
        if auto == "NOTSET":
            return self.before, self.after
        if auto == "VALID" or self.kernel == 1:
            return 0, 0
        if extent is None:
            return None
        places = -(-extent // self.stride)
        total = max((places - 1) * self.stride + self._span - extent, 0)
        half = total // 2
        return (half, total - half) if auto == "SAME_UPPER" else (total - half, half)

    def transposed(self, extent: int | None) -> Array | None:
        """Give which taps of a transposed convolution come from the inside, at each place."""
        attrs = self.node.attrs
        if attrs.get("auto_pad", "NOTSET") != "NOTSET" or attrs.get("output_shape"):
            return None
        extra = int((attrs.get("output_padding") or [0] * (self.index + 1))[self.index])
        if self.kernel == self.stride == 1 and not (self.before or self.after or extra):
            return np.ones((1, 1))
        if extent is None:
            return None
        places = self.stride * (extent - 1) + extra + self._span - self.before - self.after
        if not 0 < places * self.kernel <= _LARGEST:
            return None
        taps = np.arange(self.kernel) * self.dilation - self.before
        put = np.arange(places)[:, None] - taps
        inside = (put >= 0) & (put < extent * self.stride) & (put % self.stride == 0)
        return np.asarray(inside, np.float64)


def made_by(node: Node, view: tuple[int, ...]) -> int:
    """Count the channels that a convolution makes.

    `view` is its weight's shape as [groups, made, read, kernel...], or as [groups, read, made,
    kernel...] of a transposed convolution; so it is below.
    """
    return view[0] * (view[2] if node.op == "ConvTranspose" else view[1])


def shift_of_taps(use: Use, weight: Tensor, view: tuple[int, ...]) -> Callable[[], Array]:
    """Give what computes the sum over the channels read of W t, [groups, made, kernel...]."""
    weights, transposed = use.weights, use.node.op == "ConvTranspose"
    shift = use.affine.shift.reshape(view[0], -1)

    def compute() -> Array:
        values = weights.values(weight).reshape(view)
        return np.asarray(
            np.einsum("gio...,gi->go..." if transposed else "goi...,gi->go...", values, shift)
        )

    return compute


def bias_map(use: Use, weight: Tensor, view: tuple[int, ...], found: Reach) -> Computed:
    """Describe what a convolution makes of the shift, [1, made, places...]."""
    node = use.node
    sums = shift_of_taps(use, weight, view)
    shape = (1, made_by(node, view), *found.extents)

    def compute() -> Array:
        return found.summed(sums()).reshape(shape)

    return computed(shape, type_of(node, weight), compute, f"{node.y.name}_bias_map", node)


def bytes_of(constant: Computed) -> int:
    """Give how much memory a constant takes."""
    return math.prod(constant.shape) * _itemsize(constant.dtype)


def refusal(node: Node, found: Reach | None, made: int, dtype: int) -> Blocked:
    """Refuse because a shift does not reach every place alike; say what a map would cost."""
    why = (
        "sums fewer taps at its borders, so a shift varies"
        if node.op == "ConvTranspose"
        else "pads with zeros, which the shift does not reach"
    )
    detail = f"{node.op} {why}"
    if found is not None:
        cost = math.prod(found.extents) * made * _itemsize(dtype)
        detail += f" (bias-maps would add a constant of {cost} bytes)"
    return Blocked(Reason.PADDING, node, detail)


def _itemsize(dtype: int) -> int:
    return onnx.helper.tensor_dtype_to_np_dtype(dtype).itemsize
