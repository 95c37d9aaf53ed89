"""Random small networks around a BatchNorm or an affine chain: what folding must not get wrong.

Extents are small and often equal on purpose, so that a fold along the wrong axis fits and is wrong.
"""

from __future__ import annotations

import math
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EXTENTS = (2, 2, 3, 4)
SPATIAL = (3, 4, 5)
LAYOUTS = (
    *("same", "transpose", "reshape", "unsqueeze", "squeeze", "flatten", "concat", "split"),
    *("slice", "pad", "pool", "reduce", "resize", "activation", "gather", "tile"),
)
"""Methods that change layout, or nearly so."""


class Layers:
    """Builds one model; every method appends nodes and returns the name of what they compute."""

    def __init__(self, seed: int, *, dtype: int = TensorProto.FLOAT, opset: int = 17) -> None:
        self.choose = random.Random(seed)  # noqa: S311 - no secret depends on it
        self.values = np.random.default_rng(seed)
        self.dtype = dtype
        self.numpy = helper.tensor_dtype_to_np_dtype(dtype)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[str] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, values: np.ndarray) -> str:
        """Put values into the model: as an initializer, a Constant node, or behind an Identity."""
        name = self.name("w")
        tensor = numpy_helper.from_array(np.asarray(values, order="C"), name)
        way = self.choose.randrange(8)
        if way == 0:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        if way == 1:
            other = self.name("w")
            self.nodes.append(helper.make_node("Identity", [name], [other]))
            return other
        return name

    def floats(self, *shape: int, low: float | None = None, high: float = 2.0) -> str:
        if low is not None:
            return self.constant(self.values.uniform(low, high, shape).astype(self.numpy))
        return self.constant(self.values.standard_normal(shape).astype(self.numpy))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: object) -> str:
        name = self.name("t")
        domain = str(attrs.pop("domain", ""))
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attrs))
        self.shapes[name] = tuple(int(extent) for extent in shape)
        return name

    def along(
        self, op: str, x: str, axis: int, shape: tuple[int, ...], since: int, **attrs: object
    ) -> str:
        """Apply an operator whose axes became an input in some opset."""
        if self.opset < since:
            return self.op(op, [x], shape, axes=[axis], **attrs)
        return self.op(op, [x, self.integers(axis)], shape, **attrs)

    def input(self, shape: tuple[int, ...], *, symbolic: bool = False) -> str:
        name = self.name("x")
        given = [
            f"d{axis}" if symbolic and self.choose.random() < 0.5 and axis != 1 else extent
            for axis, extent in enumerate(shape)
        ]
        self.inputs.append(helper.make_tensor_value_info(name, self.dtype, given))
        self.shapes[name] = shape
        return name

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "layers",
            self.inputs,
            [
                helper.make_tensor_value_info(
                    name, self.dtype, [f"{name}_{axis}" for axis in range(len(self.shapes[name]))]
                )
                for name in self.outputs
            ],
            self.initializers,
        )
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    # The pieces of a network -----------------------------------------------------------------

    def extent(self) -> int:
        return self.choose.choice(EXTENTS)

    def batch_norm(self, x: str, *, positive: bool = False, plain: bool = False) -> str:
        channels = self.shapes[x][1]
        scale = self.floats(channels, low=0.5 if positive else -2.0)
        bias = self.floats(channels)
        mean = self.floats(channels)
        if plain:
            bias = mean = self.constant(np.zeros(channels, self.numpy))
        variance = self.floats(channels, low=0.1)
        attrs = {"epsilon": 1e-3} if self.choose.random() < 0.5 else {}
        return self.op(
            "BatchNormalization", [x, scale, bias, mean, variance], self.shapes[x], **attrs
        )

    def affine(self, x: str) -> str:
        """Apply Mul, Add, Sub, Div with constants of all kinds of shapes."""
        shape = self.shapes[x]
        for _ in range(self.choose.randint(1, 4)):
            rank = len(shape)
            kind = self.choose.random()
            axis = 1 if kind < 0.55 and rank > 1 else self.choose.randrange(rank)
            extents = [1] * rank
            if self.choose.random() < 0.85:
                extents[axis] = shape[axis]
            if self.choose.random() < 0.1:
                extents[self.choose.randrange(rank)] = shape[-1] if extents[-1] == shape[-1] else 1
            if self.choose.random() < 0.5:
                while len(extents) > 1 and extents[0] == 1:
                    extents.pop(0)
            op = self.choose.choice(("Mul", "Add", "Sub", "Div"))
            values = self.floats(*extents, low=0.5) if op == "Div" else self.floats(*extents)
            pair = [x, values]
            if op != "Div" and self.choose.random() < 0.3:
                pair.reverse()
            x = self.op(op, pair, shape)
        return x

    def conv(self, x: str, *, padded: bool = True) -> str:
        shape = self.shapes[x]
        if len(shape) < 3:
            return self.linear(x)
        channels, space = shape[1], shape[2:]
        groups = self.choose.choice([g for g in (1, 2, channels) if channels % g == 0])
        made = groups * self.choose.choice((1, 2))
        kernel = tuple(self.choose.randint(1, min(2, extent)) for extent in space)
        pads = [self.choose.randint(0, 1) for _ in range(2 * len(space))]
        if not padded or self.choose.random() < 0.5:
            pads = [0] * (2 * len(space))
        dilations = [1 if k == 1 else self.choose.choice((1, 1, 2)) for k in kernel]
        strides = [self.choose.choice((1, 1, 2)) for _ in kernel]
        out = tuple(
            (n + pads[i] + pads[i + len(space)] - dilations[i] * (kernel[i] - 1) - 1) // strides[i]
            + 1
            for i, n in enumerate(space)
        )
        if min(out) < 1:
            return x
        inputs = [x, self.floats(made, channels // groups, *kernel)]
        inputs += self.choose.choice(([], [self.floats(made)], [""]))
        attrs = {"group": groups, "pads": pads, "dilations": dilations, "strides": strides}
        if self.choose.random() < 0.1:
            inputs = [name for name in inputs if name]
            return self.op(
                "FusedConv", inputs, (shape[0], made, *out), domain="com.microsoft", **attrs
            )
        return self.op("Conv", inputs, (shape[0], made, *out), **attrs)

    def conv_transpose(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) < 3:
            return self.linear(x)
        channels, space = shape[1], shape[2:]
        groups = self.choose.choice([g for g in (1, 2) if channels % g == 0])
        made = self.choose.choice((1, 2))
        kernel = tuple(self.choose.randint(1, 2) for _ in space)
        strides = [self.choose.choice((1, 2)) for _ in space]
        out = tuple(s * (n - 1) + k for s, n, k in zip(strides, space, kernel, strict=True))
        inputs = [x, self.floats(channels, made, *kernel)]
        if self.choose.random() < 0.5:
            inputs.append(self.floats(made * groups))
        return self.op(
            "ConvTranspose", inputs, (shape[0], made * groups, *out), group=groups, strides=strides
        )

    def linear(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) == 2 and self.choose.random() < 0.6:
            return self.gemm(x)
        return self.matmul(x)

    def gemm(self, x: str) -> str:
        m, k = self.shapes[x]
        attrs: dict[str, object] = {}
        for name in ("alpha", "beta"):
            if self.choose.random() < 0.4:
                attrs[name] = self.choose.choice((0.5, 2.0, -1.5))
        swapped = self.choose.random() < 0.2
        made = self.extent()
        left, right = (k, made) if not swapped else (made, m)
        turned = self.choose.random() < 0.5
        weight = self.floats(*((right, left) if turned else (left, right)))
        if swapped:
            attrs["transA"] = int(turned)
            inputs, out = [weight, x], (made, k)
        else:
            attrs["transB"] = int(turned)
            inputs, out = [x, weight], (m, made)
        none = None if self.opset >= 11 else ()
        c = self.choose.choice((none, (), (1,), (out[1],), (1, out[1]), (out[0], 1), out))
        if c is not None:
            inputs.append(self.floats(*c))
        return self.op("Gemm", inputs, out, **attrs)

    def matmul(self, x: str) -> str:
        shape = self.shapes[x]
        made = self.extent()
        if len(shape) >= 2 and self.choose.random() < 0.25:
            weight = self.floats(made, shape[-2])
            y = self.op("MatMul", [weight, x], (*shape[:-2], made, shape[-1]))
        elif len(shape) >= 3 and self.choose.random() < 0.15:
            weight = self.floats(shape[-3], shape[-1], made)
            y = self.op("MatMul", [x, weight], (*shape[:-1], made))
        elif self.choose.random() < 0.15:
            turned = self.choose.random() < 0.5
            weight = self.floats(*((made, shape[-1]) if turned else (shape[-1], made)))
            attrs = {"transB": int(turned), "alpha": self.choose.choice((1.0, 0.5))}
            y = self.op(
                "FusedMatMul", [x, weight], (*shape[:-1], made), domain="com.microsoft", **attrs
            )
        else:
            y = self.op("MatMul", [x, self.floats(shape[-1], made)], (*shape[:-1], made))
        if self.choose.random() < 0.5:
            whole = self.shapes[y]
            bias = self.choose.choice((whole[-1:], (1, whole[-1]), whole[-2:], whole))
            pair = [y, self.floats(*bias)]
            self.choose.shuffle(pair)
            y = self.op("Add", pair, whole)
        return y

    def quantized_linear(self, x: str) -> str:
        """Apply a MatMul or Conv whose weight comes from a DequantizeLinear."""
        if self.opset < 10:
            return self.linear(x)
        shape = self.shapes[x]
        made = self.extent()
        is_conv = len(shape) == 4
        weight_shape = (made, shape[1], 2, 2) if is_conv else (shape[-1], made)
        unsigned = self.choose.random() < 0.3
        kind = np.uint8 if unsigned else np.int8
        low = 0 if unsigned else self.choose.choice((-128, -127))
        integers = self.values.integers(low, low + 255, weight_shape).astype(kind)
        axis = 0 if is_conv else 1
        per_channel = self.opset >= 13 and self.choose.random() < 0.5
        scale = self.floats(*((made,) if per_channel else ()), low=0.005, high=0.02)
        inputs = [self.constant(integers), scale]
        if unsigned or self.choose.random() < 0.5:
            zero = 128 if unsigned else self.choose.choice((0, 0, 3))
            shape_of_zero = (made,) if per_channel else ()
            inputs.append(self.constant(np.full(shape_of_zero, zero, kind)))
        attrs = {"axis": axis} if per_channel else {}
        weight = self.op("DequantizeLinear", inputs, weight_shape, **attrs)
        if is_conv:
            out = (shape[0], made, shape[2] - 1, shape[3] - 1)
            return self.op("Conv", [x, weight], out) if min(out) > 0 else x
        return self.op("MatMul", [x, weight], (*shape[:-1], made))

    def layout(self, x: str) -> str:
        """Apply one operator that changes layout, or nearly so."""
        y = getattr(self, self.choose.choice(LAYOUTS))(x)
        return str(y)

    def same(self, x: str) -> str:
        return self.op(self.choose.choice(("Identity", "Dropout")), [x], self.shapes[x])

    def activation(self, x: str) -> str:
        return self.op(self.choose.choice(("Relu", "LeakyRelu", "Sigmoid")), [x], self.shapes[x])

    def transpose(self, x: str) -> str:
        shape = self.shapes[x]
        perm = list(range(len(shape)))
        self.choose.shuffle(perm)
        return self.op("Transpose", [x], tuple(shape[p] for p in perm), perm=perm)

    def unsqueeze(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) > 4:
            return x
        axis = self.choose.randint(0, len(shape))
        return self.along("Unsqueeze", x, axis, (*shape[:axis], 1, *shape[axis:]), 13)

    def squeeze(self, x: str) -> str:
        shape = self.shapes[x]
        if 1 not in shape or len(shape) < 3:
            return x
        axis = shape.index(1)
        return self.along("Squeeze", x, axis, (*shape[:axis], *shape[axis + 1 :]), 13)

    def flatten(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.choice((1, 1, len(shape) - 1))
        out = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        return self.op("Flatten", [x], out, axis=axis)

    def concat(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        other = self.floats(*shape) if self.choose.random() < 0.3 else self.block(x, shape)
        both = [x, other]
        self.choose.shuffle(both)
        out = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
        return self.op("Concat", both, out, axis=axis)

    def slice(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        if shape[axis] < 2:
            return x
        step = self.choose.choice((1, 1, -1)) if self.opset >= 10 else 1
        start, end = (1, shape[axis]) if step > 0 else (-1, -shape[axis] - 1)
        size = shape[axis] - 1 if step > 0 else shape[axis]
        out = (*shape[:axis], size, *shape[axis + 1 :])
        if self.opset < 10:
            return self.op("Slice", [x], out, starts=[start], ends=[end], axes=[axis])
        given = [self.integers(v) for v in (start, end, axis, step)]
        return self.op("Slice", [x, *given], out)

    def gather(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        order = list(range(shape[axis]))
        self.choose.shuffle(order)
        return self.op("Gather", [x, self.integers(*order)], shape, axis=axis)

    def tile(self, x: str) -> str:
        shape = self.shapes[x]
        repeats = [1] * len(shape)
        repeats[self.choose.randrange(len(shape))] = 2
        out = tuple(n * r for n, r in zip(shape, repeats, strict=True))
        return self.op("Tile", [x, self.integers(*repeats)], out)

    def reduce(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        keep = self.choose.random() < 0.5 or len(shape) < 3
        op = self.choose.choice(("ReduceMean", "ReduceMax", "ReduceMin"))
        out = (*shape[:axis], *((1,) if keep else ()), *shape[axis + 1 :])
        return self.along(op, x, axis, out, 18, keepdims=int(keep))

    def resize(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 4 or self.opset < 11:
            return x
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        out = (*shape[:2], 2 * shape[2], 2 * shape[3])
        mode = self.choose.choice(("nearest", "linear"))
        return self.op("Resize", [x, "", scales], out, mode=mode)

    def block(self, x: str, shape: tuple[int, ...]) -> str:
        """Compute something of the same shape as x by an operator of its own."""
        if self.choose.random() < 0.5 and len(shape) > 1:
            return self.op("MatMul", [x, self.floats(shape[-1], shape[-1])], shape)
        return self.op("Sin" if self.dtype == TensorProto.FLOAT else "Tanh", [x], shape)

    def reshape(self, x: str) -> str:
        shape = self.shapes[x]
        size = int(np.prod(shape))
        wanted: list[tuple[int, ...]] = [
            (-1, shape[-1]),
            (shape[0], -1),
            (1, *shape),
        ]
        if len(shape) > 2:
            wanted.append((shape[0], shape[1], -1))
            wanted.append((-1, *shape[2:]))
            wanted.append((shape[0], shape[1] * shape[2], *shape[3:]))
        if shape[1] % 2 == 0:
            wanted.append((shape[0], 2, shape[1] // 2, *shape[2:]))
            wanted.append((shape[0], shape[1] // 2, 2, *shape[2:]))
        target = self.choose.choice(wanted)
        known = -int(np.prod(target)) if -1 in target else 1
        out = tuple(size // known if extent == -1 else extent for extent in target)
        if not 2 <= len(out) <= 5:
            return x
        return self.op("Reshape", [x, self.integers(*target)], out)

    def split(self, x: str) -> str:
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        if shape[axis] % 2:
            return x
        first, second = self.name("t"), self.name("t")
        parts = {"num_outputs": 2} if self.opset >= 18 else {}
        self.nodes.append(helper.make_node("Split", [x], [first, second], axis=axis, **parts))
        half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        self.shapes[first] = self.shapes[second] = half
        if self.choose.random() < 0.6:
            self.outputs.append(self.op("Sin" if self.dtype == 1 else "Tanh", [second], half))
        return first

    def pad(self, x: str) -> str:
        shape = self.shapes[x]
        rank = len(shape)
        axis = self.choose.randrange(rank)
        if shape[axis] < 2:
            return x
        pads = [0] * (2 * rank)
        pads[axis] = 1
        mode = self.choose.choice(("constant", "edge", "reflect"))
        out = tuple(n + pads[k] for k, n in enumerate(shape))
        if self.opset < 11:
            return self.op("Pad", [x], out, mode=mode, pads=pads, value=0.5)
        inputs = [x, self.integers(*pads)]
        if mode == "constant" and self.choose.random() < 0.5:
            inputs.append(self.constant(np.array(0.5, self.numpy)))
        return self.op("Pad", inputs, out, mode=mode)

    def pool(self, x: str) -> str:
        if len(self.shapes[x]) != 4:
            return x
        n, c, h, w = self.shapes[x]
        kind = self.choose.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
        if kind.startswith("Global"):
            return self.op(kind, [x], (n, c, 1, 1))
        if min(h, w) < 2:
            return x
        padded = self.choose.random() < 0.5
        attrs = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1] if padded else [0, 0, 0, 0]}
        if kind == "AveragePool":
            attrs["count_include_pad"] = self.choose.randint(0, 1)
        extra = 1 if padded else -1
        return self.op(kind, [x], (n, c, h + extra, w + extra), **attrs)

    def recurrent(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 3:
            return self.linear(x)
        kind, gates = self.choose.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
        hidden = self.extent()
        inputs = [
            x,
            self.floats(1, gates * hidden, shape[2]),
            self.floats(1, gates * hidden, hidden),
        ]
        if self.choose.random() < 0.5:
            inputs.append(self.floats(1, 2 * gates * hidden))
        return self.op(kind, inputs, (shape[0], 1, shape[1], hidden), hidden_size=hidden)

    def any_linear(self, x: str) -> str:
        kind = self.choose.random()
        if kind < 0.45:
            return self.conv(x)
        if kind < 0.6:
            return self.conv_transpose(x)
        if kind < 0.7:
            return self.quantized_linear(x)
        return self.linear(x)

    def spread(self, x: str) -> None:
        """Let something else read a value, or make it an output, now and then."""
        if self.choose.random() < 0.08:
            self.outputs.append(self.op("Tanh", [x], self.shapes[x]))
        elif self.choose.random() < 0.05:
            self.give(x)

    def give(self, x: str) -> None:
        """Make a value an output of the graph."""
        if x in {value.name for value in self.inputs}:
            x = self.same(x)
        if x not in self.outputs:
            self.outputs.append(x)


def network(seed: int, *, opset: int = 17, dtype: int = TensorProto.FLOAT) -> Layers:
    """Build a random network: input, linear, layout, BatchNorm or affine, layout, linear."""
    layers = Layers(seed, dtype=dtype, opset=opset)
    choose = layers.choose
    rank = choose.choice((2, 3, 4, 4, 4, 5))
    shape = (
        choose.choice((1, 2, 2)),
        layers.extent(),
        *(choose.choice(SPATIAL) for _ in range(rank - 2)),
    )
    x = layers.input(shape, symbolic=choose.random() < 0.3)
    if choose.random() < 0.75:
        x = layers.any_linear(x)
        layers.spread(x)
    for _ in range(choose.choice((0, 0, 1, 1, 2, 3))):
        x = layers.layout(x)
        layers.spread(x)
    x = _scaled(layers, x)
    layers.spread(x)
    if choose.random() < 0.2:
        x = _scaled(layers, x)
    for _ in range(choose.choice((0, 0, 0, 1, 1, 2))):
        x = layers.layout(x)
        layers.spread(x)
    if choose.random() < 0.6:
        x = layers.recurrent(x) if choose.random() < 0.2 else layers.any_linear(x)
    layers.give(x)
    return layers


def _scaled(layers: Layers, x: str) -> str:
    if len(layers.shapes[x]) < 2 or layers.choose.random() < 0.35:
        return layers.affine(x)
    positive = layers.choose.random() < 0.3
    return layers.batch_norm(x, positive=positive, plain=positive and layers.choose.random() < 0.5)
