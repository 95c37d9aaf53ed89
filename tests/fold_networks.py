"""Random networks with every neighbour that folding has to get right.

Sums, gates and small factors of several branches, Concats of branches of different kinds, norms of
mixed types, several readers, readers of extents, and weights that a caller may override.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from fold_pieces import LARGEST, FoldPieces
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    import onnx

JOINED = (*("summed", "summed", "gated", "scaled", "joined", "subtracted", "residual", "beside"),)


class FoldNetwork(FoldPieces):
    """One random network."""

    # Several branches -------------------------------------------------------------------------

    def branch(self, x: str) -> str:
        """Apply a linear operator, and perhaps a norm and more, that keep the shape."""
        shape = self.shapes[x]
        y = self.kept(x) if len(shape) > 1 and self.chance(0.6) else self.tried(x)
        if self.chance(0.3):
            y = self.norm(y)
        return (
            self.op(self.choose.choice(("Identity", "Relu")), [y], shape) if self.chance(0.2) else y
        )

    def kept(self, x: str) -> str:
        """Apply a product or convolution of as many channels, with a bias or without."""
        shape = self.shapes[x]
        if len(shape) == 2:
            inputs = [x, self.floats(shape[1], shape[1])]
            if self.chance(0.5):
                return self.op("MatMul", inputs, shape)
            return self.op("Gemm", [*inputs, self.floats(shape[1])], shape)
        kernel = [self.choose.choice((1, 1, 3)) for _ in shape[2:]]
        inputs = [x, self.floats(shape[1], shape[1], *kernel)]
        if self.chance(0.5):
            inputs.append(self.floats(shape[1]))
        kind = "ConvTranspose" if max(kernel) == 1 and self.chance(0.2) else "Conv"
        return self.op(kind, inputs, shape, pads=[k // 2 for k in kernel] * 2)

    def tried(self, x: str) -> str:
        """Apply any linear operator that happens to keep the shape."""
        shape = self.shapes[x]
        for _ in range(8):
            mark = (len(self.nodes), len(self.initializers), len(self.outputs))
            y = self.any_linear(x)
            if self.shapes[y] == shape and y != x:
                return y
            del self.nodes[mark[0] :], self.initializers[mark[1] :], self.outputs[mark[2] :]
            self.shared.clear()
        return self.block(x, shape)

    def joined_with(self, op: str, x: str, y: str) -> str:
        pair = [x, y]
        self.choose.shuffle(pair)
        return self.op(op, pair, self.shapes[x])

    def summed(self, x: str) -> str:
        y = self.joined_with(self.choose.choice(("Add", "Sum")), self.branch(x), self.branch(x))
        return self.joined_with("Add", y, self.branch(x)) if self.chance(0.2) else y

    def subtracted(self, x: str) -> str:
        return self.joined_with("Sub", self.branch(x), self.branch(x))

    def residual(self, x: str) -> str:
        return self.joined_with("Add", self.branch(x), x)

    def beside(self, x: str) -> str:
        """Add a norm to a convolution of the same input, and perhaps to another one."""
        y = self.joined_with("Add", self.norm(x), self.kept(x)) if len(self.shapes[x]) > 1 else x
        return self.joined_with("Add", y, self.kept(x)) if y != x and self.chance(0.5) else y

    def gated(self, x: str) -> str:
        y = self.branch(x)
        gate = self.op(
            "Sigmoid" if self.dtype == TensorProto.FLOAT else "Tanh", [y], self.shapes[y]
        )
        return self.joined_with("Mul", self.branch(x) if self.chance(0.5) else y, gate)

    def scaled(self, x: str) -> str:
        """Multiply by a factor that is computed from a constant, of one value or one a channel."""
        y, shape = self.branch(x), self.shapes[x]
        if len(shape) < 2:
            return y
        every = tuple(range(len(shape)))
        kept = self.choose.choice((every, every, tuple(a for a in every if a != 1)))
        small = tuple(1 if axis in kept else extent for axis, extent in enumerate(shape))
        if self.opset >= 18:
            factor = self.op("ReduceMax", [x, self.integers(*kept)], small)
        else:
            factor = self.op("ReduceMax", [x], small, axes=list(kept))
        pair = [factor, self.floats(*self.choose.choice(((), (1,), small)), low=0.5)]
        op = self.choose.choice(("Mul", "Div"))
        if op == "Mul":
            self.choose.shuffle(pair)
        factor = self.op(op, pair, small)
        return self.joined_with("Mul", y, factor)

    def joined(self, x: str) -> str:
        """Concatenate branches of different kinds, and a constant."""
        shape = self.shapes[x]
        parts = [self.branch(x), self.branch(x)]
        if self.chance(0.3):
            parts.append(self.floats(*shape))
        if self.chance(0.1):
            parts.append(parts[0])
        axis = 1 if self.chance(0.6) else self.choose.randrange(len(shape))
        out = (*shape[:axis], len(parts) * shape[axis], *shape[axis + 1 :])
        return self.op("Concat", parts, out, axis=self.choose.choice((axis, axis - len(shape))))

    # Norms ------------------------------------------------------------------------------------

    def batch_norm(self, x: str, *, positive: bool = False, plain: bool = False) -> str:
        if self.opset < 15 or self.dtype != TensorProto.FLOAT16 or self.chance(0.5):
            return super().batch_norm(x, positive=positive, plain=plain)
        # From opset 15 on scale and bias, and mean and variance, may have types of their own.
        channels = self.shapes[x][1]
        names = []
        for low in (0.5, None, None, 0.1):
            values = self.values.standard_normal(channels) if low is None else None
            values = self.values.uniform(low or 0, 2, channels) if values is None else values
            names.append(self.constant(values.astype(np.float32)))
        return self.op("BatchNormalization", [x, *names], self.shapes[x])

    def scalar(self, x: str) -> str:
        """Multiply, divide or shift by one value."""
        op = self.choose.choice(("Mul", "Div", "Add", "Sub"))
        pair = [x, self.floats(*self.choose.choice(((), (1,))), low=0.5)]
        if op != "Div" and self.chance(0.3):
            pair.reverse()
        return self.op(op, pair, self.shapes[x])

    def read_twice(self, x: str) -> str:
        """Let two linear operators read a value, and one that wants its extents alone."""
        first, second = self.any_linear(x), self.any_linear(x)
        if self.chance(0.3):
            self.outputs.append(self.op("Tanh", [second], self.shapes[second]))
        else:
            self.give(second)
        if self.chance(0.2) and self.dtype == TensorProto.FLOAT:
            extents = self.op("Shape", [x], (len(self.shapes[x]),))
            self.outputs.append(self.op("Cast", [extents], self.shapes[extents], to=self.dtype))
        return first

    def overridable(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """List some weights among the inputs, so that a caller may override them."""
        for tensor in model.graph.initializer:
            if tensor.data_type == self.dtype and self.chance(0.3):
                value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                model.graph.input.append(value)
        return model


def overrides(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Give other values for the weights that may be overridden."""
    listed = {value.name for value in model.graph.input}
    old = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name in listed}
    return {name: np.asarray(values * 1.5, values.dtype) for name, values in old.items()}


