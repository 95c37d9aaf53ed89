"""Operators of com.microsoft that write a stream: the sums of skip norms, embeddings, products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.zero_mean_sites import Site, Step, roles

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Node

_TABLES = (2, 3, 4)
"""The tables of an EmbedLayerNormalization: of words, positions and segments."""


def _added(node: Node, out: Site, total: int, places: tuple[int, ...]) -> Step | None:
    """Read the sum that a skip norm computes; its result proper is no linear function of it."""
    if not _is_sum(node, out, total) or _gives_statistics(node):
        return None
    try:
        full, ones = roles(node, out, [place for place in places if node.input(place) is not None])
    except ValueError:
        return None
    return Step(node, tuple(full)) if full and not ones else None


def _is_sum(node: Node, out: Site, total: int) -> bool:
    given = node.output(total)
    if given is not None:
        return out.tensor is given and out.is_last
    return out.tensor not in node.outputs and out.is_last


def _gives_statistics(node: Node) -> bool:
    """Whether the mean and the deviation are read, which change with the sum."""
    others = [node.output(1), node.output(2)]
    return any(t is not None and (t.consumers or t.is_output) for t in others)


def _skip_layer(node: Node, out: Site) -> Step | None:
    return _added(node, out, 3, (0, 1, 4))


def _skip_rms(node: Node, out: Site) -> Step | None:
    return _added(node, out, 3, (0, 1, 3))


def _embedding(node: Node, out: Site) -> Step | None:
    if not _is_sum(node, out, 2) or out.first != out.last:
        return None
    full = []
    for place in _TABLES:
        table = node.input(place)
        if table is None:
            continue
        if table.shape is None or len(table.shape) != 2 or table.shape[1] != out.width:
            return None
        full.append((place, Site(table, 1, 1)))
    return Step(node, tuple(full)) if full else None


def _product(node: Node, out: Site) -> Step | None:
    """Read a FusedMatMul whose right operand makes the channels."""
    if any(node.attrs.get(name, 0) for name in ("transA", "transBatchA", "transBatchB")):
        return None
    right, left = node.inputs[1], node.inputs[0]
    if not out.is_last or out.first != out.last or left.shape is None or right.shape is None:
        return None
    rank = len(right.shape)
    axis = rank - 2 if node.attrs.get("transB", 0) else rank - 1
    if rank < 2 or len(left.shape) < 2 or right.shape[axis] != out.width:
        return None
    return Step(node, ((1, Site(right, axis, axis)),))


FUSED: dict[str, Callable[[Node, Site], Step | None]] = {
    "SkipLayerNormalization": _skip_layer,
    "SkipSimplifiedLayerNormalization": _skip_rms,
    "EmbedLayerNormalization": _embedding,
    "FusedMatMul": _product,
}
