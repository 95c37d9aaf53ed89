"""Values and weights in 8 bits and fewer, in every form that quantisers write."""

from __future__ import annotations

import numpy as np
from differential.random_graphs.core import Core
from onnx import TensorProto, helper

_SCALES = (0.02, 0.05, 4.35)
_NARROW = (TensorProto.INT4, TensorProto.UINT4)


class Quantised(Core):
    """Appends quantised parts; a type that no quantiser knows is left alone."""

    def step(self) -> str:
        return self.constant(np.array(self.choose.choice(_SCALES), np.float32))

    def zero(self, kind: type[np.generic] = np.int8, *shape: int) -> str:
        return self.constant(np.full(shape, self.choose.choice((0, 3)), kind))

    def quantised(self, x: str) -> str:
        """Put a value through 8 bits, with a scale of its own for each channel now and then."""
        if self.dtype != TensorProto.FLOAT or self.opset < 10:
            return x
        self.rounds = True
        shape = self.shapes[x]
        kind = self.choose.choice((np.int8, np.int8, np.uint8))
        attrs, extents = {}, ()
        if self.opset >= 13 and self.chance(0.3):
            attrs, extents = {"axis": 1}, (shape[1],)
        given = [self.floats(*extents, low=0.02, high=0.08) if extents else self.step()]
        given.append(self.zero(kind, *extents))
        inside = self.op("QuantizeLinear", [x, *given], shape, **attrs)
        if self.chance(0.2):
            inside = self.layout_of_integers(inside)
            if attrs:
                return self.op("DequantizeLinear", [inside, *given], shape, **attrs)
        return self.op("DequantizeLinear", [inside, *given], self.shapes[inside], **attrs)

    def layout_of_integers(self, x: str) -> str:
        """Move integers without changing their axes, or not at all."""
        return self.op("Identity", [x], self.shapes[x])

    def narrow_weight(self, x: str) -> str:
        """Multiply by a weight in 4 or 8 bits whose scales belong to blocks of rows."""
        if self.dtype != TensorProto.FLOAT or self.opset < 21:
            return x
        shape = self.shapes[x]
        width, made = shape[-1], self.extent()
        if width % 2:
            return x
        kind = self.choose.choice((*_NARROW, TensorProto.INT8))
        low = 0 if kind == TensorProto.UINT4 else -8
        values = self.values.integers(low, low + 16, (width, made)).astype(np.int8)
        stored = values.astype(helper.tensor_dtype_to_np_dtype(kind))
        inputs = [self.constant(stored), self.floats(width // 2, made, low=0.05, high=0.3)]
        attrs = {"axis": 0, "block_size": 2}
        weight = self.op("DequantizeLinear", inputs, (width, made), **attrs)
        y = self.op("MatMul", [x, weight], (*shape[:-1], made))
        return self.op("Mul", [y, self.floats(made)], self.shapes[y]) if self.chance(0.6) else y

    def integer_linear(self, x: str) -> str:
        """Compute in integers: QLinearMatMul or QLinearConv between Q and DQ."""
        if self.dtype != TensorProto.FLOAT or self.opset < 10:
            return x
        self.rounds = True
        shape, made = self.shapes[x], self.extent()
        is_conv = len(shape) == 4
        out = (shape[0], made, *shape[2:]) if is_conv else (*shape[:-1], made)
        extents = (made, shape[1], 1, 1) if is_conv else (shape[-1], made)
        a = [self.step(), self.zero(np.uint8)]
        inside = self.op("QuantizeLinear", [x, *a], shape)
        weight = self.constant(self.values.integers(-100, 100, extents).astype(np.int8))
        scales = (made,) if is_conv and self.chance(0.5) else ()
        b = [self.floats(*scales, low=0.01, high=0.02), self.constant(np.zeros(scales, np.int8))]
        c = [self.step(), self.zero(np.uint8)]
        inputs = [inside, *a, weight, *b, *c]
        if is_conv and self.chance(0.5):
            inputs.append(self.constant(self.values.integers(-50, 50, made).astype(np.int32)))
        y = self.op("QLinearConv" if is_conv else "QLinearMatMul", inputs, out)
        return self.op("DequantizeLinear", [y, *c], out)

    def dynamic_linear(self, x: str) -> str:
        """Quantise while it runs: DynamicQuantizeLinear, MatMulInteger, scales afterwards."""
        if self.dtype != TensorProto.FLOAT or self.opset < 11:
            return x
        self.rounds = True
        shape, made = self.shapes[x], self.extent()
        inside, scale, zero = self.several("DynamicQuantizeLinear", [x], [shape, (), ()])
        weight = self.constant(self.values.integers(-100, 100, (shape[-1], made)).astype(np.int8))
        own = self.constant(np.zeros((), np.int8))
        out = (*shape[:-1], made)
        whole = self.op("MatMulInteger", [inside, weight, zero, own], out)
        y = self.op("Cast", [whole], out, to=TensorProto.FLOAT)
        scales = (made,) if self.chance(0.5) else ()
        both = self.op("Mul", [scale, self.floats(*scales, low=0.01, high=0.02)], scales)
        y = self.op("Mul", [y, both], out)
        return self.op("Add", [y, self.floats(made)], out) if self.chance(0.5) else y

    def quantised_sum(self, x: str) -> str:
        """Add or multiply in integers, as ONNX Runtime's quantiser writes it."""
        if self.dtype != TensorProto.FLOAT or self.opset < 10:
            return x
        self.rounds = True
        shape = self.shapes[x]
        a = [self.step(), self.zero(np.uint8)]
        c = [self.step(), self.zero(np.uint8)]
        inside = self.op("QuantizeLinear", [x, *a], shape)
        other = self.op("QuantizeLinear", [self.block(x, shape), *a], shape)
        op = self.choose.choice(("QLinearAdd", "QLinearMul"))
        y = self.op(op, [inside, *a, other, *a, *c], shape, domain="com.microsoft")
        return self.op("DequantizeLinear", [y, *c], shape)