def fold_network(seed: int, *, opset: int = 17, dtype: int = TensorProto.FLOAT) -> FoldNetwork:
    """Build a network: a few linear operators, joins, layouts and norms in any order."""
    layers = FoldNetwork(seed, dtype=dtype, opset=opset)
    choose = layers.choose
    rank = choose.choice((2, 3, 3, 4, 4, 4, 5))
    space = (choose.choice((2, 3, 4)) for _ in range(rank - 2))
    shape = (choose.choice((1, 2, 2)), choose.choice((2, 2, 3, 4)), *space)
    x = layers.input(shape, symbolic=choose.random() < 0.3)
    for step in _in_front(layers) if choose.random() < 0.4 else _behind(layers):
        y = str(getattr(layers, step)(x))
        if len(layers.shapes[y]) > 1 and math.prod(layers.shapes[y]) <= LARGEST:
            x = y
            layers.spread(x)
    layers.give(x)
    return layers


def _behind(layers: FoldNetwork) -> list[str]:
    """Choose what the network does with a norm behind linear operators."""
    choose = layers.choose
    steps = ["any_linear"] if choose.random() < 0.8 else []
    steps += choose.choices(("layout", choose.choice(JOINED)), k=choose.choice((0, 0, 1, 1, 2)))
    steps.append("norm")
    steps += choose.choices(("norm", "scalar", "layout", "layout"), k=choose.choice((0, 1, 1, 2)))
    if choose.random() < 0.5:
        steps.append(choose.choice(("any_linear", choose.choice(JOINED))))
    return steps


def _in_front(layers: FoldNetwork) -> list[str]:
    """Choose what the network does with a norm in front of linear operators."""
    choose = layers.choose
    steps = choose.choices(("norm", "scalar"), (4, 1), k=choose.choice((1, 1, 2)))
    steps += ["layout"] * choose.choice((0, 0, 1, 1, 2))
    steps.append(choose.choice(("any_linear", "any_linear", "read_twice", choose.choice(JOINED))))
    return [*steps, "norm"] if choose.random() < 0.3 else steps
