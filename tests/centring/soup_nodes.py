"""What a random model without a plan is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from centring.evaluate import OPERATORS, graph_values
from centring.random_soup import EPSILON, LARGEST, Soup
from centring.random_streams import DOUBLE, Example
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx

ADDS: list[Callable[[Soup], Any]] = []


def add(function: Callable[[Soup], Any]) -> Callable[[Soup], Any]:
    ADDS.append(function)
    return function


@add
def plain(s: Soup) -> Any:
    return s.node(s.pick("Identity", "Neg", "Identity", "Relu", "Tanh", "Abs"), s.tensor())


@add
def with_constant(s: Soup) -> Any:
    """A constant on either side, along any axes: rows, columns, scalars, everything."""
    t = s.tensor()
    given = [t, s.beside(s.shape(t))]
    if s.chance(0.3):
        given.reverse()
    return s.node(s.pick("Add", "Add", "Sub", "Mul", "Div"), *given)


@add
def with_input(s: Soup) -> Any:
    """A tensor of the user's, of full width, of one column or of one row."""
    t = s.tensor()
    shape = [extent if s.chance(0.6) else 1 for extent in s.shape(t)]
    return s.node(s.pick("Add", "Sub", "Mul"), t, s.input(shape))


@add
def with_another(s: Soup) -> Any:
    return s.node(s.pick("Add", "Sub", "Mul", "Max"), s.tensor(), s.tensor())


@add
def matmul(s: Soup) -> Any:
    t = s.tensor()
    shape = s.shape(t)
    if s.chance(0.3) and len(shape) > 1:
        return s.node("MatMul", s.weight(s.pick(s.width, shape[-2]), shape[-2]), t)
    return s.node("MatMul", t, s.weight(shape[-1], s.pick(s.width, shape[-1])))


@add
def gemm(s: Soup) -> Any:
    t = s.tensor()
    width = s.shape(t)[-1]
    flat = s.node("Reshape", t, s.integers([-1, width]))
    rows, columns = s.shape(flat)
    other = s.pick(width, s.width)
    c = s.pick([], [s.beside((rows, other))], [s.weight(other)], [s.weight(rows, 1)])
    turned = s.chance(0.5)
    weight = s.weight(other, columns) if turned else s.weight(columns, other)
    y = s.node("Gemm", flat, weight, *c, transB=int(turned), alpha=s.pick(1.0, 0.5))
    if s.chance(0.7):
        y = s.node("Reshape", y, s.integers([*s.shape(t)[:-1], other]))
    return y


@add
def transposed(s: Soup) -> Any:
    t = s.tensor()
    order = s.random.permutation(len(s.shape(t))).tolist()
    y = s.node("Transpose", t, perm=order)
    if s.chance(0.5):
        y = s.node(s.pick("Identity", "Neg", "Relu"), y)
    return s.node("Transpose", y, perm=np.argsort(order).tolist()) if s.chance(0.5) else y


@add
def reshaped(s: Soup) -> Any:
    t = s.tensor()
    shape = list(s.shape(t))
    moved = s.pick(
        [-1, shape[-1]],
        [0, -1],
        [*shape, 1],
        [*shape[:-1], 2, -1],
        shape[::-1],
        [0, 0, -1],
        [shape[0], -1, 2],
    )
    y = s.node("Reshape", t, s.integers(moved))
    s.pool.append(y)
    if s.chance(0.5):
        y = s.node(s.pick("Add", "Mul"), y, s.beside(s.shape(y)))
        return s.node("Reshape", y, s.integers(shape))
    return y


@add
def joined(s: Soup) -> Any:
    t = s.tensor()
    axis = int(s.random.integers(len(s.shape(t))))
    other = s.pick(t, s.tensor(), s.weight(*s.shape(t)), s.node("Neg", t))
    return s.node("Concat", *s.pick((t, other), (other, t)), axis=axis)


@add
def parted(s: Soup) -> Any:
    t = s.tensor()
    axis = int(s.random.integers(len(s.shape(t))))
    extent = s.shape(t)[axis]
    at = int(s.random.integers(1, max(extent, 2)))
    one, other = s.node("Split", t, s.integers([at, extent - at]), axis=axis, outputs=2)
    if s.chance(0.5):
        return [one, other]
    return s.node("Concat", *s.pick((one, other), (other, one)), axis=axis)


