"""Means that no reduction computes: a pool over the whole image, a product with equal weights.

Accelerators without reductions are given a MatMul with a column, or a Conv with one output channel,
of 1/N.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.recognise.parameter import static
from normlint.recognise.reductions import over

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.graph import Node
    from normlint.recognise.reading import Reading, Value


def averages(node: Node, constants: Constants) -> bool:
    """Whether an AveragePool, MatMul or Conv is a mean or a sum over axes of its first input."""
    if node.op == "AveragePool":
        return _is_of_all(node)
    if node.op not in {"MatMul", "Conv"} or len(node.inputs) != 2:
        return False
    shape = static(node.inputs[1].shape)
    if shape is None or not constants.is_constant(node.inputs[1]):
        return False
    if node.op == "MatMul":
        fits = len(shape) == 2 and shape[0] > 1 and shape[1] == 1
    else:
        fits = len(shape) > 2 and shape[0] == 1 < shape[1] and set(shape[2:]) == {1}
        fits = fits and _is_pointwise(node)
    return fits and bool(constants.uniform(node.inputs[1]))


def pooled_whole(reading: Reading, node: Node) -> Value | None:
    """Read an AveragePool whose window is the whole image."""
    value = reading.values[node.inputs[0]]
    if reading.is_open or not _is_of_all(node) or len(value.dims) != node.inputs[0].rank:
        return None
    return over(reading, value, tuple(range(2, len(value.dims))))


def weighted(reading: Reading, node: Node) -> Value | None:
    """Read a MatMul or a Conv that sums over the last axis or over the channels."""
    value = reading.values.get(node.inputs[0])
    if value is None or not averages(node, reading.constants):
        return None
    rank = len(value.dims)
    if node.op == "Conv" and (reading.is_open or rank != node.inputs[1].rank):
        return None
    total = over(reading, value, (rank - 1 if node.op == "MatMul" else 1,), total=True)
    weight = reading.constants.uniform(node.inputs[1])
    if total is None or weight is None:
        return None
    total.polynomial = reading.algebra.scale(total.polynomial, weight)
    return total


def _is_of_all(node: Node) -> bool:
    """Whether the window of a pool is the whole image, so that nothing is padded."""
    shape = static(node.inputs[0].shape) if node.inputs else None
    if shape is None or len(shape) < 3:
        return False
    return _integers(node, "kernel_shape") == shape[2:] and _is_unpadded(node)


def _is_pointwise(node: Node) -> bool:
    strides = set(_integers(node, "strides"))
    return strides <= {1} and node.attrs.get("group", 1) == 1 and _is_unpadded(node)


def _is_unpadded(node: Node) -> bool:
    automatic = node.attrs.get("auto_pad", "NOTSET")
    return not any(_integers(node, "pads")) and automatic in ("NOTSET", "VALID")


def _integers(node: Node, name: str) -> tuple[int, ...]:
    """Give an attribute of integers; a malformed file may hold anything under its name."""
    value = node.attrs.get(name)
    return tuple(value) if isinstance(value, (list, tuple)) else ()
