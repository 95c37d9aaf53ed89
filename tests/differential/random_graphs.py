"""Random graphs of everything that vision and sequence models are made of, normalised or not.

The pieces of `layers` (linear operators, layout operators, BatchNorms, affine chains), and besides
them norms as operators and spelled out, attention, residual branches, quantised regions, scopes,
shared and overridable weights, dead nodes and missing names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from layers import Layers
from onnx import TensorProto, helper, numpy_helper
from scopes import in_branch, in_function
from spellings import FLAWS, Speller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Array = np.ndarray[Any, Any]
    Feed = dict[str, Array]

OPSETS = (11, 13, 13, 17, 17, 18, 20, 21, 22, 23, 24)
TYPES = (TensorProto.DOUBLE, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.FLOAT16, 16)
_LARGEST = 3000
"""Elements above which a tensor grows no further."""

VISION = (
    *("conv_block", "conv_block", "conv_block", "pre_activation", "conv_transpose", "pool"),
    *("batch_norm", "affine", "residual", "residual", "layout", "activation", "norm", "gate"),
    *(
        "squeeze_excite",
        "quantised",
        "quantized_linear",
        "joined",
        "any_linear",
        "batch_statistics",
    ),
)
SEQUENCE = (
    *("norm", "norm", "norm", "spelled", "spelled", "near_miss", "linear", "linear", "attention"),
    *("feed_forward", "residual", "residual", "layout", "affine", "batch_norm", "recurrent"),
    *("quantised", "quantized_linear", "gate", "masked", "softmax", "joined", "weight_norm"),
)


@dataclass(frozen=True)
class Example:
    """A model, and what is needed to run it."""

    seed: int
    model: onnx.ModelProto
    plain: onnx.ModelProto
    """The same without the scope it was put into."""
    shapes: dict[str, tuple[int, ...]]
    """Extents of every tensor of `plain`."""
    dtype: int
    rounds: bool
    """Whether something is quantised while the model runs: a rounding may go the other way."""

    def feeds(self, model: onnx.ModelProto) -> Iterator[Feed]:
        """Give inputs with several spreads and means, and once other values for weights."""
        own = {tensor.name: tensor for tensor in model.graph.initializer}
        for turn, (deviation, mean) in enumerate(((1.0, 0.0), (0.02, 0.0), (1.0, 3.0))):
            random = np.random.default_rng(self.seed % 1000 + turn)
            feed: Feed = {}
            for value in model.graph.input:
                if value.name not in own:
                    feed[value.name] = self._values(value, random, deviation, mean, turn)
                elif turn == 2 and model.ir_version >= 4:
                    old = numpy_helper.to_array(own[value.name])
                    feed[value.name] = (old * 1.5).astype(old.dtype)
            yield feed

    def _values(
        self,
        value: onnx.ValueInfoProto,
        random: np.random.Generator,
        deviation: float,
        mean: float,
        turn: int,
    ) -> Array:
        tensor = value.type.tensor_type
        kind = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = self.shapes.get(value.name)
        if shape is None:
            shape = tuple(extent.dim_value or 2 for extent in tensor.shape.dim)
        if kind == np.bool_:
            return np.full(shape, turn != 1)
        if kind.kind in "iu":
            return random.integers(0, 3, shape).astype(kind)
        return (random.standard_normal(shape) * deviation + mean).astype(kind)


class RandomGraph(Layers):
    """One random graph."""

    def __init__(self, seed: int, *, dtype: int = TensorProto.FLOAT, opset: int = 17) -> None:
        super().__init__(seed, dtype=dtype, opset=opset)
        self.rounds = False
        self.shared: dict[tuple[int, ...], list[str]] = {}

    def chance(self, probability: float) -> bool:
        return self.choose.random() < probability

    def floats(self, *shape: int, low: float | None = None, high: float = 2.0) -> str:
        """Give weights; now and then those that another operator has already."""
        known = self.shared.setdefault(shape, [])
        if low is None and known and self.chance(0.12):
            return self.choose.choice(known)
        made = super().floats(*shape, low=low, high=high)
        if low is None:
            known.append(made)
        return made

    def positive(self, *shape: int) -> str:
        return super().floats(*shape, low=0.4)

    def number(self, value: float) -> str:
        return self.constant(np.array(value, self.numpy))

    def binary(self, op: str, a: str, b: str) -> str:
        shape = np.broadcast_shapes(self.shapes[a], self.shapes[b])
        return self.op(op, [a, b], tuple(int(n) for n in shape))

    def build(self) -> None:
        vision = self.chance(0.5)
        x = self.image() if vision else self.tokens()
        alive = [x]
        for _ in range(self.choose.randint(2, 9)):
            x = alive[-1] if self.chance(0.8) else self.choose.choice(alive)
            kinds = VISION if vision == (not self.chance(0.15)) else SEQUENCE
            y = getattr(self, self.choose.choice(kinds))(x)
            if math.prod(self.shapes[y]) <= _LARGEST and len(self.shapes[y]) > 1:
                alive.append(y)
            self.spread(y)
        self.give(alive[-1])
        if self.chance(0.15):
            self.activation(self.choose.choice(alive))  # nobody reads it

    def image(self) -> str:
        channels = self.choose.choice((2, 2, 3, 4))
        shape = (self.choose.choice((1, 2)), channels, self.choose.choice((3, 4, 5)), 4)
        return self.input(shape[: self.choose.choice((3, 4, 4, 4))], symbolic=self.chance(0.4))

    def tokens(self) -> str:
        batch, time, width = self.choose.choice((1, 2)), self.choose.choice((2, 3)), 4
        if self.chance(0.6):
            return self.input((batch, time, width), symbolic=self.chance(0.4))
        name = self.name("tokens")
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, ["B", time]))
        self.shapes[name] = (batch, time)
        return self.op("Gather", [self.floats(5, width), name], (batch, time, width))

    # What norms there are --------------------------------------------------------------------

    def norm(self, x: str) -> str:
        """Apply a normalisation that is one operator, where the opset has it."""
        ways = [self.instance_norm, self.lp_norm, self.mean_variance, self.simplified]
        if self.opset >= 17:
            ways += [self.layer_norm] * 4 + [self.skip_norm]
        if self.opset >= 18:
            ways.append(self.group_norm)
        if self.opset >= 23:
            ways += [self.rms_norm] * 2
        return self.choose.choice(ways)(x)

    def layer_norm(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.choice((-1, -1, -1, len(shape) - 1, -2))
        extents = shape[axis:]
        inputs = [x, self.floats(*extents)]
        if self.chance(0.7):
            inputs.append(self.floats(*extents))
        attrs = {"epsilon": 1e-3} if self.chance(0.6) else {}
        return self.op("LayerNormalization", inputs, shape, axis=axis, **attrs)

    def rms_norm(self, x: str) -> str:
        shape = self.shapes[x]
        scale = self.floats(shape[-1])
        return self.op("RMSNormalization", [x, scale], shape, axis=-1, epsilon=1e-3)

    def instance_norm(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) < 3:
            return x
        inputs = [x, self.floats(shape[1]), self.floats(shape[1])]
        return self.op("InstanceNormalization", inputs, shape, epsilon=1e-3)

    def group_norm(self, x: str) -> str:
        shape = self.shapes[x]
        groups = self.choose.choice([g for g in (1, 2, 4) if shape[1] % g == 0])
        count = shape[1] if self.opset >= 21 else groups
        inputs = [x, self.floats(count), self.floats(count)]
        return self.op("GroupNormalization", inputs, shape, num_groups=groups, epsilon=1e-3)

    def lp_norm(self, x: str) -> str:
        return self.op(
            "LpNormalization", [x], self.shapes[x], axis=-1, p=self.choose.choice((1, 2))
        )

    def mean_variance(self, x: str) -> str:
        shape = self.shapes[x]
        # Nothing stands beside its variance: in half precision the outcome is chance.
        if self.opset < 13 or len(shape) < 3 or self.dtype != TensorProto.FLOAT:
            return x
        axes = self.choose.choice(([0, 2], [1], list(range(1, len(shape)))))
        return self.op("MeanVarianceNormalization", [x], shape, axes=axes)

    def simplified(self, x: str) -> str:
        shape = self.shapes[x]
        attrs = {"axis": -1, "epsilon": 1e-3, "stash_type": 1}
        return self.op("SimplifiedLayerNormalization", [x, self.floats(shape[-1])], shape, **attrs)

    def skip_norm(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 3:
            return self.layer_norm(x)
        kind = self.choose.choice(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
        inputs = [x, self.block(x, shape), self.floats(shape[-1])]
        return self.op(kind, inputs, shape, domain="com.microsoft", epsilon=1e-3)

    def batch_statistics(self, x: str) -> str:
        """Apply a BatchNorm that was left in training mode."""
        shape = self.shapes[x]
        if self.opset < 14 or self.chance(0.5):
            return self.batch_norm(x)
        count = shape[1]
        inputs = [x, self.floats(count), self.floats(count), self.floats(count)]
        inputs.append(self.positive(count))
        names = [self.name("t") for _ in range(3)]
        node = helper.make_node("BatchNormalization", inputs, names, training_mode=1, epsilon=1e-3)
        self.nodes.append(node)
        self.shapes[names[0]] = shape
        return names[0]

    def spelled(self, x: str, flaw: str = "") -> str:
        """Spell a normalisation out in any way there is."""
        shape = self.shapes[x]
        axes = self.choose.choice(
            ((-1,), (-1,), (-1,), (1,), (-2, -1), tuple(range(2, len(shape))))
        )
        if not axes or len(shape) < 2:
            axes = (-1,)
        speller = Speller(
            self.choose.randrange,
            shape,
            axes,
            centred=self.chance(0.6),
            affine=self.chance(0.8),
            opset=self.opset,
            flaw=flaw,
            along=self.choose.choice(((), (), (-1,), (1,))),
        )
        spelling = speller.spell()
        return self.embedded(spelling.model.graph, x)

    def near_miss(self, x: str) -> str:
        """Spell something that is nearly a normalisation."""
        return self.spelled(x, self.choose.choice(FLAWS))

    def embedded(self, graph: onnx.GraphProto, x: str) -> str:
        """Put the nodes of a graph from x to y in place, in the types of this one."""
        prefix = self.name("n")
        renamed = {"x": x, "": ""}

        def named(name: str) -> str:
            return renamed.setdefault(name, f"{prefix}_{name}")

        for tensor in graph.initializer:
            copy = self.typed(tensor)
            copy.name = named(tensor.name)
            self.initializers.append(copy)
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [named(name) for name in node.input]
            copy.output[:] = [named(name) for name in node.output]
            for attribute in copy.attribute:
                if attribute.name == "value":
                    attribute.t.CopyFrom(self.typed(attribute.t))
                elif attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                    attribute.i = self.dtype
            self.nodes.append(copy)
        y = named("y")
        self.shapes[y] = self.shapes[x]
        return y

    def typed(self, tensor: TensorProto) -> TensorProto:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            values = values.astype(self.numpy)
            parts = np.round(1 / np.where(values == 0, 1, values))
            if self.dtype == TensorProto.DOUBLE and values.size == 1 and abs(parts) > 1:
                values = 1 / parts if np.isclose(values * parts, 1) else values
        return numpy_helper.from_array(values, tensor.name)

    def weight_norm(self, x: str) -> str:
        """Multiply by weights that the graph normalises itself, at every run."""
        width = self.shapes[x][-1]
        weight = self.floats(width, width)
        self.shapes[weight] = (width, width)
        return self.op("MatMul", [x, self.spelled(weight)], self.shapes[x])

    # What stands between them ----------------------------------------------------------------

    def conv_block(self, x: str) -> str:
        y = self.any_linear(x) if self.chance(0.3) else self.conv(x)
        if self.chance(0.2):
            y = self.layout(y)
        y = self.batch_norm(y) if self.chance(0.6) else self.affine(y)
        return self.activation(y) if self.chance(0.5) else y

    def pre_activation(self, x: str) -> str:
        y = self.batch_norm(x)
        if self.chance(0.3):
            y = self.activation(y)
        return self.conv(y)

    def residual(self, x: str) -> str:
        """Add a branch that keeps the shape."""
        shape = self.shapes[x]
        y = x
        for _ in range(self.choose.randint(1, 3)):
            kinds = ("norm", "spelled", "affine", "batch_norm", "block_of", "activation", "square")
            y = getattr(self, self.choose.choice(kinds))(y)
        if self.shapes[y] != shape or y == x:
            return y
        if self.chance(0.2):
            y = self.op("Mul", [y, self.floats(shape[-1])], shape)
        pair = [x, y]
        self.choose.shuffle(pair)
        return self.op("Add", pair, shape)

    def block_of(self, x: str) -> str:
        return self.block(x, self.shapes[x])

    def square(self, x: str) -> str:
        """Apply a linear layer that keeps the width."""
        width = self.shapes[x][-1]
        y = self.op("MatMul", [x, self.floats(width, width)], self.shapes[x])
        return self.op("Add", [y, self.floats(width)], self.shapes[x]) if self.chance(0.5) else y

    def feed_forward(self, x: str) -> str:
        shape = self.shapes[x]
        width = self.extent()
        y = self.op("MatMul", [x, self.floats(shape[-1], width)], (*shape[:-1], width))
        y = self.op("Add", [self.floats(width), y], self.shapes[y])
        y = self.activation(y)
        y = self.op("MatMul", [y, self.floats(width, shape[-1])], shape)
        return self.op("Add", [x, y], shape) if self.chance(0.6) else y

    def attention(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 3:
            return self.linear(x)
        width = shape[-1]
        q, k, v = (self.op("MatMul", [x, self.floats(width, width)], shape) for _ in range(3))
        if self.chance(0.4):
            q, k = self.spelled(q), self.norm(k)
        k = self.op("Transpose", [k], (shape[0], width, shape[1]), perm=[0, 2, 1])
        scores = self.op("MatMul", [q, k], (shape[0], shape[1], shape[1]))
        scores = self.op("Div", [scores, self.number(2.0)], self.shapes[scores])
        weights = self.op("Softmax", [scores], self.shapes[scores], axis=2)
        y = self.op("MatMul", [weights, v], shape)
        y = self.op("MatMul", [y, self.floats(width, width)], shape)
        return self.op("Add", [x, y], shape) if self.chance(0.7) else y

    def softmax(self, x: str) -> str:
        return self.op("Softmax", [x], self.shapes[x], axis=len(self.shapes[x]) - 1)

    def gate(self, x: str) -> str:
        """Multiply by, divide by or add a value of the same tensor."""
        gate = self.op(self.choose.choice(("Sigmoid", "Exp", "Tanh")), [x], self.shapes[x])
        if self.chance(0.3):
            gate = self.op("Abs", [gate], self.shapes[x])
        return self.binary(self.choose.choice(("Mul", "Add", "Sub")), x, gate)

    def masked(self, x: str) -> str:
        shape = self.shapes[x]
        mask = self.constant(self.values.integers(0, 2, shape[-1:]).astype(bool))
        return self.op("Where", [mask, x, self.number(0.5)], shape)

    def squeeze_excite(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 4:
            return x
        pooled = self.op("GlobalAveragePool", [x], (*shape[:2], 1, 1))
        inputs = [pooled, self.floats(shape[1], shape[1], 1, 1)]
        gate = self.op("Conv", inputs, self.shapes[pooled])
        return self.binary("Mul", x, self.op("Sigmoid", [gate], self.shapes[gate]))

    def joined(self, x: str) -> str:
        """Concatenate two computed values, and go on with what is computed from both."""
        shape = self.shapes[x]
        y = self.op(
            "Concat",
            [self.affine(x), self.block(x, shape)],
            (shape[0], 2 * shape[1], *shape[2:]),
            axis=1,
        )
        return self.batch_norm(y) if self.chance(0.6) else y

    def activation(self, x: str) -> str:
        """Apply one that the runtime has in every type at every opset."""
        if self.dtype == TensorProto.DOUBLE:
            return self.op("Relu", [x], self.shapes[x])
        return super().activation(x)

    def quantized_linear(self, x: str) -> str:
        return super().quantized_linear(x) if self.dtype == TensorProto.FLOAT else self.linear(x)

    def quantised(self, x: str) -> str:
        """Put a value through 8 bits."""
        if self.dtype != TensorProto.FLOAT:
            return x
        self.rounds = True
        scale = self.constant(np.array(self.choose.choice((0.02, 0.05, 4.35)), np.float32))
        zero = self.constant(np.array(self.choose.choice((0, 3)), np.int8))
        inside = self.op("QuantizeLinear", [x, scale, zero], self.shapes[x])
        return self.op("DequantizeLinear", [inside, scale, zero], self.shapes[x])


def example(seed: int) -> Example:
    """Make the graph of a seed."""
    random = np.random.default_rng(seed)
    opset = int(random.choice(OPSETS))
    types = (TensorProto.FLOAT,) * 14 + TYPES
    graph = RandomGraph(seed, dtype=int(random.choice(types)), opset=opset)
    graph.build()
    plain = _decorated(graph, random)
    scoped, shapes = _in_scope(plain, graph.shapes, random)
    return Example(seed, scoped, plain, shapes, graph.dtype, graph.rounds)


def _decorated(graph: RandomGraph, random: np.random.Generator) -> onnx.ModelProto:
    """Add what files have besides: names or none, metadata, value_info, weights among inputs."""
    model = graph.model()
    names = random.choice(["unique", "none", "equal"], p=[0.55, 0.4, 0.05])
    for index, node in enumerate(model.graph.node):
        node.name = {"unique": f"node {index}", "none": "", "equal": "node"}[names]
        if random.random() < 0.2:
            node.doc_string = "made of nothing"
            node.metadata_props.add(key="namespace", value=f"model/layer{index}")
    model.metadata_props.add(key="author", value="nobody")
    model.doc_string = "a random graph"
    for output in model.graph.output:
        if random.random() < 0.2:
            output.type.tensor_type.ClearField("shape")
    if random.random() < 0.4:
        _with_types(model)
    weights = list(model.graph.initializer)
    if random.random() < 0.1:
        model.ir_version = 3
    elif random.random() < 0.15:
        weights = [tensor for tensor in weights if random.random() < 0.3]
    else:
        return model
    for tensor in weights:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)
    return model


def _with_types(model: onnx.ModelProto) -> None:
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return
    model.graph.value_info.extend(inferred.graph.value_info)


def _in_scope(
    plain: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], random: np.random.Generator
) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """Put the graph into a branch, a function or a loop, or leave it as it is."""
    names = {tensor.name for tensor in plain.graph.initializer}
    free = not any(value.name in names for value in plain.graph.input)
    ways: dict[int, Callable[[], onnx.ModelProto]] = {
        0: lambda: in_branch(plain, outer_weights=True),
        1: lambda: in_branch(plain, outer_weights=False),
        2: lambda: in_function(plain),
        3: lambda: in_loop(plain),
    }
    way = int(random.integers(12))
    if not free or way not in ways:
        return plain, shapes
    return ways[way](), {**shapes, "condition": ()}


def in_loop(model: onnx.ModelProto) -> onnx.ModelProto:
    """Run the graph twice, with weights and inputs from outside, and stack what it gives."""
    graph = model.graph
    condition = helper.make_tensor_value_info("going on", TensorProto.BOOL, [])
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    inside = onnx.GraphProto()
    inside.CopyFrom(graph)
    outputs = [
        helper.make_tensor_value_info(v.name, v.type.tensor_type.elem_type, None)
        for v in graph.output
    ]
    body = helper.make_graph(
        [*graph.node, helper.make_node("Identity", ["going on"], ["goes on"])],
        "body",
        [turn, condition],
        [helper.make_tensor_value_info("goes on", TensorProto.BOOL, []), *outputs],
    )
    stacked = [f"{value.name} stacked" for value in graph.output]
    node = helper.make_node("Loop", ["times", ""], stacked, name="loop", body=body)
    times = numpy_helper.from_array(np.array(2, np.int64), "times")
    results = [
        helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, None)
        for name, value in zip(stacked, graph.output, strict=True)
    ]
    whole = helper.make_graph(
        [node], "main", list(graph.input), results, [*graph.initializer, times]
    )
    return helper.make_model(
        whole, opset_imports=list(model.opset_import), ir_version=model.ir_version
    )
