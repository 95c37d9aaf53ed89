"""The flow of data through a model, with each normalisation as one step.

Only what depends on the data that the model is given takes part: weights, shapes, masks and token
numbers are told apart here, once, so that a bias that is added and a branch that is added look
different to whoever reads on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.roles import is_lookup, role_of
from normlint.context.steps import Level, Role, Step, Value
from normlint.graph import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor
    from normlint.normalization import Normalization


class Flow:
    """All steps of a model, scope after scope, each in the order of its nodes."""

    def __init__(self, graph: Graph, constants: Constants, norms: Sequence[Normalization]) -> None:
        self.constants = constants
        self.steps: list[Step] = []
        self.values: dict[Tensor, Value] = {}
        self.scopes: list[tuple[Graph, list[Step]]] = []
        self._by_y = {norm.y: norm for norm in norms}
        self._inside = {node for norm in norms for node in norm.nodes}
        self._captured = _captured(graph)
        for scope in graph.scopes():
            start = len(self.steps)
            for node in scope.nodes:
                self._add(node)
            self.scopes.append((scope, self.steps[start:]))

    def value(self, tensor: Tensor) -> Value:
        """Give the value of a tensor; a new one is what its scope was given."""
        value = self.values.get(tensor)
        if value is None:
            value = self.values[tensor] = Value(tensor, self._given(tensor))
        return value

    def _given(self, tensor: Tensor) -> Level:
        if tensor.is_constant or not tensor.name or getattr(tensor, "default", None) is not None:
            return Level.KNOWN
        return Level.DATA if tensor.dtype in FLOATS or not tensor.dtype else Level.GUIDE

    def _add(self, node: Node) -> None:
        norm = next((self._by_y[t] for t in node.outputs if t in self._by_y), None)
        if norm is not None:
            self._add_norm(node, norm)
        elif node in self._inside and not self._is_shared(node):
            for tensor in node.outputs:
                self.values[tensor] = Value(tensor, Level.DATA)
        else:
            self._add_node(node)

    def _is_shared(self, node: Node) -> bool:
        """Whether a part of a norm, a Cast in front for example, is read by others too."""
        return node.op in ops.CARRIES_FIRST or any(
            reader not in self._inside for tensor in node.outputs for reader in tensor.consumers
        )

    def _add_norm(self, node: Node, norm: Normalization) -> None:
        x = self.value(norm.x)
        if node.op in ops.SKIP_NORMS:
            x = self._skip_sum(node)
        elif node.op == "EmbedLayerNormalization":
            x = self._made(Role.LOOKUP, node, [], [Value(None, Level.DATA)])
        parameters = [p for p in (norm.scale, norm.bias) if p is not None]
        sources = [x]
        for tensor in (t for p in parameters for t in p.tensors):
            value = self.value(tensor)
            if value.level is Level.DATA and value not in sources:
                sources.append(value)
        self._made(Role.NORM, node, sources, [self._new(norm.y, x.level)], norm)
        for tensor in node.outputs:
            if tensor not in self.values:
                self.values[tensor] = Value(tensor, x.level)

    def _skip_sum(self, node: Node) -> Value:
        """Give the sum that a fused operator norms; a term may be queries of the file."""
        *terms, bias, output = ops.SKIP_NORMS[node.op]
        operands = sorted(
            (self.value(tensor) for k in terms if (tensor := node.input(k)) is not None),
            key=lambda value: value.level,
        )
        extra = node.input(bias)
        if extra is not None and self.value(extra).level is Level.DATA:
            operands.append(self.value(extra))
        level = max(value.level for value in operands)
        tensor = node.output(output)
        total = Value(None, level) if tensor is None else self._new(tensor, level)
        if level is not Level.DATA:
            return total
        return self._made(Role.SUM, node, operands, [total])

    def _add_node(self, node: Node) -> None:
        inputs = [self.value(t) for t in node.inputs if t.name]
        captured = [self.value(t) for t in self._captured.get(node, ())]
        level = self._level(node, [*inputs, *captured])
        results = [self._new(t, level) for t in node.outputs if t.name]
        if node.op in ops.CARRIES_FIRST:
            for aside in results[1:]:  # a scale, a zero point, a mask
                aside.level = min(level, Level.GUIDE)
        if level is not Level.DATA or not results:
            return
        role, sources = role_of(node, inputs, captured, self)
        extra = self._folded_operand(node) if role is Role.LEARNED else None
        if extra is None:
            self._made(role, node, sources, results)
            return
        product = Value(None, Level.DATA)
        self._made(role, node, [s for s in sources if s is not extra], [product])
        self._made(Role.SUM, node, [extra, product], results)

    def _level(self, node: Node, sources: Iterable[Value]) -> Level:
        if node.op in ops.OF_SHAPE:
            return Level.KNOWN
        level = max((source.level for source in sources), default=Level.KNOWN)
        if level is Level.GUIDE and (node.op in ops.LEARNED or is_lookup(node, self)):
            return Level.DATA
        if level is Level.DATA and node.op in ops.TESTS:
            return Level.GUIDE
        return level

    def _folded_operand(self, node: Node) -> Value | None:
        """Give the data that a fused linear operator adds to its product."""
        index = ops.ADDED_OPERAND.get(node.op)
        tensor = node.input(index) if index is not None else None
        if tensor is None or self.value(tensor).level is not Level.DATA:
            return None
        return self.value(tensor)

    def _new(self, tensor: Tensor, level: Level) -> Value:
        value = self.values[tensor] = Value(tensor, level)
        return value

    def _made(
        self,
        role: Role,
        node: Node,
        sources: list[Value],
        results: list[Value],
        norm: Normalization | None = None,
    ) -> Value:
        step = Step(role, len(self.steps), node, sources, results, norm=norm)
        self.steps.append(step)
        for source in dict.fromkeys(sources):
            source.readers.append(step)
        for result in results:
            result.maker = step
        self._trace_back(step)
        return results[0]

    def _trace_back(self, step: Step) -> None:
        if not step.sources:
            return
        if step.role is Role.PASS:
            for result in step.results[:1]:
                result.origin = step.sources[0].origin
                result.base = step.sources[0].base
        elif step.role is Role.SUM or (step.role is Role.OTHER and _is_arithmetic(step.op)):
            base = step.sources[0].base
            if all(source.base is base for source in step.sources):
                step.results[0].base = base


def _is_arithmetic(op: str) -> bool:
    return op in ops.POINTWISE or op in ops.STATISTICS


def _captured(graph: Graph) -> dict[Node, dict[Tensor, None]]:
    """Give what the subgraphs of each node read of the graphs around them."""
    captured: dict[Node, dict[Tensor, None]] = {}
    for scope in graph.subgraphs(recursive=True):
        tensors = [t for node in scope.nodes for t in node.inputs if t.name]
        for tensor in (*tensors, *scope.outputs):
            inner: Graph = scope
            while inner is not tensor.graph and inner.parent is not None:
                captured.setdefault(inner.parent, {})[tensor] = None
                inner = inner.parent.graph
    return captured
