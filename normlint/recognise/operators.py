"""What each operator does to normal forms. One reader for an operator serves every rule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from normlint.algebra import HALF, ONE
from normlint.graph import FLOATS
from normlint.recognise.averages import pooled_whole, weighted
from normlint.recognise.bounds import absolute, clip, maximum, where
from normlint.recognise.counts import count
from normlint.recognise.layout import Clash
from normlint.recognise.reading import Value, is_weight, made
from normlint.recognise.reductions import contracted, over, pooled, reduced
from normlint.recognise.relayout import (
    expand,
    flatten,
    gather,
    reshape,
    squeeze,
    tile,
    transpose,
    unsqueeze,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.algebra import Dims, Polynomial
    from normlint.graph import Node, Tensor
    from normlint.recognise.reading import Reading

    Reader: TypeAlias = Callable[[Reading, Node], Value | None]
    Pair: TypeAlias = tuple[Polynomial, Polynomial, Dims, str | None, int]


def _same(reading: Reading, node: Node) -> Value | None:
    return reading.values.get(node.inputs[0])


def _dropout(reading: Reading, node: Node) -> Value | None:
    mode = node.input(2)
    if mode is not None and reading.constants.scalar(mode) != 0:
        return None
    return _same(reading, node)


def _cast(reading: Reading, node: Node) -> Value | None:
    return _same(reading, node) if is_float_cast(node) else None


def is_float_cast(node: Node) -> bool:
    """Whether a Cast or CastLike goes from one float type to another."""
    target = node.attrs.get("to") or node.outputs[0].dtype
    return target in FLOATS and node.inputs[0].dtype in FLOATS | {0}


def _dequantize(reading: Reading, node: Node) -> Value | None:
    producer = node.inputs[0].producer
    if producer is None or producer.op != "QuantizeLinear":
        return None
    return _same(reading, node)


def _pair(reading: Reading, node: Node, *, dynamic: bool) -> Pair | None:
    """Give both operands of an elementwise operator and the layout of its result."""
    if len(node.inputs) != 2:
        return None
    first, second = node.inputs
    left, right = reading.values.get(first), reading.values.get(second)
    if left is not None and right is not None:
        return _both(reading, left, right)
    known, other = (left, second) if left is not None else (right, first)
    if known is None:
        return None
    placed = _placed(reading, other, known, dynamic=dynamic)
    if placed is None:
        return None
    polynomial, dims = placed
    dims = reading.layout.broadcast(known.dims, dims)
    operands = (
        (known.polynomial, polynomial) if left is not None else (polynomial, known.polynomial)
    )
    return (*operands, dims, known.flaw, known.depth + 1)


def _both(reading: Reading, left: Value, right: Value) -> Pair | None:
    flaw = left.flaw or right.flaw
    depth = max(left.depth, right.depth) + 1
    try:
        dims = reading.layout.broadcast(left.dims, right.dims)
    except Clash as clash:
        with_x = [reading.has_x(value.polynomial) for value in (left, right)]
        if all(with_x) or not any(with_x):
            return None
        flaw = clash.reason
        dims = left.dims if with_x[0] else right.dims
    return left.polynomial, right.polynomial, dims, flaw, depth


def _placed(
    reading: Reading, tensor: Tensor, beside: Value, *, dynamic: bool
) -> tuple[Polynomial, Dims] | None:
    if reading.constants.is_constant(tensor):
        return reading.constant(tensor, beside)
    counted = _counted(reading, tensor)
    if counted is not None:
        return counted, ((),) * (tensor.rank or 0)
    return reading.dynamic(tensor, beside) if dynamic or is_weight(tensor) else None


def _counted(reading: Reading, tensor: Tensor) -> Polynomial | None:
    """Give a number that the graph computes from the extents of x."""
    shape = tensor.shape
    if shape is not None and any(extent != 1 for extent in shape):
        return None
    return count(reading, tensor)


def _sum(sign: float, reading: Reading, node: Node) -> Value | None:
    pair = _pair(reading, node, dynamic=False)
    if pair is None:
        return None
    left, right, dims, flaw, depth = pair
    return made(reading.algebra.add(left, right, sign), dims, flaw, depth)


def _product(reading: Reading, node: Node) -> Value | None:
    pair = _pair(reading, node, dynamic=True)
    if pair is None:
        return None
    left, right, dims, flaw, depth = pair
    return made(reading.algebra.multiply(left, right), dims, flaw, depth)


def _quotient(reading: Reading, node: Node) -> Value | None:
    pair = _pair(reading, node, dynamic=True)
    if pair is None:
        return None
    left, right, dims, flaw, depth = pair
    if reading.has_x(right) and not reading.has_x(left):
        # Only a look-alike reads on: a root of x's statistics divided by x.
        left, right, flaw = right, left, "operand-order"
        if not any(monomial for monomial in right):
            return None
    inverse = reading.algebra.power(right, -1)
    if inverse is None:
        return None
    return made(reading.algebra.multiply(left, inverse), dims, flaw, depth)


def _variadic_sum(reading: Reading, node: Node) -> Value | None:
    known = [value for tensor in node.inputs if (value := reading.values.get(tensor)) is not None]
    total = known[0]
    flaw = next((value.flaw for value in known if value.flaw), None)
    polynomial: Polynomial | None = total.polynomial
    dims = total.dims
    first = True
    for tensor in node.inputs:
        value = reading.values.get(tensor)
        if value is total and first:
            first = False
            continue
        if value is not None:
            term, layout = value.polynomial, value.dims
        else:
            placed = _placed(reading, tensor, total, dynamic=False)
            if placed is None:
                return None
            term, layout = placed
        dims = reading.layout.broadcast(dims, layout)
        polynomial = None if polynomial is None else reading.algebra.add(polynomial, term)
    return made(polynomial, dims, flaw, max(value.depth for value in known) + 1)


def _negative(reading: Reading, node: Node) -> Value | None:
    value = reading.values[node.inputs[0]]
    polynomial = reading.algebra.scale(value.polynomial, -1.0)
    return Value(polynomial, value.dims, value.flaw, value.depth + 1)


def _raised(exponent: float, reading: Reading, node: Node) -> Value | None:
    value = reading.values[node.inputs[0]]
    polynomial = reading.algebra.power(value.polynomial, exponent)
    return made(polynomial, value.dims, value.flaw, value.depth + 1)


def _power(reading: Reading, node: Node) -> Value | None:
    value = reading.values.get(node.inputs[0])
    exponent = reading.constants.uniform(node.input(1))
    if value is None or exponent is None:
        return None
    flaw = value.flaw
    if exponent > 2 and float(exponent).is_integer() and reading.has_x(value.polynomial):
        exponent, flaw = 2, "exponent"
    shape = node.inputs[1].shape
    dims = value.dims
    if shape is not None and any(extent != 1 for extent in shape):
        dims = reading.layout.broadcast(dims, reading.layout.place(shape, dims))
    return made(reading.algebra.power(value.polynomial, exponent), dims, flaw, value.depth + 1)


def _root_mean_square(reading: Reading, node: Node) -> Value | None:
    """Read an RMSNormalization of a difference from the mean: half of a LayerNorm was fused."""
    value = reading.values.get(node.inputs[0])
    scale = node.input(1)
    if value is None or len(value.polynomial) < 2:
        return None
    rank = len(value.dims)
    axis = node.attrs.get("axis", -1)
    if not -rank <= axis < rank or (axis >= 0 and reading.is_open):
        return None
    algebra = reading.algebra
    square = over(reading, value, tuple(range(axis % rank, rank)), power=2)
    if square is None:
        return None
    shifted = algebra.add(square.polynomial, {ONE: float(node.attrs.get("epsilon", 1e-5))})
    root = None if shifted is None else algebra.power(shifted, -HALF)
    polynomial = None if root is None else algebra.multiply(value.polynomial, root)
    dims = value.dims
    if scale is not None and polynomial is not None:
        placed = _placed(reading, scale, value, dynamic=True)
        if placed is None:
            return None
        dims = reading.layout.broadcast(dims, placed[1])
        polynomial = algebra.multiply(polynomial, placed[0])
    return made(polynomial, dims, value.flaw, value.depth + 1)


READERS: dict[str, Reader] = {
    "Abs": absolute,
    "Add": partial(_sum, 1.0),
    "AveragePool": pooled_whole,
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": clip,
    "Conv": weighted,
    "DequantizeLinear": _dequantize,
    "Div": _quotient,
    "Dropout": _dropout,
    "Einsum": contracted,
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GlobalAveragePool": pooled,
    "Identity": _same,
    "MatMul": weighted,
    "Max": maximum,
    "Mul": _product,
    "Neg": _negative,
    "Pow": _power,
    "QuantizeLinear": _same,
    "RMSNormalization": _root_mean_square,
    "Reciprocal": partial(_raised, -1),
    "ReduceL2": partial(reduced, power=2, total=True, root=True),
    "ReduceMean": partial(reduced, total=False),
    "ReduceSum": partial(reduced, total=True),
    "ReduceSumSquare": partial(reduced, power=2, total=True),
    "Relu": absolute,
    "Reshape": reshape,
    "SimplifiedLayerNormalization": _root_mean_square,
    "Sqrt": partial(_raised, HALF),
    "Squeeze": squeeze,
    "Sub": partial(_sum, -1.0),
    "Sum": _variadic_sum,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    "Where": where,
}
"""Operators that the algebra reads, all of ai.onnx."""
