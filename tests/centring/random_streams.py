"""Random models with residual streams: what can be centred, what cannot, and what only looks so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, TOKENS, WIDTH, HIDDEN = 2, 4, 6, 5
DOUBLE = TensorProto.DOUBLE


@dataclass
class Builder:
    """Writes nodes; every tensor has a name of its own."""

    random: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    feeds: dict[str, Callable[[np.random.Generator], np.ndarray[Any, Any]]] = field(
        default_factory=dict
    )
    overridable: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        made = [self.name(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, made, name=self.name("n"), **attrs))
        return made[0] if outputs == 1 else made

    def constant(self, values: Any, kind: Any = np.float64) -> str:
        name = self.name("c")
        array = np.asarray(values, kind)
        if array.size <= 4 and self.random.random() < 0.3:
            node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            self.nodes.append(node)
        else:
            self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        """Give weights whose mean is far from zero."""
        return self.constant(self.random.normal(0.3, 1.0, shape))

    def input(self, shape: list[Any], *, kind: int = DOUBLE, high: int = 0) -> str:
        name = self.name("x")
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        fixed = [{"B": BATCH, "T": TOKENS}.get(e, e) for e in shape]
        if kind in {TensorProto.INT32, TensorProto.INT64}:
            self.feeds[name] = lambda random: random.integers(0, high, fixed)
        elif kind == TensorProto.BOOL:
            self.feeds[name] = lambda random: random.integers(0, 2, fixed).astype(bool)
        else:
            self.feeds[name] = lambda random: random.normal(0.7, 1.0, fixed)
        return name

    def axes(self, kind: str, x: str, axes: list[int], **attrs: Any) -> str:
        """Write a reduction in the way of the opset."""
        if self.opset >= 18 or (kind == "ReduceSum" and self.opset >= 13):
            return str(self.op(kind, x, self.constant(axes, np.int64), **attrs))
        return str(self.op(kind, x, axes=axes, **attrs))

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)


class Streams:
    """One random model."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.b = Builder(self.random, int(self.random.choice([13, 17, 18, 23])))
        self.batch: Any = self.b.pick("B", BATCH)
        self.tokens: Any = self.b.pick("T", TOKENS)
        self.shared = [self.b.weight(HIDDEN, WIDTH) for _ in range(2)]
        self.table = self.b.weight(9, WIDTH)
        self.norms = 0

    def build(self) -> onnx.ModelProto:
        stream = self.source()
        for _ in range(int(self.random.integers(1, 5))):
            step = self.b.pick(
                self.branch, self.branch, self.branch, self.after, self.change, self.tap
            )
            stream = step(stream)
        self.finish(stream)
        return self.model()

    def model(self) -> onnx.ModelProto:
        b = self.b
        graph = helper.make_graph(
            b.nodes,
            "streams",
            b.inputs,
            [helper.make_tensor_value_info(name, 0, None) for name in dict.fromkeys(b.outputs)],
            b.constants,
        )
        imports = [helper.make_opsetid("", b.opset)]
        if b.functions:
            imports.append(helper.make_opsetid("local", 1))
        model = helper.make_model(graph, opset_imports=imports, functions=b.functions)
        model.ir_version = 10
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        typed = {v.name: v for v in inferred.graph.output}
        for output in model.graph.output:
            output.CopyFrom(typed[output.name])
            if not output.type.tensor_type.elem_type:
                output.type.tensor_type.elem_type = DOUBLE
        if b.chance(0.5):
            model = inferred
            del model.graph.output[:]
            model.graph.output.extend(typed.values())
        return model

    # what writes

    def source(self) -> str:
        return str(
            self.b.pick(
                self.embedded,
                self.embedded,
                self.given,
                self.projected,
                self.convolved,
                self.normal,
            )()
        )

    def embedded(self) -> str:
        b = self.b
        tokens = b.input([self.batch, self.tokens], kind=TensorProto.INT64, high=9)
        t = b.op("Gather", self.table, tokens)
        if b.chance(0.5):
            t = b.op("Add", t, b.weight(TOKENS, WIDTH))
        return str(t)

    def given(self) -> str:
        return self.b.input([self.batch, self.tokens, WIDTH])

    def projected(self) -> str:
        b = self.b
        x = b.input([self.batch, self.tokens, HIDDEN])
        return self.linear(x)

    def convolved(self) -> str:
        b = self.b
        groups = b.pick(1, 1, 1, 2)
        x = b.input([self.batch, 4, TOKENS])
        bias = [b.weight(WIDTH)] if b.chance(0.5) else []
        weight = b.weight(WIDTH, 4 // groups, 3)
        y = b.op("Conv", x, weight, *bias, pads=[1, 1], kernel_shape=[3], group=groups)
        return str(b.op("Transpose", y, perm=[0, 2, 1]))

    def normal(self) -> str:
        return self.norm(self.given() if self.b.chance(0.3) else self.embedded())

    def linear(self, x: str) -> str:
        """Write the stream from a hidden value, in one of many ways; a few are no writers."""
        b = self.b
        writers = {
            "gemm": lambda: self.gemm(x),
            "shared": lambda: b.op("MatMul", x, b.pick(*self.shared)),
            "layer_scale": lambda: self.layer_scale(x),
            "scaled_sum": lambda: b.op(
                b.pick("Mul", "Div"), self.biased(x, b.weight(WIDTH)), b.weight(WIDTH)
            ),
            "active": lambda: b.op("Relu", b.op("MatMul", x, b.weight(HIDDEN, WIDTH))),
            "quantised": lambda: b.op("MatMul", x, self.quantised()),
            "overridable": lambda: b.op("MatMul", x, self.overridable(HIDDEN, WIDTH)),
            "computed": lambda: b.op(
                "MatMul", x, b.op("Transpose", b.weight(WIDTH, HIDDEN), perm=[1, 0])
            ),
            "einsum": lambda: b.op("Einsum", x, b.weight(WIDTH, HIDDEN), equation="btk,dk->btd"),
            "turned": lambda: self.turned(b.op("MatMul", b.weight(WIDTH, HIDDEN), self.turned(x))),
        }
        for shape in ((WIDTH,), (1, 1, WIDTH), (1,), (TOKENS, 1)):
            writers[f"biased{shape}"] = lambda shape=shape: self.biased(x, b.weight(*shape))
        return str(writers[b.pick(*writers)]())

    def gemm(self, x: str) -> str:
        b = self.b
        flat = b.op("Reshape", x, b.constant([-1, HIDDEN], np.int64))
        transposed = b.chance(0.5)
        weight = b.weight(WIDTH, HIDDEN) if transposed else b.weight(HIDDEN, WIDTH)
        c = b.pick([], [b.weight(WIDTH)], [b.weight(1, WIDTH)], [b.weight(1)], [b.weight(1, 1)])
        alpha, beta = b.pick(1.0, 2.0), b.pick(1.0, 0.5)
        y = b.op("Gemm", flat, weight, *c, transB=int(transposed), alpha=alpha, beta=beta)
        return str(b.op("Reshape", y, b.constant([-1, TOKENS, WIDTH], np.int64)))

    def layer_scale(self, x: str) -> str:
        b = self.b
        y = b.op("MatMul", x, b.weight(HIDDEN, WIDTH))
        gain = b.op("Mul", y, b.pick(b.weight(WIDTH), b.weight(1, 1, WIDTH), b.weight(1)))
        if b.chance(0.2):
            b.outputs.append(y)
        return str(gain)

    def biased(self, x: str, bias: str) -> str:
        b = self.b
        y = b.op("MatMul", x, b.weight(HIDDEN, WIDTH))
        return str(b.op("Add", *b.pick((y, bias), (bias, y))))

    def quantised(self) -> str:
        b = self.b
        integers = b.constant(self.random.integers(-99, 99, (HIDDEN, WIDTH)), np.int8)
        return str(b.op("DequantizeLinear", integers, b.constant(0.02)))

    def overridable(self, *shape: int) -> str:
        """Give weights that a caller may override."""
        name = self.b.weight(*shape)
        tensors = [t for t in self.b.constants if t.name == name]
        if tensors:
            self.b.inputs.append(helper.make_tensor_value_info(name, DOUBLE, shape))
            self.b.overridable.append(name)
            self.b.feeds[name] = lambda random: random.normal(1.0, 1.0, shape)
        return name

    # what normalises

    def norm(self, x: str) -> str:
        b = self.b
        self.norms += 1
        scale = b.pick(
            b.weight(WIDTH), b.weight(WIDTH), b.constant(np.full(WIDTH, 1.5)), b.constant([1.0] * 6)
        )
        bias = b.pick(b.weight(WIDTH), b.weight(WIDTH), "")
        if b.opset >= 17 and b.chance(0.6):
            inputs = (x, scale, bias) if bias else (x, scale)
            return str(b.op("LayerNormalization", *inputs, axis=-1, epsilon=1e-3))
        return self.spelled(x, scale, bias)

    def spelled(self, x: str, scale: str, bias: str, axes: tuple[int, ...] = (-1,)) -> str:
        b = self.b
        mean = b.axes("ReduceMean", x, list(axes))
        centred = b.op("Sub", x, mean)
        square = b.op("Pow", centred, b.constant(2.0)) if b.chance(0.5) else ""
        square = square or b.op("Mul", centred, centred)
        variance = b.op("Add", b.axes("ReduceMean", square, list(axes)), b.constant(1e-3))
        y = b.op("Div", centred, b.op("Sqrt", variance))
        if b.chance(0.05):
            b.outputs.append(b.pick(mean, centred, variance, y))
        y = b.op("Mul", *b.pick((y, scale), (scale, y)))
        return str(b.op("Add", y, bias)) if bias else str(y)

    # what happens between

    def branch(self, stream: str) -> str:
        b = self.b
        if b.chance(0.1):
            return self.called(stream)
        normed = self.norm(stream)
        if b.chance(0.1):
            self.norm(stream)
        wide = b.op("MatMul", normed, b.weight(WIDTH, HIDDEN))
        if b.chance(0.7):
            wide = b.op("Add", wide, b.weight(HIDDEN))
        branch = self.linear(b.op("Relu", wide))
        if b.chance(0.3):
            branch = self.change(branch)
        if b.chance(0.15):
            return str(b.op("Sum", stream, branch, self.linear(b.op("Tanh", wide))))
        total = str(b.op(b.pick("Add", "Add", "Sub"), stream, branch))
        return self.norm(total) if b.chance(0.15) else total

    def after(self, stream: str) -> str:
        """Normalise after the residual sum, and read the norms of the stream as they are."""
        b = self.b
        stream = self.norm(stream)
        for _ in range(b.pick(1, 2)):
            read = b.op("Identity", stream) if b.chance(0.3) else stream
            wide = b.op("MatMul", read, b.weight(WIDTH, HIDDEN))
            wide = b.op("Add", wide, b.weight(HIDDEN)) if b.chance(0.9) else wide
            stream = self.norm(str(b.op("Add", stream, self.linear(b.op("Relu", wide)))))
        return stream

    def called(self, stream: str) -> str:
        """Put a block into a local function."""
        b = self.b
        if not b.functions:
            body = [
                helper.make_node("MatMul", ["t", "up"], ["wide"]),
                helper.make_node("Relu", ["wide"], ["active"]),
                helper.make_node("MatMul", ["active", "down"], ["branch"]),
                helper.make_node("Add", ["s", "branch"], ["y"]),
            ]
            imports = [helper.make_opsetid("", b.opset)]
            inputs = ["s", "t", "up", "down"]
            b.functions.append(helper.make_function("local", "Block", inputs, ["y"], body, imports))
        y = b.name("call")
        given = [stream, self.norm(stream), b.weight(WIDTH, HIDDEN), b.weight(HIDDEN, WIDTH)]
        b.nodes.append(helper.make_node("Block", given, [y], name=b.name("n"), domain="local"))
        return y

    def change(self, t: str) -> str:
        """Do something to the stream that may or may not commute with the mean."""
        b = self.b
        changes = {
            "identity": lambda: b.op(b.pick("Identity", "Neg"), t),
            "scalar": lambda: b.op(b.pick("Mul", "Div"), t, b.constant(1.7)),
            "shift": lambda: b.op(b.pick("Add", "Sub"), t, b.constant(0.9)),
            "token_shift": lambda: (
                b.op("Add", t, b.op("ReduceMax", t, keepdims=1, axes=[-1]))
                if b.opset < 18
                else b.op("Add", t, b.input([self.batch, self.tokens, 1]))
            ),
            "late_shift": lambda: b.op("Sub", b.input([self.batch, self.tokens, 1]), t),
            "full": lambda: b.op("Add", t, b.weight(WIDTH)),
            "gain": lambda: b.op("Mul", t, b.weight(WIDTH)),
            "mask": lambda: b.op("Mul", t, b.input([self.batch, self.tokens, 1])),
            "gate": lambda: b.op("Mul", t, b.input([self.batch, self.tokens, WIDTH])),
            "where": lambda: b.op(
                "Where",
                b.input([self.batch, self.tokens, 1], kind=TensorProto.BOOL),
                t,
                b.pick(b.constant(0.5), b.weight(WIDTH), b.weight(1, 1, 1)),
            ),
            "where_channel": lambda: b.op(
                "Where", b.input([WIDTH], kind=TensorProto.BOOL), t, b.constant(0.5)
            ),
            "there_and_back": lambda: b.op(
                "Transpose",
                b.op("Tanh" if b.chance(0.1) else "Neg", self.turned(t)),
                perm=[0, 2, 1],
            ),
            "flat": lambda: self.flat(t, WIDTH),
            "heads": lambda: self.flat(t, WIDTH // 2),
            "class_token": lambda: self.cut(b.op("Concat", b.op("Neg", t), t, axis=1)),
            "channels": lambda: self.channels(t),
            "split": lambda: self.halves(t, 1),
            "split_channels": lambda: self.halves(t, 2),
            "pad": lambda: self.padded(t),
            "pool": lambda: b.op("Add", t, b.axes("ReduceMean", t, [1])),
            "mixed": lambda: b.op(
                "MatMul", b.op("Softmax", b.input([self.batch, TOKENS, TOKENS])), t
            ),
            "reversed": lambda: self.slice(t, [WIDTH - 1], [-(10**4)], [2], [-1]),
            "rolled": lambda: b.op(
                "Concat",
                self.slice(t, [2], [WIDTH], [2], [1]),
                self.slice(t, [0], [2], [2], [1]),
                axis=2,
            ),
            "cast": lambda: b.op(
                "Cast", b.op("Cast", t, to=b.pick(DOUBLE, DOUBLE, TensorProto.INT32)), to=DOUBLE
            ),
            "integers": lambda: b.op("Add", t, self.integers()),
            "averaged": lambda: b.op(
                "Add", t, self.turned(b.op("GlobalAveragePool", self.turned(t)))
            ),
            "tiled": lambda: self.cut(b.op("Tile", t, b.constant([1, 2, 1], np.int64))),
            "interaction": lambda: b.op("Einsum", t, t, equation="btd,bse->bte"),
            "stirred": lambda: self.stirred(t),
            "max": lambda: b.op("Add", t, b.axes("ReduceMean", t, [-1])),
            "relu": lambda: b.op("Relu", t),
        }
        return str(changes[b.pick(*changes)]())

    def turned(self, t: str) -> str:
        return str(self.b.op("Transpose", t, perm=[0, 2, 1]))

    def flat(self, t: str, width: int) -> str:
        b = self.b
        shaped = b.op("Reshape", t, b.constant([-1, width], np.int64))
        moved = b.op("Mul", shaped, b.input([1, 1])) if width == WIDTH else b.op("Neg", shaped)
        if width != WIDTH:
            moved = b.op("Sub", moved, b.axes("ReduceMean", moved, [0]))
        return str(b.op("Reshape", moved, b.constant([-1, TOKENS, WIDTH], np.int64)))

    def stirred(self, t: str) -> str:
        """Add to other channels than it seems."""
        b = self.b
        shaped = b.op("Reshape", t, b.constant([-1, WIDTH, TOKENS], np.int64))
        moved = b.op("Add", shaped, b.weight(WIDTH, 1))
        return str(b.op("Reshape", moved, b.constant([-1, TOKENS, WIDTH], np.int64)))

    def cut(self, t: str) -> str:
        return self.slice(t, [1], [1 + TOKENS], [1], [1])

    def slice(
        self, t: str, starts: list[int], ends: list[int], axes: list[int], steps: list[int]
    ) -> str:
        given = [self.b.constant(part, np.int64) for part in (starts, ends, axes, steps)]
        return str(self.b.op("Slice", t, *given))

    def channels(self, t: str) -> str:
        b = self.b
        left = self.slice(t, [0], [2], [2], [1])
        right = self.slice(t, [2], [WIDTH], [2], [1])
        return str(b.op("Concat", *b.pick((left, right), (right, left)), axis=2))

    def halves(self, t: str, axis: int) -> str:
        b = self.b
        half = (TOKENS if axis == 1 else WIDTH) // 2
        sizes = b.constant([half, half], np.int64)
        one, other = b.op("Split", t, sizes, axis=axis, outputs=2)
        return str(b.op("Concat", other, b.pick(one, b.op("Neg", one)), axis=axis))

    def padded(self, t: str) -> str:
        b = self.b
        pads, value = b.pick(
            ([0, 1, 0, 0, 0, 0], 0.0),
            ([0, 1, 0, 0, 0, 0], 2.0),
            ([0, 1, 1, 0, 0, -1], 0.0),
        )
        wide = b.op("Pad", t, b.constant(pads, np.int64), b.constant(value))
        return self.cut(wide)

    def integers(self) -> str:
        b = self.b
        table = b.constant(self.random.integers(-3, 5, (9, WIDTH)), np.int8)
        tokens = b.input([self.batch, self.tokens], kind=TensorProto.INT64, high=9)
        return str(b.op("Cast", b.op("Gather", table, tokens), to=DOUBLE))

    # what reads

    def tap(self, t: str) -> str:
        """Read the stream in passing."""
        b = self.b
        taps = {
            "output": lambda: t,
            "relu": lambda: b.op("Relu", t),
            "linear": lambda: b.op("MatMul", t, b.weight(WIDTH, 3)),
            "differences": lambda: b.op("MatMul", t, self.differences()),
            "softmax": lambda: b.op("Softmax", t, axis=b.pick(-1, 1)),
            "best": lambda: b.op("ArgMax", t, axis=b.pick(-1, 1)),
            "shape": lambda: b.op(b.pick("Shape", "Size"), t),
            "mean": lambda: b.axes("ReduceMean", t, [b.pick(-1, 1)]),
            "centred": lambda: self.centred(t),
            "other_norm": lambda: self.spelled(t, b.constant(1.5), "", (b.pick(-1, 1, -2),)),
            "wide_norm": lambda: (
                b.op("LayerNormalization", t, b.weight(TOKENS, WIDTH), axis=-2)
                if b.opset >= 17
                else b.op("Abs", t)
            ),
            "shared": lambda: self.shared_statistics(t),
            "modulated": lambda: b.op("Mul", self.norm(t), t),
            "modulation": lambda: (
                b.op("LayerNormalization", t, self.first(t))
                if b.opset >= 17
                else b.op("Mul", self.norm(t), b.axes("ReduceMean", t, [-1]))
            ),
            "captured": lambda: self.captured(t),
            "norm": lambda: self.norm(t),
            "again": lambda: b.op("Add", t, t),
        }
        b.outputs.append(str(taps[b.pick(*taps)]()))
        return t

    def first(self, t: str) -> str:
        """Give a scale that is computed from the stream."""
        flat = self.b.op("Reshape", t, self.b.constant([-1, WIDTH], np.int64))
        return str(self.b.op("Gather", flat, self.b.constant(0, np.int64)))

    def differences(self) -> str:
        weight = self.random.normal(0, 1, (WIDTH, 3))
        return self.b.constant(weight - weight.mean(axis=0, keepdims=True))

    def centred(self, t: str) -> str:
        b = self.b
        mean = b.axes("ReduceMean", t, [-1])
        if b.chance(0.3):
            b.outputs.append(mean)
        return str(b.op("Abs", b.op("Sub", *b.pick((t, mean), (t, mean), (mean, t)))))

    def shared_statistics(self, t: str) -> str:
        b = self.b
        self.norms += 2
        mean = b.axes("ReduceMean", t, [-1])
        centred = b.op("Sub", t, mean)
        variance = b.axes("ReduceMean", b.op("Mul", centred, centred), [-1])
        y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, b.constant(1e-3))))
        one = b.op("Mul", y, b.weight(WIDTH))
        other = b.op("Add", b.op("Mul", y, b.weight(WIDTH)), b.weight(WIDTH))
        return str(b.op("Concat", one, other, axis=-1))

    def captured(self, t: str) -> str:
        b = self.b
        condition = b.input([], kind=TensorProto.BOOL)
        inner = [helper.make_node(b.pick("Relu", "Neg"), [t], [b.name("i")], name=b.name("n"))]
        other = [helper.make_node("Identity", [t], [b.name("i")], name=b.name("n"))]
        bodies = [
            helper.make_graph(
                nodes,
                b.name("body"),
                [],
                [helper.make_tensor_value_info(nodes[0].output[0], DOUBLE, None)],
            )
            for nodes in (inner, other)
        ]
        return str(b.op("If", condition, then_branch=bodies[0], else_branch=bodies[1]))

    def moved(self, t: str) -> str:
        """Move the result of a norm about, so that its bias stays what it is, or does not."""
        b = self.b
        moves = {
            "rolled": lambda: b.op(
                "Concat",
                self.slice(t, [1], [TOKENS], [1], [1]),
                self.slice(t, [0], [1], [1], [1]),
                axis=1,
            ),
            "beside": lambda: b.op("Concat", t, self.given(), axis=1),
            "reversed": lambda: self.slice(t, [WIDTH - 1], [-(10**4)], [2], [-1]),
            "turned": lambda: self.slice(t, [TOKENS - 1], [-(10**4)], [1], [-1]),
            "pooled": lambda: b.axes("ReduceMean", t, [1]),
            "summed": lambda: b.axes("ReduceSum", t, [1]),
            "first": lambda: b.op("Gather", t, b.constant([0], np.int64), axis=1),
            "padded": lambda: self.padded(t),
        }
        return str(moves[b.pick(*moves)]())

    def finish(self, stream: str) -> None:
        b = self.b
        last = self.norm(stream)
        if b.chance(0.4):
            last = self.moved(last)
        head = b.pick("head", "tied", "none", "bias")
        if head == "head":
            last = b.op("MatMul", last, b.weight(WIDTH, 3))
        elif head == "tied":
            last = b.op("MatMul", last, b.op("Transpose", self.table, perm=[1, 0]))
        elif head == "bias":
            last = b.op("Add", b.op("MatMul", last, b.weight(WIDTH, 3)), b.weight(3))
        b.outputs.append(str(last))


@dataclass(frozen=True)
class Example:
    """A random model with inputs for it."""

    model: onnx.ModelProto
    feeds: tuple[dict[str, np.ndarray[Any, Any]], ...]


def example(seed: int) -> Example:
    """Give the random model of a seed."""
    streams = Streams(seed)
    model = streams.build()
    random = np.random.default_rng(seed + 1)
    feeds = tuple({name: draw(random) for name, draw in streams.b.feeds.items()} for _ in range(2))
    return Example(model, feeds)