@add
def sliced(s: Soup) -> Any:
    t = s.tensor()
    axis = int(s.random.integers(len(s.shape(t))))
    extent = s.shape(t)[axis]
    if s.chance(0.2):
        given = ([extent - 1], [-(10**4)], [axis], [-1])
    else:
        start = int(s.random.integers(0, extent))
        given = ([start], [s.pick(extent, start + 1)], [axis], [1])
    return s.node("Slice", t, *(s.integers(part) for part in given))


@add
def gathered(s: Soup) -> Any:
    t = s.tensor()
    axis = int(s.random.integers(len(s.shape(t))))
    index = s.random.integers(0, s.shape(t)[axis], s.pick((), (1,), (3,), (2, 2)))
    return s.node("Gather", t, s.integers(index), axis=axis)


@add
def reduced(s: Soup) -> Any:
    t = s.tensor()
    kind = s.pick("ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax")
    y = s.axes(kind, t, s.some_axes(t), keepdims=s.pick(0, 1, 1))
    return s.node(s.pick("Add", "Sub"), t, y) if s.chance(0.5) else y


@add
def centred(s: Soup) -> Any:
    t = s.tensor()
    return s.node("Sub", t, s.axes("ReduceMean", t, s.some_axes(t)))


@add
def chosen(s: Soup) -> Any:
    t = s.tensor()
    shape = [extent if s.chance(0.5) else 1 for extent in s.shape(t)]
    mask = s.input(shape, TensorProto.BOOL)
    same = [o for o in s.pool if s.shape(o) == s.shape(t)]
    other = s.pick(s.constant(0.5), s.beside(s.shape(t)), s.pick(*same), s.constant(0.0))
    return s.node("Where", mask, *s.pick((t, other), (other, t)))


@add
def softmax(s: Soup) -> Any:
    t = s.tensor()
    axis = int(s.random.integers(-1, len(s.shape(t))))
    return s.node(s.pick("Softmax", "LogSoftmax"), t, axis=axis)


@add
def mixed(s: Soup) -> Any:
    """Attention: scores from two tensors, applied to a third."""
    t, k = s.tensor(), s.tensor()
    scores = s.node("Softmax", s.node("MatMul", t, s.node("Transpose", k, perm=[0, 2, 1])))
    return s.node("MatMul", scores, s.pick(k, s.tensor()))


@add
def picked(s: Soup) -> Any:
    t = s.tensor()
    axis = int(s.random.integers(len(s.shape(t))))
    best = s.node(s.pick("ArgMax", "ArgMin"), t, axis=axis, keepdims=1)
    return s.node("Cast", best, to=DOUBLE)


@add
def padded(s: Soup) -> Any:
    t = s.tensor()
    rank = len(s.shape(t))
    pads = [0] * 2 * rank
    pads[int(s.random.integers(2 * rank))] = s.pick(1, -1, 1)
    value = s.constant(s.pick(0.0, 0.0, 2.0))
    mode = s.pick("constant", "constant", "reflect", "edge")
    return s.node("Pad", t, s.integers(pads), *([value] if mode == "constant" else []), mode=mode)


@add
def expanded(s: Soup) -> Any:
    t = s.tensor()
    shape = list(s.shape(t))
    if s.chance(0.5):
        return s.node("Expand", t, s.integers([2, *shape]))
    one = s.axes("ReduceMean", t, [int(s.random.integers(len(shape)))])
    return s.node("Expand", one, s.integers(shape))


@add
def tiled(s: Soup) -> Any:
    t = s.tensor()
    repeats = np.ones(len(s.shape(t)), np.int64)
    repeats[int(s.random.integers(repeats.size))] = 2
    return s.node("Tile", t, s.integers(repeats))


