"""Tensors of subgraphs and functions made outputs of the model.

Calls of functions are written out, as the graph of a check has them. A tensor of a branch becomes
an output of the If, with an empty one from the other branch; a tensor of a loop's body one more
value that the loop collects, an iteration after the other along an axis in front.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from normlint.deferred import dataclass
from normlint.graph.functions import expand, library

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnx import GraphProto, ModelProto, NodeProto

_LOOPS = frozenset(("Loop", "Scan"))


@dataclass(frozen=True)
class Exposed:
    """An output of the model that holds a tensor of it."""

    name: str
    loops: int
    """Number of axes in front that count iterations."""


@dataclass
class _Exposer:
    """Adds outputs to one model."""

    wanted: Mapping[str, int]
    """Names of tensors with their element types."""
    count: int = 0
    doubled: set[str] = field(default_factory=set)
    """Tensors of several graphs: their name does not say which is meant."""

    def of_graph(self, graph: GraphProto) -> dict[str, Exposed]:
        """Give the wanted tensors that a graph holds, each as a tensor of the graph itself."""
        found: dict[str, Exposed] = {}
        for node in graph.node:
            for name in node.output:
                self.note(found, name, Exposed(name, 0))
            for name, inner in self.of_node(node):
                self.note(found, name, inner)
        for value in graph.input:
            self.note(found, value.name, Exposed(value.name, 0))
        return found

    def note(self, found: dict[str, Exposed], name: str, where: Exposed) -> None:
        """Note where a wanted tensor is to be had; nowhere if its name occurs twice."""
        if name in self.wanted:
            if name in found:
                self.doubled.add(name)
            found[name] = where

    def of_node(self, node: NodeProto) -> Iterator[tuple[str, Exposed]]:
        """Give the wanted tensors of the subgraphs of a node, as new outputs of it."""
        bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        if not bodies or not (node.op_type == "If" or node.op_type in _LOOPS):
            return
        for body in bodies:
            for name, inner in self.of_graph(body).items():
                outer = self.fresh(name)
                if node.op_type in _LOOPS:
                    _pad(node, body)
                    self.pass_out(body, inner.name, outer, name)
                    _collect(node)
                else:
                    self.pass_out(body, inner.name, outer, name)
                    for other in bodies:
                        if other is not body:
                            self.pass_nothing(other, outer, name)
                node.output.append(outer)
                yield name, Exposed(outer, inner.loops + (node.op_type in _LOOPS))

    def fresh(self, name: str) -> str:
        """Give a new name."""
        self.count += 1
        return f"{name}/measured/{self.count}"

    def pass_out(self, body: GraphProto, inner: str, outer: str, name: str) -> None:
        """Make a tensor one more output of a body."""
        body.node.append(helper.make_node("Identity", [inner], [f"{outer}/inner"]))
        self.declare(body, outer, name)

    def pass_nothing(self, body: GraphProto, outer: str, name: str) -> None:
        """Make an empty tensor one more output of a body."""
        empty = helper.make_tensor("", self.wanted[name], [0], [])
        body.node.append(helper.make_node("Constant", [], [f"{outer}/inner"], value=empty))
        self.declare(body, outer, name)

    def declare(self, body: GraphProto, outer: str, name: str) -> None:
        """Declare the output of a body that holds a tensor."""
        body.output.append(helper.make_tensor_value_info(f"{outer}/inner", self.wanted[name], None))


def _pad(node: NodeProto, body: GraphProto) -> None:
    """Give a loop all outputs that its body has, unnamed where nobody reads them."""
    first = 1 if node.op_type == "Loop" else 0
    missing = len(body.output) - first - len(node.output)
    node.output.extend("" for _ in range(missing))


def _collect(node: NodeProto) -> None:
    """Have a Scan collect one more output along the first axis, forward."""
    for attribute in node.attribute:
        if attribute.name in {"scan_output_axes", "scan_output_directions"}:
            attribute.ints.append(0)


def expose(model: ModelProto, wanted: Mapping[str, int]) -> dict[str, Exposed]:
    """Make tensors outputs of a model, in place; give the output that holds each of them.

    `wanted` gives the names of the tensors, as the graph of a check has them, and their element
    types. Those in operators other than If, Loop and Scan, and those whose name occurs in several
    graphs, are left out.
    """
    nodes = [origin.proto for origin in expand(model.graph.node, library(model))]
    written = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(written)
    exposer = _Exposer(wanted)
    found = exposer.of_graph(model.graph)
    for name in exposer.doubled:
        found.pop(name, None)
    known = {value.name for value in (*model.graph.output, *model.graph.input)}
    for where in found.values():
        if where.name not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=where.name))
    return found
