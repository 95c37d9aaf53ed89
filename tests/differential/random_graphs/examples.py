"""A random model and what is needed to run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from differential.random_graphs.decorating import decorated
from differential.random_graphs.graph import RandomGraph
from differential.random_graphs.scoping import in_scope
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    Array = np.ndarray[Any, Any]
    Feed = dict[str, Array]

OPSETS = (*range(7, 25), 11, 13, 17, 17, 18, 21)
TYPES = {
    TensorProto.FLOAT: 0.74,
    TensorProto.DOUBLE: 0.1,
    TensorProto.FLOAT16: 0.12,
    TensorProto.BFLOAT16: 0.04,
}
"""How often a graph computes in each type."""


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


def example(seed: int) -> Example:
    """Make the graph of a seed."""
    random = np.random.default_rng(seed)
    dtype = int(random.choice(list(TYPES), p=list(TYPES.values())))
    graph = RandomGraph(seed, dtype=dtype, opset=int(random.choice(OPSETS)))
    graph.build()
    plain = decorated(graph, random)
    scoped, shapes = in_scope(plain, graph.shapes, random)
    return Example(seed, scoped, plain, shapes, dtype, graph.rounds)
