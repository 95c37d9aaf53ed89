"""Operators that move channels about, or leave them where they are, and act on other axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.zero_mean_sites import (
    Site,
    Step,
    kept,
    known_product,
    same_extents,
    sites_of_width,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.constants import Constants
    from normlint.graph import Node

    Reader = Callable[[Node, Site, Constants], Step | None]


def _transpose(node: Node, out: Site, _: Constants) -> Step | None:
    order = node.attrs.get("perm", list(reversed(range(len(out.shape)))))
    x = node.inputs[0]
    if x.shape is None or not isinstance(order, list) or len(order) != len(out.shape):
        return None
    axes = sorted(order[axis] for axis in out.axes)
    if axes != list(range(axes[0], axes[-1] + 1)):
        return None
    found = Site(x, axes[0], axes[-1])
    return Step(node, ((0, found),)) if found.width == out.width else None


def _reshape(node: Node, out: Site, _: Constants) -> Step | None:
    """Read a change of shape that keeps the channels together, in the same order.

    The elements are in row-major order, so the channels stay where they are if as many elements
    come within them, or as many groups of them come before.
    """
    x = node.inputs[0]
    if x.shape is None:
        return None
    for found in sites_of_width(x, out.width):
        if _same_place(found, out):
            return Step(node, ((0, found),))
    return None


def _same_place(found: Site, out: Site) -> bool:
    inner = known_product(found.shape[found.last + 1 :])
    if inner is not None and inner == known_product(out.shape[out.last + 1 :]):
        return True
    before, after = found.shape[: found.first], out.shape[: out.first]
    outer = known_product(before)
    if outer is not None and outer == known_product(after):
        return True
    return same_extents(before, after)


def _concat(node: Node, out: Site, _: Constants) -> Step | None:
    if node.attrs.get("axis", 1) % len(out.shape) in out.axes:
        return None
    full: list[tuple[int, Site]] = []
    for place, tensor in enumerate(node.inputs):
        found = kept(node, out, place)
        if found is None or not tensor.name:
            return None
        full.extend(found.full)
    return Step(node, tuple(full))


def _part(node: Node, out: Site, _: Constants) -> Step | None:
    """Read Slice, Split and Expand: where the extents of the channels stay, so do the channels."""
    return kept(node, out)


def _split(node: Node, out: Site, _: Constants) -> Step | None:
    if node.attrs.get("axis", 0) % len(out.shape) in out.axes:
        return None
    return kept(node, out)


def _tile(node: Node, out: Site, _: Constants) -> Step | None:
    return kept(node, out) if node.graph.opset >= 6 else None


def _pad(node: Node, out: Site, constants: Constants) -> Step | None:
    rank = len(out.shape)
    axes = constants.integers(node.input(3)) if node.input(3) is not None else tuple(range(rank))
    pads = constants.integers(node.input(1)) if node.graph.opset >= 11 else _ints(node, "pads")
    if axes is None or pads is None or len(pads) != 2 * len(axes):
        return None
    for place, axis in enumerate(axes):
        if axis % rank in out.axes and (pads[place] or pads[place + len(axes)]):
            return None
    if node.attrs.get("mode", "constant") == "constant":
        value = node.attrs.get("value", 0.0) if node.graph.opset < 11 else 0.0
        if node.input(2) is not None:
            value = constants.scalar(node.input(2))
        if value != 0:
            return None
    return kept(node, out)


def _ints(node: Node, name: str) -> tuple[int, ...] | None:
    values = node.attrs.get(name)
    return tuple(values) if isinstance(values, list) else None


def _resize(node: Node, out: Site, constants: Constants) -> Step | None:
    if node.graph.opset < 11 or node.attrs.get("axes") is not None:
        return None
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    if node.input(2) is not None:
        scales = constants.known(node.input(2))
        if scales is None or scales.size != len(out.shape):
            return None
        if any(float(scales.reshape(-1)[axis]) != 1 for axis in out.axes):
            return None
    return kept(node, out)


def _pool(node: Node, out: Site, _: Constants) -> Step | None:
    return kept(node, out) if out.last <= 1 and out.tensor is node.outputs[0] else None


def _gather(node: Node, out: Site, _: Constants) -> Step | None:
    x = node.inputs[0]
    if x.shape is None:
        return None
    axis = node.attrs.get("axis", 0) % len(x.shape)
    more = len(out.shape) - len(x.shape)
    if out.last < axis:
        found = Site(x, out.first, out.last)
    elif out.first > axis + more:
        found = Site(x, out.first - more, out.last - more)
    else:
        return None
    return Step(node, ((0, found),)) if found.widths == out.widths else None


def _reduce(node: Node, out: Site, constants: Constants) -> Step | None:
    x = node.inputs[0]
    given = reduced_axes(node, constants)
    if x.shape is None or not given:
        return None
    rank = len(x.shape)
    reduced = {axis % rank for axis in given}
    left = list(range(rank))
    if not node.attrs.get("keepdims", 1):
        left = [axis for axis in left if axis not in reduced]
    if len(left) != len(out.shape):
        return None
    axes = [left[axis] for axis in out.axes]
    if not reduced.isdisjoint(range(axes[0], axes[-1] + 1)):
        return None
    found = Site(x, axes[0], axes[-1])
    return Step(node, ((0, found),)) if found.widths == out.widths else None


def reduced_axes(node: Node, constants: Constants) -> tuple[int, ...] | None:
    """Give the axes that a reduction names, as an attribute or an input; None where it does not."""
    if node.input(1) is not None:
        return constants.integers(node.input(1))
    return _ints(node, "axes")


MOVES: dict[str, Reader] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    **dict.fromkeys(("Slice", "Expand"), _part),
    **dict.fromkeys(("ReduceMean", "ReduceSum"), _reduce),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), _pool),
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Tile": _tile,
    "Pad": _pad,
    "Resize": _resize,
    "Gather": _gather,
}
