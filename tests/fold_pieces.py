"""Linear and layout operators with every attribute that folding has to get right.

The pieces of `layers`, and besides them: padding of every kind, transposed convolutions with all
their attributes, products of every rank with the weight on either side, fused operators,
recurrences of either direction, dynamically quantised products, operators that commute and some
that only seem to, and weights that several operators share.
"""

from __future__ import annotations

import math

import numpy as np
from layers import Layers
from onnx import TensorProto, helper

LAYOUTS = (
    *("same", "transpose", "reshape", "unsqueeze", "squeeze", "flatten", "concat", "split"),
    *("slice", "pad", "pool", "reduce", "resize", "activation", "gather", "tile", "expand"),
    *("to_space", "to_depth", "cast", "rectified", "padded_pool", "resized", "both_parts"),
)
LARGEST = 4000


class FoldPieces(Layers):
    """The pieces, each a method that appends nodes and gives what they compute."""

    def __init__(self, seed: int, *, dtype: int = TensorProto.FLOAT, opset: int = 17) -> None:
        super().__init__(seed, dtype=dtype, opset=opset)
        self.shared: dict[tuple[tuple[int, ...], bool], list[str]] = {}

    def chance(self, probability: float) -> bool:
        return self.choose.random() < probability

    def pick(self, *options: object) -> object:
        return self.choose.choice(options)

    def floats(self, *shape: int, low: float | None = None, high: float = 2.0) -> str:
        """Give weights; now and then those that another operator has already."""
        known = self.shared.setdefault((shape, low is None), [])
        if known and self.chance(0.1) and (low is None or low > 0):
            return self.choose.choice(known)
        made = super().floats(*shape, low=low, high=high)
        if low is None or low > 0:
            known.append(made)
        return made

    # Linear operators -------------------------------------------------------------------------

    def any_linear(self, x: str) -> str:
        rank = len(self.shapes[x])
        images = ("conv", "wide_conv", "wide_conv", "wide_transpose", "conv_transpose", "fused")
        others = ("linear", "product", "product", "quantized_linear", "dynamic", "recurrence")
        kinds = (*images, *others) if rank >= 3 else others
        return str(getattr(self, self.choose.choice(kinds))(x))

    def wide_conv(self, x: str) -> str:
        """Apply a convolution with padding of every kind, and more of it than the kernel."""
        shape = self.shapes[x]
        channels, space = shape[1], shape[2:]
        groups = self.choose.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
        made = groups * self.choose.choice((1, 2))
        kernel = [self.choose.randint(1, 3) for _ in space]
        strides = [self.choose.randint(1, 2) for _ in space]
        dilations = [self.choose.randint(1, 2) for _ in space]
        attrs: dict[str, object] = {"strides": strides, "dilations": dilations, "group": groups}
        way = self.pick("pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID")
        pads = [0] * (2 * len(space))
        if way == "pads":
            pads = [self.choose.randint(0, 2) for _ in pads]
            attrs["pads"] = pads
        else:
            attrs["auto_pad"] = way
        spans = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
        if str(way).startswith("SAME"):
            out = [-(-n // s) for n, s in zip(space, strides, strict=True)]
        else:
            half = len(space)
            out = [
                (n + pads[i] + pads[i + half] - spans[i]) // strides[i] + 1
                for i, n in enumerate(space)
            ]
        if min(out) < 1:
            return x
        inputs = [x, self.floats(made, channels // groups, *kernel)]
        if self.chance(0.5):
            inputs.append(self.floats(made))
        return self.op("Conv", inputs, (shape[0], made, *out), **attrs)

    def wide_transpose(self, x: str) -> str:
        """Apply a transposed convolution with groups, padding, dilations and extra rows."""
        shape = self.shapes[x]
        channels, space = shape[1], shape[2:]
        groups = self.choose.choice([g for g in (1, 2, channels) if channels % g == 0])
        made = self.choose.choice((1, 2))
        kernel = [self.choose.randint(1, 3) for _ in space]
        strides = [self.choose.randint(1, 2) for _ in space]
        dilations = [self.choose.randint(1, 2) for _ in space]
        half = len(space)
        pads = [self.choose.randint(0, 1) for _ in range(2 * half)]
        extra = [self.choose.randint(0, step - 1) for step in strides]
        out = [
            strides[i] * (n - 1) + extra[i] + dilations[i] * (kernel[i] - 1) + 1
            - pads[i] - pads[i + half]
            for i, n in enumerate(space)
        ]  # fmt: skip
        if min(out) < 1:
            return x
        inputs = [x, self.floats(channels, made, *kernel)]
        if self.chance(0.5):
            inputs.append(self.floats(made * groups))
        attrs = {"strides": strides, "dilations": dilations, "group": groups, "pads": pads}
        return self.op(
            "ConvTranspose",
            inputs,
            (shape[0], made * groups, *out),
            output_padding=extra,
            **attrs,
        )

    def fused(self, x: str) -> str:
        """Apply a convolution that is fused with an activation, or with a sum."""
        if len(self.shapes[x]) != 4 or self.dtype != TensorProto.FLOAT:
            return self.wide_conv(x)
        made = self.extent()
        shape = (self.shapes[x][0], made, *self.shapes[x][2:])
        inputs = [x, self.floats(made, self.shapes[x][1], 1, 1), self.floats(made)]
        if self.chance(0.3):
            inputs.append(self.op("Conv", inputs[:2], shape))
        attrs = {"activation": "Relu"} if self.chance(0.5) else {}
        return self.op("FusedConv", inputs, shape, domain="com.microsoft", **attrs)

    def product(self, x: str) -> str:
        """Multiply by a weight of any rank, on either side, which may broadcast."""
        shape = self.shapes[x]
        made = self.extent()
        way = self.choose.randrange(6)
        if way == 0:
            return self.op("MatMul", [x, self.floats(shape[-1])], shape[:-1])
        if way == 1 and len(shape) > 2:
            return self.op("MatMul", [self.floats(shape[-2]), x], (*shape[:-2], shape[-1]))
        if way == 2:
            lead = self.choose.randint(1, 3)
            weight = self.floats(lead, *(1,) * max(len(shape) - 2, 1), shape[-1], made)
            body = (1,) * (max(len(shape) - 2, 1) + 1 - (len(shape) - 2))
            out = (lead, *np.broadcast_shapes(body[1:] + shape[:-2], (1,) * max(len(shape) - 2, 1)))
            return self.op("MatMul", [x, weight], (*map(int, out), shape[-2], made))
        if way == 3 and len(shape) > 1:
            batch = shape[:-2] if self.chance(0.5) else ()
            weight = self.floats(*batch, made, shape[-2])
            return self.op("MatMul", [weight, x], (*shape[:-2], made, shape[-1]))
        if way == 4:
            return self.fused_product(x)
        return self.matmul(x)

    def fused_product(self, x: str) -> str:
        """Multiply by FusedMatMul, either operand transposed."""
        shape = self.shapes[x]
        made = self.extent()
        a, b = self.chance(0.4), self.chance(0.5)
        if self.dtype == TensorProto.FLOAT16 or len(shape) < 2:
            return self.matmul(x)
        rows, inner = (shape[-1], shape[-2]) if a else shape[-2:]
        weight = self.floats(*((made, inner) if b else (inner, made)))
        attrs = {"transA": int(a), "transB": int(b), "alpha": self.choose.choice((1.0, -0.5))}
        y = self.op(
            "FusedMatMul", [x, weight], (*shape[:-2], rows, made), domain="com.microsoft", **attrs
        )
        return self.op("Add", [y, self.floats(made)], self.shapes[y]) if self.chance(0.3) else y

    def recurrence(self, x: str) -> str:
        """Apply a recurrence of either direction, with any of its inputs."""
        shape = self.shapes[x]
        if len(shape) != 3 or self.dtype == TensorProto.FLOAT16:
            return self.linear(x)
        kind, gates = self.choose.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
        hidden, direction = (
            self.extent(),
            self.choose.choice(("forward", "reverse", "bidirectional")),
        )
        count = 2 if direction == "bidirectional" else 1
        inputs = [
            x,
            self.floats(count, gates * hidden, shape[2]),
            self.floats(count, gates * hidden, hidden),
            self.floats(count, 2 * gates * hidden) if self.chance(0.5) else "",
        ]
        if self.chance(0.3):
            inputs += ["", self.floats(count, shape[1], hidden)]
        attrs: dict[str, object] = {"hidden_size": hidden, "direction": direction}
        if kind == "GRU":
            attrs["linear_before_reset"] = self.choose.randint(0, 1)
        while not inputs[-1]:
            inputs.pop()
        out = (shape[0], count, shape[1], hidden)
        y = self.op(kind, inputs, out, **attrs)
        if self.chance(0.4):
            self.nodes[-1].output.append(last := self.name("t"))
            self.shapes[last] = out[1:]
            self.outputs.append(last)
        return y

    def dynamic(self, x: str) -> str:
        """Apply a product that dynamic quantisation has made one of integers."""
        shape = self.shapes[x]
        if self.dtype != TensorProto.FLOAT or self.opset < 11:
            return self.linear(x)
        made = self.extent()
        conv = len(shape) == 4 and self.chance(0.6)
        weight = (made, shape[1], 1, 1) if conv else (shape[-1], made)
        out = (shape[0], made, *shape[2:]) if conv else (*shape[:-1], made)
        along = (made, 1, 1) if conv else (made,)
        names = [self.name("q") for _ in range(3)]
        self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], names))
        integers = self.constant(self.values.integers(-100, 100, weight).astype(np.int8))
        kind = "ConvInteger" if conv else "MatMulInteger"
        sums = self.op(kind, [names[0], integers, names[2]], out)
        sums = self.op("Cast", [sums], out, to=TensorProto.FLOAT)
        scale = self.floats(*(along if self.chance(0.5) else ()), low=0.01, high=0.02)
        pair = [names[1], scale]
        self.choose.shuffle(pair)
        scales = self.op("Mul", pair, ())
        pair = [sums, scales]
        self.choose.shuffle(pair)
        y = self.op("Mul", pair, out)
        return self.op("Add", [y, self.floats(*along)], out) if self.chance(0.5) else y

    # What stands between ----------------------------------------------------------------------

    def layout(self, x: str) -> str:
        y = str(getattr(self, self.choose.choice(LAYOUTS))(x))
        return y if math.prod(self.shapes[y]) <= LARGEST else x

    def cast(self, x: str) -> str:
        """Go through another float type and back."""
        other = self.pick(TensorProto.DOUBLE, TensorProto.FLOAT)
        y = self.op("Cast", [x], self.shapes[x], to=other)
        if self.chance(0.3):
            y = self.op("Identity", [y], self.shapes[x])
        return self.op("Cast", [y], self.shapes[x], to=self.dtype)

    def rectified(self, x: str) -> str:
        shape = self.shapes[x]
        kind = self.pick("Relu", "LeakyRelu", "PRelu", "Abs", "Neg", "Clip")
        if kind == "PRelu" and self.dtype == TensorProto.FLOAT:
            slope = self.floats(shape[1], *(1,) * (len(shape) - 2), low=0.1)
            return self.op("PRelu", [x, slope], shape)
        if kind in {"PRelu", "LeakyRelu", "Clip"}:
            return self.op("Relu", [x], shape)
        return self.op(str(kind), [x], shape)

    def padded_pool(self, x: str) -> str:
        """Pool with uneven padding, or rounding up, or automatic padding."""
        shape = self.shapes[x]
        if len(shape) != 4 or self.opset < 10:
            return x
        kind = self.pick("MaxPool", "AveragePool")
        attrs: dict[str, object] = {"kernel_shape": [2, 3], "strides": [2, 1]}
        if self.chance(0.5):
            attrs["auto_pad"] = self.pick("SAME_UPPER", "SAME_LOWER")
            out = (-(-shape[2] // 2), shape[3])
        else:
            attrs["pads"] = [1, 1, 0, 1]
            out = ((shape[2] + 1 - 2) // 2 + 1, shape[3])
        if kind == "AveragePool":
            attrs["count_include_pad"] = self.choose.randint(0, 1)
        return self.op(str(kind), [x], (*shape[:2], *out), **attrs)

    def resized(self, x: str) -> str:
        """Resize to given extents, in every mode."""
        shape = self.shapes[x]
        if len(shape) != 4 or self.opset < 13 or self.dtype != TensorProto.FLOAT:
            return x
        out = (*shape[:2], shape[2] + 1, shape[3] * 2)
        mode = self.pick("nearest", "linear", "cubic")
        way = self.pick("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        inputs = [x, "", "", self.integers(*out)]
        return self.op("Resize", inputs, out, mode=mode, coordinate_transformation_mode=way)

    def expand(self, x: str) -> str:
        shape = self.shapes[x]
        axes = [axis for axis, extent in enumerate(shape) if extent == 1]
        lead = () if axes and self.chance(0.6) else (2,)
        if len(shape) + len(lead) > 5 or self.opset < 8:
            return x
        out = [*shape]
        if axes and not lead:
            out[self.choose.choice(axes)] = 2
        out = [*lead, *out]
        return self.op("Expand", [x, self.integers(*out)], tuple(out))

    def to_space(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 4 or shape[1] % 4 or self.opset < 11 or self.dtype != TensorProto.FLOAT:
            return x
        out = (shape[0], shape[1] // 4, 2 * shape[2], 2 * shape[3])
        return self.op("DepthToSpace", [x], out, blocksize=2, mode=self.pick("DCR", "CRD"))

    def to_depth(self, x: str) -> str:
        shape = self.shapes[x]
        if len(shape) != 4 or shape[2] % 2 or shape[3] % 2 or self.dtype != TensorProto.FLOAT:
            return x
        out = (shape[0], 4 * shape[1], shape[2] // 2, shape[3] // 2)
        return self.op("SpaceToDepth", [x], out, blocksize=2)

    def both_parts(self, x: str) -> str:
        """Split, and use both parts."""
        shape = self.shapes[x]
        axis = self.choose.randrange(len(shape))
        if shape[axis] < 3 or self.opset < 13:
            return x
        sizes = [1, shape[axis] - 1]
        names = [self.name("t") for _ in sizes]
        inputs = [x, self.integers(*sizes)]
        self.nodes.append(helper.make_node("Split", inputs, names, axis=axis - len(shape)))
        for name, size in zip(names, sizes, strict=True):
            self.shapes[name] = (*shape[:axis], size, *shape[axis + 1 :])
        self.choose.shuffle(names)
        self.outputs.append(self.scaled_or_not(names[1]))
        return names[0]

    def scaled_or_not(self, x: str) -> str:
        y = self.norm(x) if self.chance(0.6) and len(self.shapes[x]) > 1 else x
        return self.op("Tanh", [y], self.shapes[y])

    def norm(self, x: str) -> str:
        """Scale and shift, by a BatchNorm or by arithmetic."""
        if len(self.shapes[x]) < 2 or self.chance(0.3):
            return self.affine(x)
        positive = self.chance(0.35)
        return self.batch_norm(x, positive=positive, plain=positive and self.chance(0.5))
