"""A Pre-LN transformer whose residual stream has a few channels of large values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    Array = np.ndarray[Any, Any]

WIDTH, HIDDEN, HEADS, TOKENS, VOCABULARY = 128, 512, 4, 32, 64
OUTLIERS = (5, 40, 97)
"""Channels that carry large values."""
GAIN = 1.0
"""How much a norm's scale raises them."""
SIZE = 16.0
"""How many times as large they are."""


@dataclass
class Network:
    """Nodes and weights in the making."""

    opset: int = 17
    nodes: list[NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        """Add a node; give the name of its output."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attrs))
        return name

    def weight(self, name: str, values: Array) -> str:
        """Add an initializer."""
        dtype = values.dtype if values.dtype.kind == "i" else np.float32
        self.weights[name] = values.astype(dtype)
        return name

    def linear(self, x: str, name: str, fan_in: int, fan_out: int, *, writes: bool = False) -> str:
        """Multiply and add a bias; what writes to the stream writes more to the outliers."""
        w = self.random.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)
        b = self.random.standard_normal(fan_out) * 0.1
        if writes:
            w[:, list(OUTLIERS)] *= SIZE / 10
        product = self.op("MatMul", x, self.weight(f"{name}.weight", w))
        return self.op("Add", product, self.weight(f"{name}.bias", b))

    def norm(self, x: str, name: str) -> str:
        """Normalise; the outliers keep their place."""
        scale = 1 + 0.2 * self.random.standard_normal(WIDTH)
        scale[list(OUTLIERS)] *= GAIN
        bias = 0.1 * self.random.standard_normal(WIDTH)
        parameters = [self.weight(f"{name}.weight", scale), self.weight(f"{name}.bias", bias)]
        return self.op("LayerNormalization", x, *parameters, axis=-1, epsilon=1e-5)


def transformer(layers: int = 4) -> ModelProto:
    """Build it: token numbers [1, 32] in, logits [1, 32, 64] out."""
    net = Network()
    table = net.random.standard_normal((VOCABULARY, WIDTH))
    table[:, list(OUTLIERS)] *= SIZE
    x = net.op("Gather", net.weight("embedding", table), "ids")
    for layer in range(layers):
        h = net.norm(x, f"{layer}.norm1")
        x = net.op("Add", x, _attention(net, h, f"{layer}.attention"))
        h = net.norm(x, f"{layer}.norm2")
        h = net.op("Relu", net.linear(h, f"{layer}.up", WIDTH, HIDDEN))
        x = net.op("Add", x, net.linear(h, f"{layer}.down", HIDDEN, WIDTH, writes=True))
    logits = net.linear(net.norm(x, "norm"), "head", WIDTH, VOCABULARY)
    graph = helper.make_graph(
        net.nodes,
        "transformer",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, TOKENS])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, TOKENS, VOCABULARY])],
        [numpy_helper.from_array(values, name) for name, values in net.weights.items()],
    )
    opset = helper.make_opsetid("", net.opset)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def _attention(net: Network, x: str, name: str) -> str:
    split = net.weight(f"{name}.split", np.array([1, TOKENS, HEADS, WIDTH // HEADS]))
    q, k, v = (
        net.op(
            "Transpose",
            net.op("Reshape", net.linear(x, f"{name}.{part}", WIDTH, WIDTH), split),
            perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3],
        )
        for part in "qkv"
    )
    size = net.weight(f"{name}.size", np.array((WIDTH // HEADS) ** -0.5))
    scores = net.op("Softmax", net.op("MatMul", net.op("Mul", q, size), k), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    join = net.weight(f"{name}.join", np.array([1, TOKENS, WIDTH]))
    return net.linear(net.op("Reshape", mixed, join), f"{name}.out", WIDTH, WIDTH, writes=True)


def sequences(count: int, seed: int) -> list[dict[str, Array]]:
    """Give inputs: random token numbers."""
    random = np.random.default_rng(seed)
    return [{"ids": random.integers(0, VOCABULARY, (1, TOKENS))} for _ in range(count)]
