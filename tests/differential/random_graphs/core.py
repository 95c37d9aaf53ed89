"""What every part of a random graph is made with: draws, weights that are shared, and types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from layers import Layers
from onnx import FunctionProto, NodeProto, TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx

OWN = "own.functions"
"""Domain of the functions that a graph brings along."""


@dataclass
class Inside:
    """What was made for a subgraph or the body of a function."""

    nodes: list[NodeProto]
    weights: list[TensorProto]
    """Its own ones; empty where they stand outside."""
    result: str


class Core(Layers):
    """A graph that is being made, and the functions that belong to it."""

    def __init__(self, seed: int, *, dtype: int = TensorProto.FLOAT, opset: int = 17) -> None:
        super().__init__(seed, dtype=dtype, opset=opset)
        self.rounds = False
        self.shared: dict[tuple[int, ...], list[str]] = {}
        self.functions: list[FunctionProto] = []
        self.depth = 0

    def model(self) -> onnx.ModelProto:
        model = super().model()
        if self.functions:
            model.functions.extend(self.functions)
            model.opset_import.append(helper.make_opsetid(OWN, 1))
        return model

    def inside(self, make: Callable[[], str], *, own_weights: bool) -> Inside:
        """Make a part of the graph that stands elsewhere: its values are not known outside."""
        kept = self.nodes, self.initializers, self.outputs, self.shared
        self.nodes, self.outputs = [], []
        self.shared = {shape: list(names) for shape, names in self.shared.items()}
        if own_weights:
            self.initializers = []
        self.depth += 1
        result = make()
        self.depth -= 1
        made = Inside(self.nodes, self.initializers if own_weights else [], result)
        self.nodes, self.initializers, self.outputs, self.shared = kept
        return made

    def several(
        self, op: str, inputs: list[str], shapes: list[tuple[int, ...] | None], **attrs: object
    ) -> list[str]:
        """Apply an operator with several outputs; None for one that is no tensor or left out."""
        names = [self.name("t") for _ in shapes]
        domain = str(attrs.pop("domain", ""))
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attrs))
        self.shapes.update({n: s for n, s in zip(names, shapes, strict=True) if s is not None})
        return names

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

    def activation(self, x: str) -> str:
        """Apply one that the runtime has in every type at every opset."""
        if self.dtype == TensorProto.DOUBLE:
            return self.op("Relu", [x], self.shapes[x])
        return super().activation(x)

    def quantized_linear(self, x: str) -> str:
        return super().quantized_linear(x) if self.dtype == TensorProto.FLOAT else self.linear(x)
