"""Shapes that inference leaves open, because it does not follow computed targets of Reshape."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from normlint.context.fused_shapes import FUSED, complete_fused
from normlint.context.integer_shapes import OPERANDS, complete_integers
from normlint.graph import Variable
from normlint.recognise.extents import numbers, reshaped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Shape

    Reader = Callable[[Node, list[Shape], Constants], Shape | None]
    Extent = int | str | None

_SAME = (
    *("Identity", "Cast", "CastLike", "Dropout", "Neg", "Relu", "Gelu", "Erf", "Tanh", "Sigmoid"),
    *("Sqrt", "Exp", "Log", "Abs", "Clip", "Softmax", "LogSoftmax", "LayerNormalization"),
    *("RMSNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization"),
    *("Softplus", "HardSigmoid", "HardSwish", "Elu", "Selu", "LeakyRelu", "PRelu", "Reciprocal"),
    *("QuantizeLinear", "DequantizeLinear", "Floor", "Ceil", "Round", "Not", "Softsign", "Mish"),
)
_MICROSOFT = frozenset(
    ("QuickGelu", "FastGelu", "Gelu", "BiasGelu", "SimplifiedLayerNormalization")
)
"""Operators of com.microsoft whose first output is like their first input."""
_CASTS = frozenset(("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"))
_TESTS = frozenset(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or"))
_BROADCAST = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Sum", "Where", "Max", "Min", "Mean"),
    *("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or"),
)


_MOST_ROUNDS = 4
_MOST_KEPT = 4096
"""Shapes of which results are kept: a model has few, and thousands of tensors of each."""


def complete_shapes(graph: Graph, constants: Constants) -> None:
    """Give tensors of unknown shape the shape that follows from their producers.

    Extents that become known are constants, which are the targets of further operators.
    """
    for _ in range(_MOST_ROUNDS):
        for scope in graph.scopes():
            for node in scope.nodes:
                _complete_node(node, constants)
        if not constants.extend(graph):
            return


def _complete_node(node: Node, constants: Constants) -> None:
    if node.op in OPERANDS and node.outputs:
        complete_integers(node)
    elif node.op in FUSED and node.domain == "com.microsoft":
        with suppress(LookupError, TypeError):
            complete_fused(node)
    elif node.op in _READERS and (node.is_standard or node.op in _MICROSOFT):
        y = node.outputs[0] if node.outputs else None
        if not isinstance(y, Variable):
            return
        if not y.dtype:
            _complete_type(node, y)
        if not y.name or _is_static(y.shape):
            return
        # A file may hold any nonsense, and what follows from that is not known.
        with suppress(ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            _complete(node, y, constants)


def _complete_type(node: Node, y: Variable) -> None:
    """Give the result of arithmetic the type of an operand, where inference stopped before it."""
    if node.op == "Cast" and isinstance(node.attrs.get("to"), int):
        y.dtype = node.attrs["to"]
    if node.op in _CASTS | _TESTS:
        return
    operands = node.inputs[1:] if node.op == "Where" else node.inputs
    wanted = operands[:1] if node.op in _FROM_FIRST else operands
    y.dtype = next((tensor.dtype for tensor in wanted if tensor.dtype), 0)


def _complete(node: Node, y: Variable, constants: Constants) -> None:
    if y.is_float and constants.is_constant(y):
        values = constants.known(y)
        y.shape = y.shape if values is None else values.shape
    if not _is_static(y.shape):
        y.shape = merged(y.shape, _derived(node, constants))


def _derived(node: Node, constants: Constants) -> Shape | None:
    """Give the shape that follows from the operands."""
    given = [tensor.shape for tensor in node.inputs if tensor.name]
    if node.op == "Reshape":
        target = reshaped(node, constants)
        return None if target is None else tuple(_plain(extent) for extent in target)
    first = node.inputs[0].shape if node.inputs else None
    if first is None and node.op not in _BROADCAST and node.op != "Concat":
        return None
    return _READERS[node.op](node, [s for s in given if s is not None], constants)


def merged(declared: Shape | None, derived: Shape | None) -> Shape | None:
    """Keep what is declared, but for extents that are not numbers there and are here."""
    if declared == derived:
        return declared
    if declared is None or derived is None or len(declared) != len(derived):
        return derived if declared is None else declared
    return tuple(
        found if isinstance(found, int) and not isinstance(given, int) else given
        for given, found in zip(declared, derived, strict=True)
    )


@lru_cache(_MOST_KEPT)
def _is_static(shape: Shape | None) -> bool:
    return shape is not None and all(isinstance(extent, int) for extent in shape)


def _plain(extent: object) -> Extent:
    return extent if isinstance(extent, int | str) and extent != -1 else None


def _first(_: Node, given: list[Shape], __: Constants) -> Shape | None:
    return given[0]


def _broadcast(node: Node, given: list[Shape], _: Constants) -> Shape | None:
    if len(given) != sum(1 for tensor in node.inputs if tensor.name):
        return None
    return broadcast(given)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Give the shape of an elementwise result; None stands for an extent that is not known."""
    return _broadcast_of(tuple(shapes))


