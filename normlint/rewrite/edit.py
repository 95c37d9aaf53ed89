"""The few operations by which a graph is edited.

A replaced tensor stays the object that it was: its new producer takes it over, with its name and
all its readers. What is dead afterwards is dropped; what was dead before stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx

from normlint.graph import Constant, Graph, Node, Values, Variable
from normlint.rule import Computed, NewNode, Redirect, Replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.graph import Tensor
    from normlint.rule import Edit, Operand, Rewrite


class Editor:
    """Carries out rewrites on one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors: set[str] = set()
        self._nodes: set[str] = set()
        for scope in graph.scopes():
            self._tensors.update(tensor.name for tensor in scope.constants)
            self._tensors.update(tensor.name for tensor in scope.inputs)
            self._tensors.update(tensor.name for tensor in scope.outputs)
            for node in scope.nodes:
                self._nodes.add(node.name)
                self._tensors.update(tensor.name for tensor in node.outputs)
                self._tensors.update(tensor.name for tensor in node.inputs)
        self._sequence = 0
        self._added: list[Node] = []
        self._dead: set[Node] = set()

    def apply(self, rewrite: Rewrite) -> None:
        """Make the edits of a rewrite, and drop what they leave dead."""
        suspects: list[Node] = []
        fresh: list[Node] = []
        made: dict[NewNode, Node] = {}
        for edit in rewrite.edits:
            suspects.extend(self._edit(edit, made, fresh))
        self._sweep(suspects)
        for node in fresh:
            if node not in self._dead:
                self._name(node)
        self._added.extend(fresh)

    def finish(self) -> None:
        """Bring the lists of nodes up to date; `export_graph` puts them in topological order."""
        added: dict[Graph, list[Node]] = {}
        for node in self._added:
            added.setdefault(node.graph, []).append(node)
        for scope in list(self._graph.scopes()):
            nodes = [node for node in scope.nodes if node not in self._dead]
            nodes.extend(node for node in added.get(scope, ()) if node not in self._dead)
            scope.nodes = nodes

    def _edit(self, edit: Edit, made: dict[NewNode, Node], fresh: list[Node]) -> list[Node]:
        """Make one edit; give the nodes that may be dead afterwards."""
        if isinstance(edit, Redirect):
            return self._redirect(edit, fresh)
        first = next(tensor for tensor in edit.tensors if tensor is not None)
        maker = first.producer
        order = maker.order if maker is not None else (-1,)
        old = [t.producer for t in edit.tensors if t is not None and t.producer is not None]
        for tensor in edit.tensors:
            if tensor is not None:
                self._detach(tensor)
        node = self._make(edit.by, first, order, made, fresh)
        outputs: list[Tensor] = [
            tensor if tensor is not None else self._spare(first, place)
            for place, tensor in enumerate(edit.tensors)
        ]
        node.outputs = outputs
        return old

    def _spare(self, first: Tensor, place: int) -> Tensor:
        """Give an output that nobody reads; but for the first one, it is omitted."""
        if place:
            return Variable("", first.graph)
        return self._variable(f"{first.name}_unused", first.graph)

    def _redirect(self, edit: Redirect, fresh: list[Node]) -> list[Node]:
        tensor, to = edit.tensor, edit.to
        producer = tensor.producer
        for node in dict.fromkeys(tensor.consumers):
            for index, source in enumerate(node.inputs):
                if source is tensor:
                    node.inputs[index] = to
        if tensor.is_output:
            keep = NewNode("Identity", (to,))
            return self._edit(Replace((tensor,), keep), {}, fresh)
        return [producer] if producer is not None else []

    def _detach(self, tensor: Tensor) -> None:
        """Take a tensor away from its producer, which gets one that nobody reads."""
        for producer in list(tensor.inputs):
            for index, output in enumerate(producer.outputs):
                if output is tensor:
                    name = self._unique(f"{tensor.name}_old", self._tensors)
                    old = Variable(name, tensor.graph, tensor.dtype, tensor.shape)
                    producer.outputs[index] = old

    def _make(
        self,
        recipe: NewNode,
        of: Tensor,
        order: tuple[int, ...],
        made: dict[NewNode, Node],
        fresh: list[Node],
    ) -> Node:
        """Build a new node and those that it reads. Recipes are a few nodes deep."""
        if recipe in made:
            return made[recipe]
        inputs: list[Tensor] = []
        for operand in recipe.inputs:
            if isinstance(operand, NewNode):
                source = self._make(operand, of, order, made, fresh)
                if not source.outputs:
                    name = self._unique(f"{of.name}_{operand.op.lower()}", self._tensors)
                    source.outputs = [Variable(name, of.graph)]
                inputs.append(source.outputs[0])
            else:
                inputs.append(self._operand(operand, of))
        self._sequence += 1
        node = Node(
            recipe.op,
            of.graph,
            domain=recipe.domain,
            attrs=dict(recipe.attrs),
            inputs=inputs,
            like=recipe.like,
        )
        node.order = (*order, self._sequence)
        made[recipe] = node
        fresh.append(node)
        return node

    def _operand(self, operand: Operand, of: Tensor) -> Tensor:
        if operand is None:
            return Variable("", of.graph)
        if isinstance(operand, Computed):
            return self._constant(operand, of)
        assert not isinstance(operand, NewNode)  # noqa: S101 - for the type checker
        return operand

    def _constant(self, recipe: Computed, of: Tensor) -> Constant:
        name = self._unique(recipe.name or f"{of.name}_constant", self._tensors)
        values = Values(recipe.shape, recipe.dtype, lambda: cast_once(recipe))
        constant = Constant(name, of.graph, values, new=True)
        of.graph.constants.append(constant)
        return constant

    def _variable(self, name: str, graph: Graph) -> Variable:
        return Variable(self._unique(name, self._tensors), graph)

    def _name(self, node: Node) -> None:
        like = node.like
        if like is None or not like.name:
            return
        wished = like.name
        if like.op != node.op:
            wished = f"{like.name.rpartition('/')[0]}/{node.op}" if "/" in like.name else node.op
        node.name = self._unique(wished, self._nodes)

    @staticmethod
    def _unique(wished: str, taken: set[str]) -> str:
        name, count = wished, 0
        while name in taken:
            count += 1
            name = f"{wished}_{count}"
        taken.add(name)
        return name

    def _sweep(self, suspects: Iterable[Node]) -> None:
        """Drop nodes that nobody reads any more, and those that only they read."""
        pending = list(suspects)
        while pending:
            node = pending.pop()
            if node in self._dead or not _is_dead(node):
                continue
            self._dead.add(node)
            self._nodes.discard(node.name)
            doomed = [node]
            doomed.extend(inner for graph in _graphs(node) for inner in graph.nodes)
            for gone in doomed:
                pending.extend(t.producer for t in gone.inputs if t.producer is not None)
                _stop_reading(gone)


def _stop_reading(node: Node) -> None:
    """Take a dead node off its inputs' readers; it keeps them, for later values read them."""
    for tensor in node.inputs:
        list.remove(tensor.outputs, node)


def _graphs(node: Node) -> Iterable[Graph]:
    for value in node.attrs.values():
        if isinstance(value, Graph):
            yield from value.scopes()


def _is_dead(node: Node) -> bool:
    return not any(tensor.outputs or tensor.is_output for tensor in node.outputs)


def cast_once(recipe: Computed) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Compute the values of a new constant in their element type.

    Raises ValueError where they do not have the promised shape.
    """
    values = np.asarray(recipe.compute())
    if values.shape != tuple(recipe.shape):
        raise ValueError(f"{recipe.name}: computed {values.shape}, promised {recipe.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(onnx.helper.tensor_dtype_to_np_dtype(recipe.dtype), copy=False)
