"""Which operators let values per channel pass, and how: one short function for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.axes import reshaped, through_reshape
from normlint.context.linear import Passage
from normlint.context.pieces import (
    concat,
    depth_to_space,
    expand,
    gather,
    pad,
    slice_,
    space_to_depth,
    split,
    tile,
)
from normlint.graph import FLOATS

if TYPE_CHECKING:
    from normlint.context.linear import Handler, Way


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


PASSAGES: dict[str, Handler] = {
    "Identity": _same,
    "Dropout": _dropout,
    "Cast": _cast,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Pad": pad,
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
    "Expand": expand,
    "Tile": tile,
    "Gather": gather,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
