"""A LayerNorm over axis 1: Transposes around the operator, which knows the last axes only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rewrite.demands import (
    OPSETS,
    Impossible,
    demand_along,
    demand_opset,
    demand_plain,
    refuse,
    working_type,
)
from normlint.rewrite.norm_ops import large_mean_error
from normlint.rewrite.vectors import Vectors
from normlint.rule import (
    Applicability,
    NewNode,
    NotFixed,
    Reason,
    Redirect,
    Replace,
    Rewrite,
)

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.graph import Node
    from normlint.normalization import Normalization
    from normlint.rule import Edit, Operand


def channels_first_layer_norm(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Replace a LayerNorm over axis 1 by LayerNormalization between Transposes.

    A Transpose that stands there already and cancels is left out.
    """
    try:
        return _between_transposes(context, norm)
    except Impossible as impossible:
        return impossible.reason


def _between_transposes(context: Context, norm: Normalization) -> Rewrite:
    demand_opset(context, norm, "LayerNormalization")
    demand_plain(norm)
    shape, rank = norm.x.shape, norm.x.rank
    channels = None if shape is None or len(shape) < 3 else shape[1]
    work = working_type(norm)
    if rank is None or not isinstance(channels, int) or norm.permutation is not None:
        raise refuse(Reason.SHAPE_UNKNOWN, norm.x, "the number of channels is not known")
    if norm.x.dtype != work or norm.y.dtype not in {0, work}:
        raise refuse(Reason.TYPE_MISMATCH, norm.anchor, "x, scale and y have several types")
    for parameter in (norm.scale, norm.bias):
        demand_along(norm, parameter, (1 - rank,))
    vectors = Vectors(work, (channels,), norm)
    inputs: list[Operand] = [_channels_last(norm, rank), vectors.scale(norm.scale)]
    if norm.bias is not None:
        inputs.append(vectors.give(norm.bias, "bias"))
    attrs = {"axis": -1, "epsilon": norm.epsilon}
    made = NewNode("LayerNormalization", tuple(inputs), attrs, like=norm.anchor)
    saved = cancelling(norm)
    title = "replace by LayerNormalization between Transposes"
    before = _transpose_before(norm, rank)
    return Rewrite(
        f"{title}, of which {saved} cancel" if saved else title,
        Applicability.UNSAFE,
        _edits(norm, made, rank),
        norm.nodes if before is None else (before, *norm.nodes),
        OPSETS["LayerNormalization"],
        tolerance=large_mean_error("LayerNormalization", work),
    )


def _to_last(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


def _to_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _transpose_before(norm: Normalization, rank: int) -> Node | None:
    before = norm.x.producer
    return before if before is not None and _is_transpose(before, _to_first(rank)) else None


def _channels_last(norm: Normalization, rank: int) -> Operand:
    before = _transpose_before(norm, rank)
    if before is not None:
        return before.inputs[0]
    return NewNode("Transpose", (norm.x,), {"perm": _to_last(rank)}, like=norm.anchor)


def _is_transpose(node: Node, perm: list[int]) -> bool:
    return node.op == "Transpose" and node.is_standard and node.attrs.get("perm") == perm


def _cancelling_readers(norm: Normalization, rank: int) -> list[Node]:
    return [node for node in norm.y.consumers if _is_transpose(node, _to_last(rank))]


def cancelling(norm: Normalization) -> int:
    """Count the sides, of two, on which a Transpose stands already that cancels."""
    rank = norm.x.rank or 0
    sides = (_transpose_before(norm, rank), _cancelling_readers(norm, rank))
    return sum(bool(side) for side in sides)


def _edits(norm: Normalization, made: NewNode, rank: int) -> tuple[Edit, ...]:
    edits: list[Edit] = []
    readers = _cancelling_readers(norm, rank)
    if readers:
        edits.append(Replace((readers[0].y,), made))
        edits += [Redirect(reader.y, readers[0].y) for reader in readers[1:]]
    if not readers or norm.y.is_output or len(norm.y.consumers) > len(readers):
        back = NewNode("Transpose", (made,), {"perm": _to_first(rank)}, like=norm.anchor)
        edits.append(Replace((norm.y,), back))
    return tuple(edits)
