"""The nodes on which a rewrite of a stream is verified, and how exact it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.model import ValuesUnavailable
from normlint.rule import Replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Edit

_SHAPE_ONLY = frozenset(("Shape", "Size"))
_MOST_NODES = 5_000
_ROUNDING: dict[int, float] = {TensorProto.BFLOAT16: 5e-2, TensorProto.FLOAT16: 1e-2}
"""Relative error that weights of a type leave when they are rounded anew."""


def rounding(edits: Iterable[Edit]) -> float:
    """Give the relative error that rounding the new constants may cause, beyond that of float."""
    types = {
        tensor.dtype
        for edit in edits
        if isinstance(edit, Replace)
        for tensor in edit.tensors
        if tensor
    }
    return max((_ROUNDING[dtype] for dtype in types & _ROUNDING.keys()), default=0.0)


def with_readers(
    nodes: Iterable[Node], changed: Iterable[Tensor], norms: Iterable[Normalization]
) -> tuple[Node, ...]:
    """Give some nodes, and those that read changed values and do not mind.

    A norm that stays reads them with all its nodes, and a mean is subtracted by the next node.
    """
    found = dict.fromkeys(nodes)
    parts = {node: norm for norm in norms for node in norm.nodes}
    for tensor in changed:
        for reader in tensor.consumers:
            if reader in found:
                continue
            found.setdefault(reader)
            if reader in parts:
                found.update(dict.fromkeys(parts[reader].nodes))
            elif reader.op == "ReduceMean":
                found.update(dict.fromkeys(reader.y.consumers))
    return tuple(found)


def region(nodes: Iterable[Node], constants: Constants) -> tuple[Node, ...]:
    """Give some nodes with what is needed to run them on made-up inputs.

    That is what computes shapes and indices for them, for a made-up one would not fit; and what
    computes tensors whose extents are open, up to tensors whose extents are numbers, or those of
    the inputs.
    """
    found = dict.fromkeys(nodes)
    graph = next(iter(found)).graph
    names = {extent for tensor in graph.inputs for extent in tensor.shape or ()}
    pending = list(found)
    indices: set[Node] = set()
    while pending and len(found) < _MOST_NODES:
        node = pending.pop()
        for tensor in node.inputs:
            source = tensor.producer
            if source is None or source in found or source.graph is not graph:
                continue
            if constants.is_constant(tensor) and _is_known(tensor, constants):
                continue
            is_index = node in indices and node.op not in _SHAPE_ONLY
            if is_index or not tensor.is_float:
                indices.add(source)
            elif not _is_open(tensor, names):
                continue
            found.setdefault(source)
            pending.append(source)
    return tuple(found)


def _is_open(tensor: Tensor, names: set[int | str | None]) -> bool:
    """Whether extents are neither numbers nor those of an input."""
    if tensor.shape is None:
        return True
    return any(not isinstance(e, int) and (e is None or e not in names) for e in tensor.shape)


def _is_known(tensor: Tensor, constants: Constants) -> bool:
    """Whether a constant can be had without running the model; weights are not read for that."""
    if tensor.is_constant or tensor.is_float:
        return True
    try:
        constants.values(tensor)
    except ValuesUnavailable:
        return False
    return True
