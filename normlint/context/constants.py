"""Which tensors are known before the model runs, and their values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from normlint.context.growth import require_bounded
from normlint.context.plain import evaluated_plainly
from normlint.graph import Constant, Node
from normlint.model import ValuesUnavailable
from normlint.runtime import session_of

if TYPE_CHECKING:
    from normlint.graph import Graph, Tensor
    from normlint.recognise.shapes import Shapes

    Array = np.ndarray[Any, Any]

_NOT_DETERMINISTIC = frozenset(
    (
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"),
        *("Bernoulli", "Dropout", "Constant", "If", "Loop", "Scan", "SequenceMap"),
    )
)
_OLDEST = {"QuantizeLinear": 19, "DequantizeLinear": 19}
"""Opsets from which on the evaluator has an operator that computes the same at lower ones."""
_OF_SHAPE = frozenset(("Shape", "Size"))
_NUMBERS = "biufV"
"""Kinds of numpy types that hold numbers; V is what ml_dtypes calls its own."""
_LARGEST_CACHED = 1 << 20
_LARGEST_UNIFORM = 1 << 20
_MOST_HELD = 1 << 29
"""Bytes of intermediate results after which a constant is not computed any further."""


class Constants:
    """Constants, and what is computed from constants alone.

    The extents of a tensor of static shape are constants as well (Shape, Size).
    """

    def __init__(self, graph: Graph) -> None:
        self._computed: dict[Tensor, Node] = {}
        self._made: dict[Node, tuple[Tensor, ...]] = {}
        """What the nodes computed before rewrites took their results over."""
        self._cache: dict[Tensor, Array] = {}
        for scope in graph.scopes():
            self._mark(scope)

    def extend(self, graph: Graph) -> bool:
        """Look again for constants, once more extents are known; say whether there are more."""
        before = len(self._computed)
        for scope in graph.scopes():
            self._mark(scope)
        return len(self._computed) > before

    def _mark(self, scope: Graph) -> None:
        for node in scope.nodes:
            if self._is_constant_node(node):
                self._made[node] = tuple(node.outputs)
                named = (t for t in node.outputs if t.name and t.producer is node)
                self._computed.update(dict.fromkeys(named, node))

    def _is_constant_node(self, node: Node) -> bool:
        if node.op in _NOT_DETERMINISTIC or not node.is_standard or not node.inputs:
            return False
        if node.op in _OF_SHAPE:
            shape = node.inputs[0].shape
            return shape is not None and all(isinstance(extent, int) for extent in shape)
        if node.op == "CastLike" and not (len(node.inputs) == 2 and node.inputs[1].dtype):
            return False
        computed = self._computed
        for tensor in _read(node):
            if not tensor.is_constant and tensor not in computed and tensor.name:
                return False
        return True

    @cached_property
    def shapes(self) -> Shapes:
        """Shapes that inference left open."""
        from normlint.recognise.shapes import Shapes

        return Shapes(self)

    def is_constant(self, tensor: Tensor) -> bool:
        """Whether the values are written in the file, or follow from such alone."""
        return tensor.is_constant or tensor in self._computed

    def values(self, tensor: Tensor) -> Array:
        """Give the values of a constant tensor.

        What is computed is computed with onnx's reference evaluator; large results are not kept.
        Raises ValuesUnavailable where the tensor is no constant, its side file is missing, or the
        evaluator cannot run one of the nodes.
        """
        if isinstance(tensor, Constant):
            return tensor.values
        if tensor in self._cache:
            return self._cache[tensor]
        if tensor not in self._computed:
            raise ValuesUnavailable(f"{tensor.name} is no constant")
        local: dict[Tensor, Array] = {}
        held = 0
        for node in self._needed(tensor):
            if held > _MOST_HELD:
                raise ValuesUnavailable(f"{tensor.name} takes too much memory to compute")
            made = self._made[node]
            for output, values in zip(made, self._evaluate(node, local), strict=False):
                local[output] = values
                held += values.nbytes
                if values.nbytes <= _LARGEST_CACHED:
                    self._cache[output] = values
        return local[tensor]

    def _needed(self, tensor: Tensor) -> list[Node]:
        """Give the nodes that compute a tensor, each after those it needs."""
        order: list[Node] = []
        done: set[Node] = set()
        pending: list[tuple[Tensor, bool]] = [(tensor, False)]
        while pending:
            current, ready = pending.pop()
            node = self._computed.get(current)
            if node is None or node in done or current in self._cache:
                continue
            if ready or node.op in _OF_SHAPE:
                done.add(node)
                order.append(node)
                continue
            pending.append((current, True))
            pending.extend((source, False) for source in _read(node) if source.name)
        return order

    def _evaluate(self, node: Node, local: dict[Tensor, Array]) -> list[Array]:
        if node.op in _OF_SHAPE:
            return [_of_shape(node)]
        inputs = [
            local[tensor] if tensor in local else self.values(tensor)
            for tensor in _read(node)
            if tensor.name
        ]
        if node.op == "CastLike":
            return [inputs[0].astype(onnx.helper.tensor_dtype_to_np_dtype(node.inputs[1].dtype))]
        try:
            return evaluate_node(node, inputs)
        except Exception as fault:
            raise ValuesUnavailable(f"{node.op} cannot be evaluated: {fault}") from fault

    def known(self, tensor: Tensor | None, most: int = _LARGEST_UNIFORM) -> Array | None:
        """Give the values of a constant of at most so many elements; None where there are none."""
        if tensor is None or not self.is_constant(tensor):
            return None
        if isinstance(tensor, Constant) and not 0 < tensor.size <= most:
            return None
        try:
            values = self.values(tensor)
        except ValuesUnavailable:
            return None
        return values if 0 < values.size <= most else None

    def scalar(self, tensor: Tensor | None) -> float | None:
        """Give the value of a constant that has one element, as a float."""
        values = self.known(tensor, 1)
        if values is None or values.dtype.kind not in _NUMBERS:
            return None
        return float(values.reshape(-1)[0])

    def uniform(self, tensor: Tensor | None) -> float | None:
        """Give the value of a constant whose elements are all equal; None for large ones."""
        values = self.known(tensor)
        if values is None or values.dtype.kind not in _NUMBERS:
            return None
        flat = values.reshape(-1)
        return float(flat[0]) if bool((flat == flat[0]).all()) else None

    def integers(self, tensor: Tensor | None) -> tuple[int, ...] | None:
        """Give the values of a constant tensor of integers (axes, shapes, permutations)."""
        values = self.known(tensor, 1024)
        if values is None or values.dtype.kind not in "iu":
            return None
        return tuple(int(value) for value in values.reshape(-1))


def _read(node: Node) -> list[Tensor]:
    """Give the inputs whose values a node reads: of the second one of CastLike, only the type."""
    return node.inputs[:1] if node.op == "CastLike" else node.inputs


def _of_shape(node: Node) -> Array:
    shape = [extent for extent in node.inputs[0].shape or () if isinstance(extent, int)]
    if node.op == "Size":
        return np.asarray(np.prod(shape, dtype=np.int64))
    return np.asarray(shape[node.attrs.get("start", 0) : node.attrs.get("end")], np.int64)


def evaluate_node(node: Node, inputs: list[Array]) -> list[Array]:
    """Run one standard node on the inputs that are not omitted.

    onnx's reference evaluator runs it, or ONNX Runtime where that one cannot; numpy where it is
    plain.
    """
    plain = evaluated_plainly(node, inputs)
    if plain is not None:
        return [plain]
    proto = onnx.NodeProto()
    original = node.proto
    if original is not None and original.op_type == node.op:
        proto.CopyFrom(original)
    else:
        proto.CopyFrom(onnx.helper.make_node(node.op, [], [], **node.attrs))
    proto.input[:] = [f"i{k}" if tensor.name else "" for k, tensor in enumerate(node.inputs)]
    proto.output[:] = [f"o{k}" for k in range(len(node.outputs))]
    names = [name for name in proto.input if name]
    graph = onnx.helper.make_graph(
        [proto],
        "node",
        [
            onnx.helper.make_tensor_value_info(name, _type_of(values), None)
            for name, values in zip(names, inputs, strict=True)
        ],
        [
            onnx.helper.make_tensor_value_info(name, tensor.dtype, None)
            for name, tensor in zip(proto.output, node.outputs, strict=True)
        ],
    )
    model = onnx.helper.make_model(
        graph,
        opset_imports=[
            onnx.helper.make_opsetid("", max(node.graph.opset, _OLDEST.get(node.op, 1)))
        ],
    )
    feeds = dict(zip(names, inputs, strict=True))
    require_bounded(model, feeds)
    try:
        return _by_reference(model, feeds)
    except Exception:  # noqa: BLE001 - it has gaps, and fails in many ways
        return _by_runtime(model, feeds)


def _type_of(values: Array) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(values.dtype))


def _by_reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(result) for result in results]


def _by_runtime(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    model.ir_version = min(model.ir_version, 10)
    session = session_of(model.SerializeToString())
    return [np.asarray(result) for result in session.run(None, feeds)]