@lru_cache(_MOST_KEPT)
def _broadcast_of(shapes: tuple[Shape, ...]) -> Shape:
    rank = max(len(shape) for shape in shapes)
    result: list[Extent] = []
    for axis in range(rank):
        extents = {s[axis - rank + len(s)] for s in shapes if axis >= rank - len(s)} - {1}
        numbers_ = [extent for extent in extents if isinstance(extent, int)]
        if not extents:
            result.append(1)
        elif len(extents) == 1:
            result.append(extents.pop())
        else:
            result.append(numbers_[0] if len(numbers_) == 1 else None)
    return tuple(result)


def _transpose(node: Node, given: list[Shape], _: Constants) -> Shape | None:
    shape = given[0]
    order = node.attrs.get("perm", list(reversed(range(len(shape)))))
    return tuple(shape[axis] for axis in order) if len(order) == len(shape) else None


def _expand(node: Node, given: list[Shape], constants: Constants) -> Shape | None:
    target = numbers(node.inputs[1], constants)
    if target is None:
        return None
    return broadcast([given[0], tuple(_plain(extent) for extent in target)])


def _concat(node: Node, given: list[Shape], _: Constants) -> Shape | None:
    """Take what any operand knows, but for the axis along which they are joined."""
    if not given:
        return None
    shape: list[Extent] = list(given[0])
    axis = node.attrs.get("axis", 1) % len(shape)
    if any(len(other) != len(shape) for other in given):
        return None
    for place in range(len(shape)):
        extents = [other[place] for other in given]
        known = [extent for extent in extents if isinstance(extent, int)]
        if place != axis:
            shape[place] = known[0] if known else extents[0]
        else:
            whole = len(known) == len(node.inputs)
            shape[place] = sum(known) if whole else None
    return tuple(shape)


def _matmul(_: Node, given: list[Shape], __: Constants) -> Shape | None:
    if len(given) != 2 or min(len(shape) for shape in given) < 2:
        return None
    left, right = given
    return (*broadcast([left[:-2] or (1,), right[:-2] or (1,)]), left[-2], right[-1])[
        -max(len(left), len(right)) :
    ]


def _gemm(node: Node, given: list[Shape], _: Constants) -> Shape | None:
    if len(given) < 2 or len(given[0]) != 2 or len(given[1]) != 2:
        return None
    rows = given[0][1 if node.attrs.get("transA", 0) else 0]
    return (rows, given[1][0 if node.attrs.get("transB", 0) else 1])


def _conv(_: Node, given: list[Shape], __: Constants) -> Shape | None:
    if len(given) < 2:
        return None
    return (given[0][0], given[1][0], *(None,) * (len(given[0]) - 2))


def _reduce(node: Node, given: list[Shape], constants: Constants) -> Shape | None:
    axes = node.attrs.get("axes")
    if node.input(1) is not None:
        axes = constants.integers(node.input(1))
    rank = len(given[0])
    if not axes:
        return None
    reduced = {axis % rank for axis in axes}
    if node.attrs.get("keepdims", 1):
        return tuple(1 if axis in reduced else e for axis, e in enumerate(given[0]))
    return tuple(e for axis, e in enumerate(given[0]) if axis not in reduced)


def _gather(node: Node, given: list[Shape], _: Constants) -> Shape | None:
    if len(given) != 2:
        return None
    axis = node.attrs.get("axis", 0) % len(given[0])
    return (*given[0][:axis], *given[1], *given[0][axis + 1 :])


def _squeeze(node: Node, given: list[Shape], constants: Constants) -> Shape | None:
    axes = _axes(node, constants)
    if not axes:
        return None
    rank = len(given[0])
    gone = {axis % rank for axis in axes}
    return tuple(extent for axis, extent in enumerate(given[0]) if axis not in gone)


