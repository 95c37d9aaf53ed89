"""GlobalResponseNorm: the L2 norm of each channel over space, divided by its mean over channels.

Woo et al., ConvNeXt V2 (2023). It is none of the five kinds, and is told apart from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.normalization import Form, Kind, Normalization
from normlint.recognise.reductions import axes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node


def response_norms(graph: Graph, constants: Constants) -> list[Normalization]:
    """Find every y = x * g / (mean(g) + epsilon) with g = ||x||."""
    return [
        norm
        for scope in graph.scopes()
        for node in scope.nodes
        if node.op == "Div" and node.is_standard and len(node.inputs) == 2
        for norm in _read(node, constants)
    ]


def _read(quotient: Node, constants: Constants) -> Iterator[Normalization]:
    norm, shifted = quotient.inputs
    added = shifted.producer
    if added is None or added.op != "Add" or len(added.inputs) != 2:
        return
    for mean, constant in (added.inputs, added.inputs[::-1]):
        epsilon = constants.scalar(constant)
        averaged = mean.producer
        if epsilon is None or averaged is None or averaged.op != "ReduceMean":
            continue
        length = norm.producer
        if averaged.inputs[0] is not norm or length is None or length.op != "ReduceL2":
            continue
        x = length.inputs[0]
        axes = _apart(length, averaged, x.rank, constants)
        if not axes:
            continue
        for product in quotient.y.consumers:
            if product.op == "Mul" and any(tensor is x for tensor in product.inputs):
                yield Normalization(
                    Kind.OTHER,
                    Form.DECOMPOSED,
                    (length, averaged, added, quotient, product),
                    x,
                    product.y,
                    tuple(axis - len(x.shape or ()) for axis in axes),
                    epsilon,
                    dtype=x.dtype,
                    statistics_dtype=norm.dtype,
                    centred=False,
                    constant=constants.is_constant(x),
                )


def _apart(
    length: Node, averaged: Node, rank: int | None, constants: Constants
) -> tuple[int, ...] | None:
    """Give the axes of the L2 norm where the mean of it goes over others, and all are kept."""
    if rank is None or not all(n.attrs.get("keepdims", 1) for n in (length, averaged)):
        return None
    axes, over = axes_of(length, rank, constants), axes_of(averaged, rank, constants)
    return axes if axes and over and set(axes).isdisjoint(over) else None