@add
def convolved(s: Soup) -> Any:
    t = s.tensor()
    channels = s.shape(t)[1]
    groups = s.pick(1, 1, channels)
    out = s.pick(channels, s.width) if groups == 1 else channels
    weight = s.weight(out, channels // groups, 1)
    bias = [s.weight(out)] if s.chance(0.5) else []
    return s.node("Conv", t, weight, *bias, group=groups, kernel_shape=[1])


@add
def cast(s: Soup) -> Any:
    kind = s.pick(TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, DOUBLE)
    y = s.node("Cast", s.tensor(), to=kind)
    if kind in {TensorProto.FLOAT, TensorProto.FLOAT16}:
        y = s.node(s.pick("Neg", "Identity"), y)
    return s.node("Cast", y, to=DOUBLE)


@add
def measured(s: Soup) -> Any:
    """The extents of a tensor, as numbers, or as the target of a Reshape."""
    t = s.tensor()
    shape = s.node("Shape", t)
    if s.chance(0.5):
        return s.node("Cast", shape, to=DOUBLE)
    flat = s.node("Reshape", t, s.integers([-1]))
    return s.node("Reshape", flat, shape)


@add
def einsum(s: Soup) -> Any:
    t = s.tensor()
    width = s.shape(t)[-1]
    equation, shape = s.pick(
        ("abc,cd->abd", (width, s.width)),
        ("abc,dc->abd", (s.width, width)),
        ("abc,ac->abc", (s.shape(t)[0], width)),
        ("abc,bd->adc", (s.shape(t)[1], s.width)),
        ("abc,dc->adb", (s.width, width)),
    )
    return s.node("Einsum", t, s.weight(*shape), equation=equation)


@add
def dropped(s: Soup) -> Any:
    return s.node("Dropout", s.tensor())


@add
def branched(s: Soup) -> Any:
    """An If whose branches read tensors of the outer graph, and may normalise them."""
    t = s.tensor()
    condition = s.input([], TensorProto.BOOL)
    bodies = [body(s, t), body(s, t)]
    made = s.name()
    proto = helper.make_node(
        "If", [condition], [made], name=s.name("n"), then_branch=bodies[0], else_branch=bodies[1]
    )
    for graph in bodies:
        results = graph_values(graph, s.values, s.opset)[graph.output[0].name]
    if np.abs(results).max() > LARGEST:
        return None
    s.wanted.discard(t)
    return s.keep(proto, [made], [results])


def body(s: Soup, t: str) -> onnx.GraphProto:
    """Give a branch: a small model of its own that starts at an outer tensor."""
    inner = Soup.__new__(Soup)
    inner.__dict__.update(s.__dict__)
    inner.nodes, inner.constants, inner.pool, inner.wanted = [], [], [t], set()
    inner.weights = list(s.weights)
    y = s.pick(
        lambda: inner.node(s.pick("Neg", "Relu", "Identity"), t),
        lambda: inner.norm(t, [-1]),
        inner.residual,
    )()
    s.count = inner.count
    width = s.shape(t)
    if y is None or inner.shape(y) != width:
        y = inner.node("Identity", t)
        s.count = inner.count
    outputs = [helper.make_tensor_value_info(y, DOUBLE, None)]
    return helper.make_graph(inner.nodes, s.name("body"), [], outputs, inner.constants)


def skipped(s: Soup) -> Any:
    """A sum and its norm by one operator; the sum is read as well, or not."""
    t = s.tensor()
    width = s.shape(t)[-1]
    same = [o for o in s.pool if s.shape(o) == s.shape(t)]
    if len(s.shape(t)) != 3:
        return None
    inputs = [t, s.pick(*same), s.weight(width)]
    kind = s.pick(*["SkipLayerNormalization"] * 4, "SkipSimplifiedLayerNormalization")
    if kind == "SkipLayerNormalization":
        inputs.append(s.weight(width) if s.chance(0.6) else "")
    inputs += [s.weight(width)] if s.chance(0.5) else []
    made = [s.name(), s.name()]
    outputs = [made[0], "", "", made[1]] if s.chance(0.7) else made[:1]
    attrs = {"epsilon": EPSILON}
    domain = "com.microsoft"
    proto = helper.make_node(kind, inputs, outputs, name=s.name("n"), domain=domain, **attrs)
    given = [s.values[name] if name else None for name in inputs]
    results = OPERATORS[kind](attrs, s.opset, *given)
    s.keep(proto, made[: 2 if len(outputs) > 1 else 1], [results[0], results[3]])
    return made if len(outputs) > 1 else made[0]


def multiplied(s: Soup) -> Any:
    t = s.tensor()
    width = s.shape(t)[-1]
    weight = s.weight(s.width, width)
    y = s.node("FusedMatMul", t, weight, domain="com.microsoft", transB=1, alpha=0.5)
    return s.node("FastGelu", y, s.weight(s.width), domain="com.microsoft") if s.chance(0.3) else y


FUSED = (skipped, skipped, skipped, skipped, skipped, multiplied, multiplied)
"""Operators of ONNX Runtime, which its optimiser makes."""


def soup(seed: int, *, fused: bool = False) -> Example:
    """Give the random model of a seed, with inputs for it."""
    made = Soup(seed)
    model = made.build((*ADDS, *FUSED) if fused else ADDS)
    random = np.random.default_rng([seed, 78])
    feeds = tuple({name: draw(random) for name, draw in made.draws.items()} for _ in range(2))
    return Example(model, feeds)