def _unsqueeze(node: Node, given: list[Shape], constants: Constants) -> Shape | None:
    axes = _axes(node, constants)
    if not axes:
        return None
    rank = len(given[0]) + len(axes)
    added = {axis % rank for axis in axes}
    rest = iter(given[0])
    return tuple(1 if axis in added else next(rest) for axis in range(rank))


def _axes(node: Node, constants: Constants) -> Sequence[int] | None:
    if node.input(1) is not None:
        return constants.integers(node.input(1))
    axes: Sequence[int] | None = node.attrs.get("axes")
    return axes


def _slice(node: Node, given: list[Shape], constants: Constants) -> Shape | None:
    """Keep the extents of the axes that are not sliced; count the others where that is known."""
    attrs = node.attrs
    starts, ends, axes = attrs.get("starts"), attrs.get("ends"), attrs.get("axes")
    if len(node.inputs) > 1:
        starts, ends = (constants.integers(node.input(place)) for place in (1, 2))
        axes = constants.integers(node.input(3))
        if axes is None and node.input(3) is None and node.inputs[1].shape:
            axes = range(int(node.inputs[1].shape[0] or 0))
    if axes is None:
        axes = range(len(starts)) if starts else None
    if axes is None:
        return None
    steps = constants.integers(node.input(4)) if node.input(4) is not None else (1,) * len(axes)
    result = list(given[0])
    for place, axis in enumerate(axes):
        extent = result[axis]
        if starts and ends and steps and isinstance(extent, int):
            result[axis] = len(
                range(*slice(starts[place], ends[place], steps[place]).indices(extent))
            )
        else:
            result[axis] = None
    return tuple(result)


def _pad(node: Node, given: list[Shape], constants: Constants) -> Shape | None:
    shape = given[0]
    pads = node.attrs.get("pads")
    if len(node.inputs) > 1:
        pads = constants.integers(node.input(1))
    if pads is None or len(pads) != 2 * len(shape):
        return (None,) * len(shape) if node.input(3) is None else None
    both = zip(shape, pads, pads[len(shape) :], strict=False)
    return tuple(e + low + high if isinstance(e, int) else None for e, low, high in both)


def _range(*_: object) -> Shape:
    return (None,)


def _flatten(node: Node, given: list[Shape], _: Constants) -> Shape | None:
    axis = int(node.attrs.get("axis", 1))
    front, back = given[0][:axis], given[0][axis:]
    return _product(front), _product(back)


def _product(extents: Shape) -> Extent:
    known = [extent for extent in extents if isinstance(extent, int)]
    return math.prod(known) if len(known) == len(extents) else None


def _pool(node: Node, given: list[Shape], _: Constants) -> Shape | None:
    spatial = len(given[0]) - 2
    extent = 1 if node.op.startswith("Global") else None
    return (*given[0][:2], *(extent,) * spatial)


def _resize(node: Node, given: list[Shape], constants: Constants) -> Shape | None:
    x, sizes, scales = given[0], node.input(3), node.input(2)
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    if node.attrs.get("axes") or policy != "stretch" or node.graph.opset < _RESIZE_BY_SIZES:
        return None
    if sizes is not None:
        target = numbers(sizes, constants)
        return None if target is None else tuple(_plain(extent) for extent in target)
    factors = None if scales is None else constants.known(scales, len(x))
    if factors is None or factors.shape != (len(x),):
        return None
    return tuple(
        math.floor(extent * float(factor)) if isinstance(extent, int) else None
        for extent, factor in zip(x, factors, strict=True)
    )


_RESIZE_BY_SIZES = 11
_FROM_FIRST = frozenset(
    (
        "Resize",
        "Reshape",
        "Transpose",
        "Expand",
        "Flatten",
        "Gather",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Clip",
        "Pad",
    )
)
"""Operators with inputs of another type behind the first."""

_READERS: dict[str, Reader] = {
    **dict.fromkeys((*_SAME, *_MICROSOFT), _first),
    **dict.fromkeys(("AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"), _pool),
    **dict.fromkeys(_BROADCAST, _broadcast),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _reduce),
    "Reshape": _first,
    "Transpose": _transpose,
    "Expand": _expand,
    "Flatten": _flatten,
    "Concat": _concat,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "Gather": _gather,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Range": _range,
}
