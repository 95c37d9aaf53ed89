"""Stacks of layers, generated: every placement, spelling and kind of branch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from normlint.context import Context, Settings
from normlint.graph import build_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import ModelProto

WIDTH = 4


@dataclass
class Stack:
    """Writes a model node by node; a tensor is its name."""

    opset: int = 17
    spelled: bool = False
    """Whether norms are spelled out."""
    nodes: list[Any] = field(default_factory=list)
    initializers: dict[str, Any] = field(default_factory=dict)

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> str:
        """Add a node and give its first output."""
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        names = [name if k else name.removesuffix("_0") for k, name in enumerate(names)]
        self.nodes.append(helper.make_node(op, list(inputs), names, domain=domain, **attrs))
        return names[0]

    def constant(self, name: str, values: Any) -> str:
        self.initializers[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def weight(self, *shape: int) -> str:
        generator = np.random.default_rng(len(self.initializers))
        name = f"w{len(self.initializers)}"
        return self.constant(name, generator.normal(size=shape).astype(np.float32))

    def number(self, value: float) -> str:
        return self.constant(f"c{value}", np.float32(value))

    def axes(self, *values: int) -> str:
        return self.constant(f"axes{values}", np.asarray(values, np.int64))

    def linear(self, x: str, into: int = WIDTH, out: int = WIDTH) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(into, out)), self.weight(out))

    def norm(self, x: str) -> str:
        if self.spelled:
            return self.spelled_norm(x)
        return self.add("LayerNormalization", x, self.weight(WIDTH), self.weight(WIDTH))

    def spelled_norm(self, x: str) -> str:
        mean = self.add("ReduceMean", x, axes=[-1])
        centred = self.add("Sub", x, mean)
        square = self.add("Mul", centred, centred)
        variance = self.add("ReduceMean", square, axes=[-1])
        root = self.add("Sqrt", self.add("Add", variance, self.number(1e-5)))
        quotient = self.add("Div", centred, root)
        return self.add("Add", self.add("Mul", quotient, self.weight(WIDTH)), self.weight(WIDTH))

    def batch_norm(self, x: str, width: int = WIDTH) -> str:
        ones = self.constant(f"ones{width}", np.ones(width, np.float32))
        shift = self.weight(width)
        return self.add("BatchNormalization", x, ones, shift, shift, ones)

    def attention(self, x: str, memory: str | None = None, *, normed: bool = False) -> str:
        queries, keys, values = (self.linear(t) for t in (x, memory or x, memory or x))
        if normed:
            queries, keys = self.norm(queries), self.norm(keys)
        scores = self.add("MatMul", queries, self.add("Transpose", keys, perm=[0, 2, 1]))
        weights = self.add("Softmax", self.add("Div", scores, self.number(2.0)), axis=-1)
        return self.linear(self.add("MatMul", weights, values))

    def feed_forward(self, x: str) -> str:
        return self.linear(self.add("Relu", self.linear(x, WIDTH, 2 * WIDTH)), 2 * WIDTH)

    def convolution(self, x: str) -> str:
        """Give the convolution module of a Conformer, with its BatchNorm."""
        channels = self.add("Transpose", x, perm=[0, 2, 1])
        depthwise = self.add(
            "Conv", channels, self.weight(WIDTH, 1, 3), group=WIDTH, pads=[1, 1], kernel_shape=[3]
        )
        active = self.add("Relu", self.batch_norm(depthwise))
        pointwise = self.add("Conv", active, self.weight(WIDTH, WIDTH, 1), kernel_shape=[1])
        return self.add("Transpose", pointwise, perm=[0, 2, 1])

    def layer(self, x: str, placement: str, *branches: Callable[[str], str]) -> str:
        if placement == "parallel":
            normed = self.norm(x)
            return self.add("Add", self.add("Add", x, branches[0](normed)), branches[1](normed))
        for branch in branches:
            x = PLACEMENTS[placement](self, x, branch)
        return x

    def layers(self, x: str, placement: str, count: int) -> str:
        for _ in range(count):
            x = self.layer(x, placement, self.attention, self.feed_forward)
        return x

    def model(
        self, *outputs: str, inputs: dict[str, tuple[Any, ...]] | None = None, integers: str = ""
    ) -> ModelProto:
        shapes = inputs or {"x": ("B", "T", WIDTH)}
        graph = helper.make_graph(
            self.nodes,
            "stack",
            [
                helper.make_tensor_value_info(
                    name, TensorProto.INT64 if name in integers else TensorProto.FLOAT, shape
                )
                for name, shape in shapes.items()
            ],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs],
            list(self.initializers.values()),
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _deepnorm(stack: Stack, x: str, branch: Callable[[str], str]) -> str:
    scaled = stack.add("Mul", x, stack.number(1.68))
    return stack.norm(stack.add("Add", scaled, branch(x)))


def _admin(stack: Stack, x: str, branch: Callable[[str], str]) -> str:
    return stack.norm(stack.add("Add", stack.add("Mul", x, stack.weight(WIDTH)), branch(x)))


PLACEMENTS: dict[str, Callable[[Stack, str, Callable[[str], str]], str]] = {
    "pre": lambda stack, x, branch: stack.add("Add", x, branch(stack.norm(x))),
    "post": lambda stack, x, branch: stack.norm(stack.add("Add", branch(x), x)),
    "res-post": lambda stack, x, branch: stack.add("Add", x, stack.norm(branch(x))),
    "sandwich": lambda stack, x, branch: stack.add("Add", x, stack.norm(branch(stack.norm(x)))),
    "deepnorm": _deepnorm,
    "admin": _admin,
    "bare": lambda stack, x, branch: stack.add("Add", x, branch(x)),
}


def stacked(placement: str, count: int, *, spelled: bool = False) -> ModelProto:
    """Give a stack of layers, with a final norm where the placement wants one."""
    stack = Stack(spelled=spelled)
    y = stack.layers("x", placement, count)
    if placement not in {"post", "deepnorm", "admin"}:
        y = stack.norm(y)
    return stack.model(stack.linear(y))


def context_of(model: ModelProto, **settings: Any) -> Context:
    """Give the facts of a model."""
    return Context(build_graph(model, numpy_helper.to_array), Settings(**settings))


def words(context: Context) -> list[str]:
    """Give the placements of all norms in order."""
    return [context.placement(norm).word.value for norm in context.norms]
