"""A large rewrite proved piece by piece, so that a piece's weights are all that is in memory.

A rewrite that centres a stream changes the tensors of the stream in a known way: their mean over
the channels is taken away. Cut there, its pieces are independent. The old nodes of a piece get any
values, the new ones the same without their means, and the results must agree without their means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from normlint.rule import Redirect
from normlint.verify.cut import find_region, replaced_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.rule import Edit, Rewrite
    from normlint.verify.runner import Feed, Run

    Array = np.ndarray[Any, Any]
    Axes = tuple[int, ...]

LARGE = 1 << 26
"""Bytes of weights above which a rewrite is proved in pieces."""


LARGEST_IN_DOUBLE = 1 << 26
"""Bytes of weights above which a few nodes are not run in double besides."""


def weights_of(model: onnx.ModelProto) -> int:
    """Count the bytes of the weights of a model."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def is_large(rewrite: Rewrite, constants: Constants) -> bool:
    """Whether a rewrite can be proved in pieces, and has too many weights for one."""
    if not rewrite.centred:
        return False
    return sum(_bytes(tensor) for tensor in find_region(rewrite, constants).constants) > LARGE


def _bytes(tensor: Tensor) -> int:
    extents = [extent for extent in tensor.shape or () if isinstance(extent, int)]
    width = onnx.helper.tensor_dtype_to_np_dtype(tensor.dtype).itemsize if tensor.dtype else 1
    return int(np.prod(extents, dtype=np.float64)) * width


def pieces(rewrite: Rewrite) -> Iterator[Rewrite]:
    """Give the pieces of a rewrite, cut at the tensors that are centred."""
    dropped = {edit.tensor for edit in rewrite.edits if isinstance(edit, Redirect)}
    border = {t: axes for t, axes in rewrite.centred.items() if t not in dropped}
    nodes = dict.fromkeys(rewrite.region)
    for tensor in replaced_tensors(rewrite.edits):
        if tensor.producer is not None:
            nodes.setdefault(tensor.producer)
    edits: dict[Node, list[Edit]] = {}
    for edit in rewrite.edits:
        maker = next(iter(replaced_tensors([edit]))).producer
        if maker is not None:
            edits.setdefault(maker, []).append(edit)
    for group in _groups(nodes, border):
        made = tuple(edit for node in group for edit in edits.get(node, ()))
        if made or any(tensor in border for node in group for tensor in node.inputs):
            yield replace(rewrite, edits=made, region=tuple(group), centred=border)


def _groups(nodes: Mapping[Node, None], border: Mapping[Tensor, Axes]) -> Iterator[list[Node]]:
    """Give the nodes in groups that tensors join which are no border."""
    readers: dict[Tensor, list[Node]] = {}
    for node in nodes:
        for tensor in node.inputs:
            if not tensor.is_constant and tensor not in border:
                readers.setdefault(tensor, []).append(node)
    seen: set[Node] = set()
    for start in nodes:
        if start in seen:
            continue
        group, pending = [], [start]
        seen.add(start)
        while pending:
            node = pending.pop()
            group.append(node)
            beside = [t.producer for t in node.inputs if t not in border]
            beside += [reader for t in node.outputs for reader in readers.get(t, ())]
            fresh = [n for n in dict.fromkeys(beside) if n is not None and n in nodes]
            pending.extend(n for n in fresh if n not in seen)
            seen.update(fresh)
        yield group


def without_means(run: Run, outputs: Sequence[Tensor], centred: Mapping[Tensor, Axes]) -> Run:
    """Give a run whose results at the border have no mean."""

    def running(feed: Feed) -> list[Array]:
        return [
            _without_mean(values, centred.get(tensor))
            for tensor, values in zip(outputs, run(feed), strict=True)
        ]

    return running


def of_centred(run: Run, inputs: Sequence[Tensor], centred: Mapping[Tensor, Axes]) -> Run:
    """Give a run whose inputs at the border have no mean."""
    axes = {tensor.name: centred.get(tensor) for tensor in inputs}

    def running(feed: Feed) -> list[Array]:
        return run({name: _without_mean(values, axes.get(name)) for name, values in feed.items()})

    return running


def _without_mean(values: Array, axes: Axes | None) -> Array:
    if axes is None or values.ndim < -min(axes):
        return values
    wide = values.astype(np.float64)
    return np.asarray((wide - wide.mean(axis=axes, keepdims=True)).astype(values.dtype))
