"""Types and shapes of what the fused operators of transformers make: inference passes over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.graph import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Node, Shape, Tensor

    Extent = int | str | None

_SUM = 3
"""The output of a skip norm that holds what it normalises."""


def _skip(node: Node) -> dict[int, Shape | None]:
    return dict.fromkeys((0, _SUM), node.inputs[0].shape)


def _embedding(node: Node) -> dict[int, Shape | None]:
    ids, table = node.inputs[0].shape, node.inputs[2].shape
    return {} if not ids or not table else dict.fromkeys((0, 2), (*ids, table[-1]))


def _attention(node: Node) -> dict[int, Shape | None]:
    x, weights = node.inputs[0].shape, node.inputs[1].shape
    sizes = node.attrs.get("qkv_hidden_sizes")
    width: Extent = sizes[-1] if sizes else None
    if not sizes and weights and isinstance(weights[-1], int):
        width = weights[-1] // 3
    return {0: (*x[:2], width)} if x and width else {}


def _heads(node: Node) -> dict[int, Shape | None]:
    query, value = node.inputs[0].shape, node.input(2)
    if query is None or value is None or value.shape is None:
        return {}
    return {0: (*query[:2], value.shape[-1])} if len(query) == len(value.shape) == 3 else {}


def _product(node: Node) -> dict[int, Shape | None]:
    left, right = node.inputs[0].shape, node.inputs[1].shape
    turned = any(node.attrs.get(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
    if left is None or right is None or len(right) != 2 or len(left) < 2 or turned:
        return {}
    return {0: (*left[:-1], right[0 if node.attrs.get("transB", 0) else 1])}


def _gemm(node: Node) -> dict[int, Shape | None]:
    left, right = node.inputs[0].shape, node.inputs[1].shape
    if left is None or right is None or len(left) != 2 or len(right) != 2:
        return {}
    rows = left[1 if node.attrs.get("transA", 0) else 0]
    return {0: (rows, right[0 if node.attrs.get("transB", 0) else 1])}


def _conv(node: Node) -> dict[int, Shape | None]:
    x, weight = node.inputs[0].shape, node.inputs[1].shape
    return {0: (x[0], weight[0], *(None,) * (len(x) - 2))} if x and weight else {}


FUSED: dict[str, Callable[[Node], dict[int, Shape | None]]] = {
    "SkipLayerNormalization": _skip,
    "SkipSimplifiedLayerNormalization": _skip,
    "EmbedLayerNormalization": _embedding,
    "Attention": _attention,
    "MultiHeadAttention": _heads,
    "FusedMatMul": _product,
    "FusedGemm": _gemm,
    "FusedConv": _conv,
}


def complete_fused(node: Node) -> None:
    """Give the results of an operator of com.microsoft the types and shapes that follow."""
    from normlint.context.shapes import merged

    dtype = _type(node)
    for place, shape in FUSED[node.op](node).items():
        y = node.output(place)
        if not isinstance(y, Variable):
            continue
        y.dtype = y.dtype or dtype
        y.shape = merged(y.shape, shape)


def _type(node: Node) -> int:
    floats: list[Tensor] = [tensor for tensor in node.inputs if tensor.is_float]
    return floats[0].dtype if floats else 0
