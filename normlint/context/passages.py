"""Which operators let values per channel pass, and how: one short function for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint.context.axes import reshaped, through_reshape
from normlint.context.linear import Passage
from normlint.graph import FLOATS

if TYPE_CHECKING:
    from normlint.context.linear import Handler, Way
    from normlint.graph import Tensor


def _same(way: Way) -> list[Passage]:
    return way.same()


def _dropout(way: Way) -> list[Passage]:
    training = way.node.input(2)
    if training is not None and way.constants.scalar(training) != 0:
        raise way.moved("Dropout is in training mode")
    if way.near not in {way.node.inputs[0], way.node.y}:
        raise way.moved("only the mask of Dropout is read")
    return way.same()


def _cast(way: Way) -> list[Passage]:
    if not {way.node.inputs[0].dtype, way.node.y.dtype} <= FLOATS:
        raise way.moved("a Cast that is not between float types stands between")
    return way.same()


def _transpose(way: Way) -> list[Passage]:
    perm = way.node.attrs.get("perm")
    if perm is None:
        if way.near.rank is None:
            raise way.unknown()
        perm = list(range(way.near.rank))[::-1]
    if way.axis >= len(perm):
        raise way.unknown()
    return way.to(perm[way.axis] if way.up else perm.index(way.axis))


def axes_of(way: Way, rank: int | None) -> list[int] | None:
    """Give the axes attribute or input 1 of a node, counted from the front; None where absent."""
    source = way.node.input(1)
    axes = way.node.attrs.get("axes")
    if axes is None and source is not None:
        axes = way.constants.integers(source)
        if axes is None:
            raise way.unknown()
    if axes is None:
        return None
    if rank is None and any(axis < 0 for axis in axes):
        raise way.unknown()
    return sorted(axis + (rank or 0) if axis < 0 else axis for axis in axes)


def _unsqueeze(way: Way) -> list[Passage]:
    inner = way.node.inputs[0].rank
    axes = axes_of(way, 0)
    if axes is None:
        raise way.unknown()
    if any(axis < 0 for axis in axes):
        if inner is None:
            raise way.unknown()
        outer = inner + len(axes)
        axes = sorted(axis % outer for axis in axes)
    return _inserted(way, axes, outwards=not way.up)


def _squeeze(way: Way) -> list[Passage]:
    x = way.node.inputs[0]
    axes = axes_of(way, x.rank)
    if axes is None:
        if x.shape is None or not all(isinstance(extent, int) for extent in x.shape):
            raise way.unknown()
        axes = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    return _inserted(way, axes, outwards=way.up)


def _inserted(way: Way, axes: list[int], *, outwards: bool) -> list[Passage]:
    """Map an axis where the side with more axes has these besides."""
    if not outwards:
        if way.axis in axes:
            raise way.moved(f"{way.node.op} takes the channel axis away")
        return way.to(way.axis - sum(axis < way.axis for axis in axes))
    target = way.axis
    for axis in axes:
        if axis <= target:
            target += 1
    return way.to(target)


def _reshape(way: Way) -> list[Passage]:
    both = reshaped(way.node, way.constants)
    if both is None:
        raise way.unknown()
    near, far = both[::-1] if way.up else both
    if way.axis >= len(near):
        raise way.unknown()
    if not isinstance(near[way.axis], int):
        near = (*near[: way.axis], way.channels, *near[way.axis + 1 :])
    arrival = through_reshape(near, way.axis, way.channels, far)
    if arrival is None:
        raise way.moved(f"{way.node.op} does not keep the channels on an axis of their own")
    return way.to(*arrival)


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


def _concat(way: Way) -> list[Passage]:
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


def _split(way: Way) -> list[Passage]:
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


def _slice(way: Way) -> list[Passage]:
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


def _pad(way: Way) -> list[Passage]:
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


def _spatial(way: Way) -> Way:
    if way.axis > 1:
        raise way.moved(f"{way.node.op} works along the axis")
    if any(tensor.consumers or tensor.is_output for tensor in way.node.outputs[1:] if tensor.name):
        raise way.moved(f"the second output of {way.node.op} is read")
    return way


def _max_pool(way: Way) -> list[Passage]:
    return _spatial(way).same(positive=True)


def _average_pool(way: Way) -> list[Passage]:
    node = way.node
    attrs = node.attrs
    unpadded = (
        not any(attrs.get("pads", ()))
        and attrs.get("auto_pad", "NOTSET") in {"NOTSET", "VALID"}
        and not attrs.get("ceil_mode", 0)
    )
    # Opset 1 leaves open whether the padding counts.
    ignored = node.graph.opset >= 7 and not attrs.get("count_include_pad", 0)
    return _spatial(way).same(no_shift=not (unpadded or ignored))


def _global_pool(way: Way) -> list[Passage]:
    return _spatial(way).same()


def _resize(way: Way) -> list[Passage]:
    node = way.node
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise way.moved("Resize fills up with a constant")
    x, y = node.inputs[0].shape, node.y.shape
    before = x[way.axis] if x is not None and way.axis < len(x) else None
    after = y[way.axis] if y is not None and way.axis < len(y) else None
    if isinstance(before, int) and before == after:
        return way.same()
    scales = node.attrs.get("scales")
    for position in (1, 2):
        values = way.constants.known(node.input(position), 16)
        if scales is None and values is not None and values.dtype.kind == "f":
            scales = values.tolist()
    if scales is None or node.attrs.get("axes") is not None or way.axis >= len(scales):
        raise way.unknown()
    if scales[way.axis] != 1:
        raise way.moved("Resize works along the channel axis")
    return way.same()


def _relu(way: Way) -> list[Passage]:
    return way.same(positive=True, no_shift=True)


def _reduce(way: Way) -> list[Passage]:
    node = way.node
    axes = axes_of(way, node.inputs[0].rank)
    if not axes:
        raise way.moved(f"{node.op} works along every axis")
    kept = bool(node.attrs.get("keepdims", 1))
    if kept or not way.up:
        if way.axis in axes:
            raise way.moved(f"{node.op} works along the channel axis")
        arrival = way.same() if kept else _inserted(way, axes, outwards=False)
    else:
        arrival = _inserted(way, axes, outwards=True)
    found = arrival[0]
    return [
        Passage(
            found.tensor,
            found.axis,
            positive=node.op in {"ReduceMax", "ReduceMin"},
            no_shift=node.op == "ReduceSum",
        )
    ]


def _expand(way: Way) -> list[Passage]:
    inner, outer = way.node.inputs[0].rank, way.node.y.rank
    if inner is None or outer is None:
        raise way.unknown()
    target = way.axis - (outer - inner) if way.up else way.axis + (outer - inner)
    if target < 0 or _extent(way, way.far, target) != way.channels:
        raise way.moved("Expand makes the channels")
    return way.to(target)


def _tile(way: Way) -> list[Passage]:
    repeats = way.constants.integers(way.node.input(1))
    if repeats is None or way.axis >= len(repeats):
        raise way.unknown()
    if repeats[way.axis] == 1:
        return way.same()
    if way.up:
        raise way.moved("Tile makes the channels")
    return way.to(way.axis, np.tile(np.arange(way.channels), repeats[way.axis]))


def _gather(way: Way) -> list[Passage]:
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


def _depth_to_space(way: Way) -> list[Passage]:
    block = int(way.node.attrs.get("blocksize", 1)) ** 2
    if way.axis != 1 or not way.up:
        raise way.moved("DepthToSpace spreads channels over the image")
    channels = np.arange(way.channels * block)
    if way.node.attrs.get("mode", "DCR") == "CRD":
        return way.to(1, channels // block)
    return way.to(1, channels % way.channels)


def _space_to_depth(way: Way) -> list[Passage]:
    block = int(way.node.attrs.get("blocksize", 1)) ** 2
    if way.axis != 1 or way.up:
        raise way.moved("SpaceToDepth gathers channels from the image")
    return way.to(1, np.arange(way.channels * block) % way.channels)


PASSAGES: dict[str, Handler] = {
    "Identity": _same,
    "Dropout": _dropout,
    "Cast": _cast,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _max_pool,
    "Resize": _resize,
    "Upsample": _resize,
    "Relu": _relu,
    "LeakyRelu": _relu,
    "PRelu": _relu,
    "ReduceMean": _reduce,
    "ReduceMax": _reduce,
    "ReduceMin": _reduce,
    "ReduceSum": _reduce,
    "Expand": _expand,
    "Tile": _tile,
    "Gather": _gather,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
