"""Blocks of networks around the normalisations of a random graph."""

from __future__ import annotations

import numpy as np
from differential.random_graphs.norms import Norms


class Blocks(Norms):
    """Appends blocks of vision and sequence models."""

    def conv_block(self, x: str) -> str:
        y = self.any_linear(x) if self.chance(0.3) else self.conv(x)
        if self.chance(0.2):
            y = self.layout(y)
        if self.chance(0.1):
            y = self.activation(y)
        positive = self.chance(0.3)
        y = self.batch_norm(y, positive=positive) if self.chance(0.6) else self.affine(y)
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

    def heads(self, x: str) -> str:
        """Attend with several heads from one projection, causal or not, as exporters write it."""
        shape = self.shapes[x]
        if len(shape) != 3 or shape[-1] % 2:
            return self.square(x)
        batch, time, width = shape
        split, turned = (batch, time, 2, width // 2), (batch, 2, time, width // 2)
        whole = self.op("MatMul", [x, self.floats(width, 3 * width)], (batch, time, 3 * width))
        if self.chance(0.6):
            whole = self.op("Add", [whole, self.floats(3 * width)], self.shapes[whole])
        attrs = {"num_outputs": 3} if self.opset >= 18 else {}
        parts = self.several("Split", [whole], [shape] * 3, axis=2, **attrs)
        q, k, v = (
            self.op(
                "Transpose",
                [self.op("Reshape", [part, self.integers(0, 0, 2, -1)], split)],
                turned,
                perm=[0, 2, 1, 3],
            )
            for part in parts
        )
        if self.chance(0.4):
            q, k = self.norm(q), self.spelled(k)
        if self.shapes[q] != turned or self.shapes[k] != turned:
            return x
        k = self.op("Transpose", [k], (batch, 2, width // 2, time), perm=[0, 1, 3, 2])
        scores = self.op("MatMul", [q, k], (batch, 2, time, time))
        scores = self.op("Mul", [scores, self.number(0.5)], self.shapes[scores])
        if self.chance(0.4):
            mask = np.triu(np.full((time, time), -100.0), 1).astype(self.numpy)
            scores = self.op("Add", [scores, self.constant(mask)], self.shapes[scores])
        weights = self.op("Softmax", [scores], self.shapes[scores], axis=3)
        y = self.op("MatMul", [weights, v], turned)
        y = self.op("Transpose", [y], split, perm=[0, 2, 1, 3])
        y = self.op("Reshape", [y, self.integers(0, 0, -1)], shape)
        y = self.op("MatMul", [y, self.floats(width, width)], shape)
        return self.op("Add", [x, y], shape) if self.chance(0.7) else y

    def layers_of(self, x: str) -> str:
        """Stack two layers of a transformer, with the norms before, after or around the blocks."""
        place = self.choose.choice(("pre", "pre", "post", "both"))
        for _ in range(2):
            for make in (self.square, self.feed_forward_of):
                shape = self.shapes[x]
                y = make(self.spelled_or_not(x) if place != "post" else x)
                if place == "both":
                    y = self.spelled_or_not(y)
                if self.shapes[y] != shape:
                    return x
                x = self.op("Add", [x, y], shape)
                x = self.spelled_or_not(x) if place == "post" else x
        return self.spelled_or_not(x) if place == "pre" else x

    def spelled_or_not(self, x: str) -> str:
        return self.spelled(x) if self.chance(0.4) else self.norm(x)

    def feed_forward_of(self, x: str) -> str:
        shape, width = self.shapes[x], self.extent()
        y = self.op("MatMul", [x, self.floats(shape[-1], width)], (*shape[:-1], width))
        y = self.activation(y)
        return self.op("MatMul", [y, self.floats(width, shape[-1])], shape)

    def separable(self, x: str) -> str:
        """Convolve each channel by itself, then across channels, each with its BatchNorm."""
        shape = self.shapes[x]
        if len(shape) < 3:
            return self.linear(x)
        ones = [1] * (len(shape) - 2)
        y = self.op("Conv", [x, self.floats(shape[1], 1, *ones)], shape, group=shape[1])
        y = self.batch_norm(y) if self.chance(0.7) else y
        y = self.activation(y) if self.chance(0.3) else y
        made = self.extent()
        y = self.op("Conv", [y, self.floats(made, shape[1], *ones)], (shape[0], made, *shape[2:]))
        return self.batch_norm(y) if self.chance(0.7) else y
