"""Operators that join, cut, pick or repeat: how values per channel pass them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint.context.linear import Passage

if TYPE_CHECKING:
    from normlint.context.linear import Way
    from normlint.graph import Tensor


def _concat_axis(way: Way) -> int:
    axis = int(way.node.attrs.get("axis", 1))
    if axis >= 0:
        return axis
    rank = next((t.rank for t in (way.node.y, *way.node.inputs) if t.rank is not None), None)
    if rank is None:
        raise way.unknown()
    return axis + rank


def _extent(way: Way, tensor: Tensor, axis: int) -> int:
    shape = tensor.shape
    extent = shape[axis] if shape is not None and axis < len(shape) else None
    if not isinstance(extent, int):
        raise way.unknown()
    return extent


def concat(way: Way) -> list[Passage]:
    """Pass a Concat: into each part up, among the others down."""
    inputs = way.node.inputs
    if _concat_axis(way) != way.axis:
        if not way.up:
            raise way.moved("Concat joins it with others along another axis")
        return [Passage(tensor, way.axis) for tensor in inputs]
    ends = np.cumsum([_extent(way, tensor, way.axis) for tensor in inputs])
    parts = [np.arange(end) for end in ends]
    starts = [0, *ends[:-1]]
    if way.up:
        if ends[-1] != way.channels:
            raise way.moved("Concat gives another number of channels")
        return [
            Passage(tensor, way.axis, part[start:])
            for tensor, part, start in zip(inputs, parts, starts, strict=True)
        ]
    position = next(index for index, tensor in enumerate(inputs) if tensor is way.near)
    channels = np.full(ends[-1], -1)
    channels[starts[position] : ends[position]] = np.arange(way.channels)
    return way.to(way.axis, channels)


def split(way: Way) -> list[Passage]:
    """Pass a Split: the other parts stay as they are."""
    rank = way.node.inputs[0].rank
    axis = int(way.node.attrs.get("axis", 0))
    if axis < 0:
        if rank is None:
            raise way.unknown()
        axis += rank
    if axis != way.axis:
        if way.up and len(way.node.outputs) > 1:
            raise way.moved("Split takes it apart along another axis")
        if way.up:
            return way.same()
        return [Passage(tensor, way.axis) for tensor in way.node.outputs]
    sizes = _split_sizes(way)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    if not way.up:
        return [
            Passage(tensor, axis, np.arange(start, end))
            for tensor, start, end in zip(way.node.outputs, starts, ends, strict=True)
        ]
    position = next(k for k, tensor in enumerate(way.node.outputs) if tensor is way.near)
    channels = np.full(ends[-1], -1)
    channels[starts[position] : ends[position]] = np.arange(way.channels)
    return way.to(axis, channels)


def _split_sizes(way: Way) -> list[int]:
    node = way.node
    given = node.input(1)
    sizes = node.attrs.get("split")
    if sizes is None and given is not None:
        sizes = way.constants.integers(given)
        if sizes is None:
            raise way.unknown()
    if sizes is None:
        whole, count = _extent(way, node.inputs[0], way.axis), len(node.outputs)
        part = -(-whole // count)
        sizes = [part] * (count - 1) + [whole - part * (count - 1)]
    if len(sizes) != len(node.outputs) or any(size < 0 for size in sizes):
        raise way.unknown()
    return [int(size) for size in sizes]


def slice_(way: Way) -> list[Passage]:
    """Pass a Slice, of the channels too."""
    bounds = _slice_bounds(way)
    if way.axis not in bounds:
        return way.same()
    whole = _extent(way, way.node.inputs[0], way.axis)
    chosen = np.arange(whole)[bounds[way.axis]]
    if not way.up:
        return way.to(way.axis, chosen)
    channels = np.full(whole, -1)
    channels[chosen] = np.arange(len(chosen))
    return way.to(way.axis, channels)


def _slice_bounds(way: Way) -> dict[int, slice]:
    node = way.node
    given: list[tuple[int, ...] | None] = []
    for position, name in enumerate(("starts", "ends", "axes", "steps"), 1):
        tensor = node.input(position)
        values = node.attrs.get(name)
        given.append(way.constants.integers(tensor) if tensor is not None else values)
        if tensor is not None and given[-1] is None and name in {"axes", "steps"}:
            raise way.unknown()
    starts, ends, axes, steps = given
    rank = node.inputs[0].rank
    if axes is None:
        if starts is None:
            raise way.unknown()
        axes = tuple(range(len(starts)))
    if rank is None and any(axis < 0 for axis in axes):
        raise way.unknown()
    axes = tuple(axis + (rank or 0) if axis < 0 else axis for axis in axes)
    if way.axis not in axes:
        return {}
    if starts is None or ends is None:
        raise way.unknown()
    return {
        axis: slice(starts[k], _end(ends[k], steps[k] if steps else 1), steps[k] if steps else 1)
        for k, axis in enumerate(axes)
    }


def _end(end: int, step: int) -> int | None:
    """Translate an end beyond the front, which numpy would count from the back."""
    return None if step < 0 and end < -(1 << 30) else end


def pad(way: Way) -> list[Passage]:
    """Pass a Pad off the channels; what it puts in has to fit."""
    pads = pads_of(way)
    if any(pads.get(way.axis, (0, 0))):
        raise way.moved("Pad adds channels")
    mode = way.node.attrs.get("mode", "constant")
    if mode != "constant":
        return way.same()
    value = way.node.attrs.get("value", 0.0)
    given = way.node.input(2)
    if given is not None:
        value = way.constants.scalar(given)
        if value is None:
            raise way.moved("Pad puts in a value that is not known")
    return way.same(pad=float(value))


def pads_of(way: Way) -> dict[int, tuple[int, int]]:
    """Give what a Pad adds in front and behind, by axis."""
    node = way.node
    pads = node.attrs.get("pads", node.attrs.get("paddings"))
    given = node.input(1)
    if pads is None and given is not None:
        pads = way.constants.integers(given)
    if pads is None:
        raise way.unknown()
    count = len(pads) // 2
    axes = list(range(count))
    chosen = node.input(3)
    if chosen is not None:
        wanted = way.constants.integers(chosen)
        rank = node.inputs[0].rank
        if wanted is None or (rank is None and any(axis < 0 for axis in wanted)):
            raise way.unknown()
        axes = [axis + (rank or 0) if axis < 0 else axis for axis in wanted]
    return {axis: (int(pads[k]), int(pads[k + count])) for k, axis in enumerate(axes)}


def expand(way: Way) -> list[Passage]:
    """Pass an Expand that does not make the channels."""
    inner, outer = way.node.inputs[0].rank, way.node.y.rank
    if inner is None or outer is None:
        raise way.unknown()
    target = way.axis - (outer - inner) if way.up else way.axis + (outer - inner)
    if target < 0 or _extent(way, way.far, target) != way.channels:
        raise way.moved("Expand makes the channels")
    return way.to(target)


def tile(way: Way) -> list[Passage]:
    """Pass a Tile; channels that it repeats only down."""
    repeats = way.constants.integers(way.node.input(1))
    if repeats is None or way.axis >= len(repeats):
        raise way.unknown()
    if repeats[way.axis] == 1:
        return way.same()
    if way.up:
        raise way.moved("Tile makes the channels")
    return way.to(way.axis, np.tile(np.arange(way.channels), repeats[way.axis]))


def gather(way: Way) -> list[Passage]:
    """Pass a Gather; of channels where none is picked twice."""
    node = way.node
    rank, width = node.inputs[0].rank, node.inputs[1].rank
    axis = int(node.attrs.get("axis", 0))
    if width is None or (rank is None and axis < 0):
        raise way.unknown()
    axis += (rank or 0) if axis < 0 else 0
    if way.axis < axis:
        return way.same()
    if not way.up and way.axis > axis:
        return way.to(way.axis + width - 1)
    if way.up and way.axis >= axis + width:
        return way.to(way.axis - width + 1)
    return _gathered(way, axis)


def _gathered(way: Way, axis: int) -> list[Passage]:
    """Pass a Gather that picks channels."""
    picked = way.constants.integers(way.node.inputs[1])
    if picked is None or way.node.inputs[1].rank != 1:
        raise way.moved("Gather picks channels")
    whole = _extent(way, way.node.inputs[0], axis)
    chosen = np.asarray(picked, np.int64) % whole
    if not way.up:
        return way.to(axis, chosen)
    if len(set(chosen.tolist())) != len(chosen):
        raise way.moved("Gather picks a channel twice")
    channels = np.full(whole, -1)
    channels[chosen] = np.arange(len(chosen))
    return way.to(axis, channels)


def depth_to_space(way: Way) -> list[Passage]:
    """Pass a DepthToSpace up: each channel has come from several."""
    block = int(way.node.attrs.get("blocksize", 1)) ** 2
    if way.axis != 1 or not way.up:
        raise way.moved("DepthToSpace spreads channels over the image")
    channels = np.arange(way.channels * block)
    if way.node.attrs.get("mode", "DCR") == "CRD":
        return way.to(1, channels // block)
    return way.to(1, channels % way.channels)


def space_to_depth(way: Way) -> list[Passage]:
    """Pass a SpaceToDepth down: each channel goes to several."""
    block = int(way.node.attrs.get("blocksize", 1)) ** 2
    if way.axis != 1 or way.up:
        raise way.moved("SpaceToDepth gathers channels from the image")
    return way.to(1, np.arange(way.channels * block) % way.channels)
