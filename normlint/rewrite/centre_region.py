"""The nodes on which a rewrite of a stream is verified, and how exact it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.rule import Replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Edit

_ROUNDING = {TensorProto.BFLOAT16: 5e-2, TensorProto.FLOAT16: 1e-2}
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
    """Give some nodes and those that compute shapes and indices for them.

    A shape that is made up does not fit the tensors; one that is computed does.
    """
    found = dict.fromkeys(nodes)
    pending = list(found)
    while pending:
        for tensor in pending.pop().inputs:
            node = tensor.producer
            if node is None or node in found or tensor.is_float or not tensor.dtype:
                continue
            if constants.is_constant(tensor) or node.graph is not next(iter(found)).graph:
                continue
            found.setdefault(node)
            pending.append(node)
    return tuple(found)
