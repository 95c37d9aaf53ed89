"""What each operator does to normal forms. One reader for an operator serves every rule."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from normlint.algebra import HALF, ONE
from normlint.graph import FLOATS
from normlint.recognise.layout import FREE, Clash
from normlint.recognise.reading import Value, is_overridable

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.algebra import Dims, Polynomial
    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.recognise.reading import Reading

    Reader: TypeAlias = Callable[[Reading, Node], Value | None]
    Pair: TypeAlias = tuple[Polynomial, Polynomial, Dims, str | None, int]

_HUGE = 1e30
"""An upper bound from here on is no bound: exporters write the largest number of the type."""


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
    return reading.dynamic(tensor, beside) if dynamic or is_overridable(tensor) else None


def _made(polynomial: Polynomial | None, dims: Dims, flaw: str | None, depth: int) -> Value | None:
    return None if polynomial is None else Value(polynomial, dims, flaw, depth)


def _sum(sign: float, reading: Reading, node: Node) -> Value | None:
    pair = _pair(reading, node, dynamic=False)
    if pair is None:
        return None
    left, right, dims, flaw, depth = pair
    return _made(reading.algebra.add(left, right, sign), dims, flaw, depth)


def _product(reading: Reading, node: Node) -> Value | None:
    pair = _pair(reading, node, dynamic=True)
    if pair is None:
        return None
    left, right, dims, flaw, depth = pair
    return _made(reading.algebra.multiply(left, right), dims, flaw, depth)


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
    return _made(reading.algebra.multiply(left, inverse), dims, flaw, depth)


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
    return _made(polynomial, dims, flaw, max(value.depth for value in known) + 1)


def _negative(reading: Reading, node: Node) -> Value | None:
    value = reading.values[node.inputs[0]]
    polynomial = reading.algebra.scale(value.polynomial, -1.0)
    return Value(polynomial, value.dims, value.flaw, value.depth + 1)


def _raised(exponent: float, reading: Reading, node: Node) -> Value | None:
    value = reading.values[node.inputs[0]]
    polynomial = reading.algebra.power(value.polynomial, exponent)
    return _made(polynomial, value.dims, value.flaw, value.depth + 1)


def _power(reading: Reading, node: Node) -> Value | None:
    value = reading.values.get(node.inputs[0])
    exponent = reading.constants.uniform(node.input(1))
    if value is None or exponent is None:
        return None
    flaw = value.flaw
    if exponent > 2 and exponent == int(exponent) and reading.has_x(value.polynomial):
        exponent, flaw = 2, "exponent"
    shape = node.inputs[1].shape
    dims = value.dims
    if shape is not None and any(extent != 1 for extent in shape):
        dims = reading.layout.broadcast(dims, reading.layout.place(shape, dims))
    return _made(reading.algebra.power(value.polynomial, exponent), dims, flaw, value.depth + 1)


def _absolute(reading: Reading, node: Node) -> Value | None:
    return _clip(reading, node, 0.0)


def _clip(reading: Reading, node: Node, bound: float) -> Value | None:
    value = reading.values.get(node.inputs[0])
    if value is None:
        return None
    polynomial = reading.algebra.clipped(value.polynomial, bound)
    return _made(polynomial, value.dims, value.flaw, value.depth + 1)


def _clip_both(reading: Reading, node: Node) -> Value | None:
    constants = reading.constants
    low: float | None = node.attrs.get("min")
    high: float | None = node.attrs.get("max")
    for position in (1, 2):
        tensor = node.input(position)
        if tensor is None:
            continue
        number = constants.uniform(tensor)
        if number is None:
            return None
        low, high = (number, high) if position == 1 else (low, number)
    if high is not None and high < _HUGE and not _is_largest(high, node.inputs[0].dtype):
        return None
    return _same(reading, node) if low is None else _clip(reading, node, low)


def _is_largest(bound: float, dtype: int) -> bool:
    """Whether it is the largest number of half precision."""
    return dtype == 10 and bound >= 65504


def _maximum(reading: Reading, node: Node) -> Value | None:
    known = [tensor for tensor in node.inputs if tensor in reading.values]
    if len(known) != 1:
        return None
    value = reading.values[known[0]]
    dims = value.dims
    bound = None
    for tensor in node.inputs:
        if tensor is known[0]:
            continue
        number = reading.constants.uniform(tensor)
        if number is None:
            return None
        shape = reading.constants.values(tensor).shape
        dims = reading.layout.broadcast(dims, reading.layout.place(shape, dims))
        bound = number if bound is None else max(bound, number)
    polynomial = value.polynomial
    clipped = polynomial if bound is None else reading.algebra.clipped(polynomial, bound)
    return _made(clipped, dims, value.flaw, value.depth + 1)


def _where(reading: Reading, node: Node) -> Value | None:
    condition = reading.constants.uniform(node.inputs[0])
    if condition is None:
        return None
    value = reading.values.get(node.inputs[1 if condition else 2])
    other = node.inputs[2 if condition else 1]
    if value is None or other in reading.values:
        return None
    dims = value.dims
    for tensor in (node.inputs[0], other):
        if tensor.shape is None:
            return None
        dims = reading.layout.broadcast(dims, reading.layout.place(tensor.shape, dims))
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def axes_of(
    node: Node, rank: int, constants: Constants, *, is_open: bool = False
) -> tuple[int, ...] | None:
    """Give the axes of a reduction, Squeeze or Unsqueeze from the front, empty where none is given.

    None where they are not known, or with `is_open` counted from the front of an unknown rank.
    """
    axes = node.attrs.get("axes")
    if axes is None and node.input(1) is not None:
        axes = constants.integers(node.inputs[1])
        if axes is None:
            return None
    if axes is None:
        return ()
    if any(not -rank <= axis < rank or (axis >= 0 and is_open) for axis in axes):
        return None
    return tuple(sorted({axis % rank for axis in axes}))


def _axes(reading: Reading, node: Node, rank: int) -> tuple[int, ...] | None:
    return axes_of(node, rank, reading.constants, is_open=reading.is_open)


def _reduced(
    reading: Reading, node: Node, *, power: float = 1, total: bool, root: bool = False
) -> Value | None:
    value = reading.values.get(node.inputs[0])
    if value is None:
        return None
    rank = len(value.dims)
    axes = _axes(reading, node, rank)
    if axes is None or (
        not axes and (reading.is_open or node.attrs.get("noop_with_empty_axes", 0))
    ):
        return None
    axes = axes or tuple(range(rank))
    kept = bool(node.attrs.get("keepdims", 1))
    return _over(reading, value, axes, kept=kept, power=power, total=total, root=root)


def _over(
    reading: Reading,
    value: Value,
    axes: tuple[int, ...],
    *,
    kept: bool = True,
    power: float = 1,
    total: bool = False,
    root: bool = False,
) -> Value | None:
    algebra = reading.algebra
    over = frozenset(axis for position in axes for axis in value.dims[position])
    reading.note_axes(value.dims, axes, over)
    polynomial = algebra.power(value.polynomial, power)
    polynomial = None if polynomial is None else algebra.mean(polynomial, over)
    if polynomial is not None and total:
        polynomial = algebra.multiply(polynomial, algebra.count(over))
    if polynomial is not None and root:
        polynomial = algebra.power(polynomial, HALF)
    dims = tuple(
        FREE if position in axes else entry
        for position, entry in enumerate(value.dims)
        if kept or position not in axes
    )
    return _made(polynomial, dims, value.flaw, value.depth + 1)


def _pooled(reading: Reading, node: Node) -> Value | None:
    value = reading.values[node.inputs[0]]
    if len(value.dims) < 3 or reading.is_open:
        return None
    return _over(reading, value, tuple(range(2, len(value.dims))))


def _reshape(reading: Reading, node: Node) -> Value | None:
    value = reading.values.get(node.inputs[0])
    if value is None or reading.is_open:
        return None
    target = _target(reading, node, value)
    if target is None:
        return None
    dims = reading.layout.reshaped(value.dims, target)
    return None if dims is None else Value(value.polynomial, dims, value.flaw, value.depth + 1)


def _target(reading: Reading, node: Node, value: Value) -> tuple[int | str | None, ...] | None:
    """Give the extents that a Reshape makes, as far as they are known."""
    wished = reading.constants.integers(node.input(1))
    shape = node.outputs[0].shape
    if wished is None:
        return shape
    extents: list[int | str | None] = list(wished)
    if not node.attrs.get("allowzero", 0):
        for position, extent in enumerate(wished):
            if extent == 0 and position < len(value.dims):
                entry = value.dims[position]
                extents[position] = reading.layout.extent(entry) if entry else 1
    if shape is not None and len(shape) == len(extents):
        for position, known in enumerate(shape):
            if extents[position] in {-1, None} and known is not None:
                extents[position] = known
    return tuple(None if extent == -1 else extent for extent in extents)


def _flatten(reading: Reading, node: Node) -> Value | None:
    value = reading.values[node.inputs[0]]
    if reading.is_open:
        return None
    axis = node.attrs.get("axis", 1)
    axis = axis + len(value.dims) if axis < 0 else axis
    dims = tuple(
        tuple(axis for entry in part for axis in entry)
        for part in (value.dims[:axis], value.dims[axis:])
    )
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def _squeeze(reading: Reading, node: Node) -> Value | None:
    value = reading.values.get(node.inputs[0])
    if value is None:
        return None
    axes = _axes(reading, node, len(value.dims))
    if axes is None or (not axes and reading.is_open):
        return None
    axes = axes or tuple(p for p, entry in enumerate(value.dims) if entry == FREE)
    if any(value.dims[position] for position in axes):
        return None
    dims = tuple(entry for position, entry in enumerate(value.dims) if position not in axes)
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def _unsqueeze(reading: Reading, node: Node) -> Value | None:
    value = reading.values.get(node.inputs[0])
    given = node.attrs.get("axes") or reading.constants.integers(node.input(1))
    if value is None or not given:
        return None
    axes = _axes(reading, node, len(value.dims) + len(given))
    if axes is None:
        return None
    entries = list(value.dims)
    for position in axes:
        entries.insert(position, FREE)
    return Value(value.polynomial, tuple(entries), value.flaw, value.depth + 1)


def _transpose(reading: Reading, node: Node) -> Value | None:
    value = reading.values[node.inputs[0]]
    rank = len(value.dims)
    if reading.is_open:
        return None
    order = node.attrs.get("perm") or tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        return None
    dims = tuple(value.dims[position] for position in order)
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


def _expand(reading: Reading, node: Node) -> Value | None:
    value = reading.values.get(node.inputs[0])
    shape = reading.constants.integers(node.input(1)) or node.outputs[0].shape
    if value is None or shape is None or reading.is_open:
        return None
    dims = reading.layout.broadcast(value.dims, reading.layout.place(shape, value.dims))
    return Value(value.polynomial, dims, value.flaw, value.depth + 1)


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
    square = _over(reading, value, tuple(range(axis % rank, rank)), power=2)
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
    return _made(polynomial, dims, value.flaw, value.depth + 1)


READERS: dict[str, Reader] = {
    "Abs": _absolute,
    "Add": partial(_sum, 1.0),
    "Cast": _cast,
    "CastLike": _cast,
    "Clip": _clip_both,
    "DequantizeLinear": _dequantize,
    "Div": _quotient,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "GlobalAveragePool": _pooled,
    "Identity": _same,
    "Max": _maximum,
    "Mul": _product,
    "Neg": _negative,
    "Pow": _power,
    "QuantizeLinear": _same,
    "RMSNormalization": _root_mean_square,
    "Reciprocal": partial(_raised, -1),
    "ReduceL2": partial(_reduced, power=2, total=True, root=True),
    "ReduceMean": partial(_reduced, total=False),
    "ReduceSum": partial(_reduced, total=True),
    "ReduceSumSquare": partial(_reduced, power=2, total=True),
    "Relu": _absolute,
    "Reshape": _reshape,
    "SimplifiedLayerNormalization": _root_mean_square,
    "Sqrt": partial(_raised, HALF),
    "Squeeze": _squeeze,
    "Sub": partial(_sum, -1.0),
    "Sum": _variadic_sum,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operators that the algebra reads, all of ai.onnx."""
