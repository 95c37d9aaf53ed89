"""The part of a model that a rewrite changes, cut out as a model of its own: before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper

from normlint.deferred import dataclass
from normlint.graph import Graph, Node, topological
from normlint.rewrite.edit import cast_once
from normlint.rule import Computed, NewNode, Redirect
from normlint.verify.legacy import raised

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from onnx import ModelProto

    from normlint.context.constants import Constants
    from normlint.graph import Tensor
    from normlint.rule import Edit, Operand, Rewrite


_INTEGERS = frozenset((TensorProto.INT64, TensorProto.INT32))
_MOST_OF_EXTENTS = 64


_LONGEST_WAY = 4
"""Nodes, such as an Identity, between what the old nodes read and what the new ones read."""


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes with their border."""

    nodes: tuple[Node, ...]
    inputs: tuple[Tensor, ...]
    """Tensors that come from outside and are no constants."""
    constants: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    """Tensors that somebody outside reads."""


@dataclass(frozen=True, eq=False)
class Cut:
    """The two models that must compute the same."""

    region: Region
    before: ModelProto
    after: ModelProto


def cut_out(rewrite: Rewrite, constants: Constants, opset: int) -> Cut:
    """Build the models of a rewrite's region. Raises ValuesUnavailable, ValueError."""
    region = find_region(rewrite, constants)
    known = {t.name: constants.values(t) for t in region.constants}
    before = [_proto(node) for node in region.nodes]
    builder = _After(region, known)
    after = builder.nodes(rewrite.edits)
    opset = raised([*before, *after], opset)
    return Cut(
        region,
        _model(region, before, known, opset),
        _model(region, after, builder.values, max(opset, rewrite.opset)),
    )


def find_region(rewrite: Rewrite, constants: Constants) -> Region:
    """Find the border of the nodes that a rewrite names or replaces."""
    nodes = dict.fromkeys(rewrite.region)
    for tensor in replaced_tensors(rewrite.edits):
        if tensor.producer is not None:
            nodes.setdefault(tensor.producer)
    for node in list(nodes):
        for tensor in node.inputs:
            nodes.update(dict.fromkeys(_of_extents(tensor, constants)))
    nodes.update(dict.fromkeys(_between(nodes, rewrite)))
    made = {tensor for node in nodes for tensor in node.outputs}
    read: dict[Tensor, None] = {}
    for node in nodes:
        read.update(dict.fromkeys(_read(node)))
    for edit in rewrite.edits:
        read.update(dict.fromkeys(_given(edit)))
    outside = [tensor for tensor in read if tensor.name and tensor not in made]
    scope = next(iter(nodes)).graph
    outputs = tuple(
        tensor
        for tensor in made
        if tensor.name
        and (tensor.is_output or any(_outside(c, nodes, scope) for c in tensor.consumers))
    )
    return Region(
        tuple(sorted(nodes, key=lambda node: node.order)),
        tuple(tensor for tensor in outside if not constants.is_constant(tensor)),
        tuple(tensor for tensor in outside if constants.is_constant(tensor)),
        outputs,
    )


def _between(nodes: Iterable[Node], rewrite: Rewrite) -> list[Node]:
    """Give the nodes by which what the old nodes read comes from what the new ones read.

    What is centred is a border: it is related to what the new nodes read already.
    """
    given = {tensor for edit in rewrite.edits for tensor in _given(edit)}
    found: list[Node] = []
    for node in nodes:
        for tensor in node.inputs:
            if tensor in rewrite.centred:
                continue
            way: list[Node] = []
            at, producer = tensor, tensor.producer
            while at not in given and producer is not None and len(way) < _LONGEST_WAY:
                way.append(producer)
                if not producer.inputs:
                    break
                at = producer.inputs[0]
                producer = at.producer
            if way and at in given:
                found.extend(way)
    return found


def _of_extents(tensor: Tensor, constants: Constants) -> list[Node]:
    """Give the nodes that compute a target of Reshape or Expand from extents alone.

    Numbers made up for it would not fit the extents of the inputs.
    """
    found: dict[Node, None] = {}
    pending = [tensor] if tensor.dtype in _INTEGERS else []
    while pending:
        current = pending.pop()
        node = current.producer
        if not current.name or constants.is_constant(current) or node in found:
            continue
        if node is None or node.graph is not tensor.graph or len(found) > _MOST_OF_EXTENTS:
            return []
        found[node] = None
        if node.op not in {"Shape", "Size"}:
            pending.extend(node.inputs)
    return list(found)


def _outside(reader: Node, nodes: dict[Node, None], scope: Graph) -> bool:
    """Whether a reader is not part of the region, nor of a subgraph of one of its nodes."""
    while reader not in nodes:
        if reader.graph is scope or reader.graph.parent is None:
            return True
        reader = reader.graph.parent
    return False


def _read(node: Node) -> Iterable[Tensor]:
    yield from node.inputs
    for value in node.attrs.values():
        if isinstance(value, Graph):
            own = set(value.scopes())
            for scope in own:
                for inner in scope.nodes:
                    yield from (tensor for tensor in inner.inputs if tensor.graph not in own)


def replaced_tensors(edits: Iterable[Edit]) -> Iterable[Tensor]:
    """Give the tensors that edits replace."""
    for edit in edits:
        if isinstance(edit, Redirect):
            yield edit.tensor
        else:
            yield from (tensor for tensor in edit.tensors if tensor is not None)


def _given(edit: Edit) -> Iterable[Tensor]:
    """Give the tensors of the graph that an edit makes somebody read."""
    if isinstance(edit, Redirect):
        yield edit.to
        return
    pending: list[Operand] = [edit.by]
    while pending:
        operand = pending.pop()
        if isinstance(operand, NewNode):
            pending.extend(operand.inputs)
        elif operand is not None and not isinstance(operand, Computed):
            yield operand


def _proto(node: Node) -> NodeProto:
    proto = NodeProto()
    if node.origin is not None:
        proto.CopyFrom(node.origin.proto)
    else:
        proto.CopyFrom(helper.make_node(node.op, [], [], domain=node.domain or "", **node.attrs))
    proto.name = ""  # a file may use one twice, and the runtime refuses that
    proto.input[:] = [tensor.name for tensor in node.inputs]
    proto.output[:] = [tensor.name for tensor in node.outputs]
    return proto


class _After:
    """The nodes of a region after the edits."""

    def __init__(self, region: Region, known: dict[str, np.ndarray[Any, Any]]) -> None:
        self.region = region
        self.values = dict(known)
        self.made: dict[NewNode, str] = {}
        self.built: list[NodeProto] = []

    def nodes(self, edits: Iterable[Edit]) -> list[NodeProto]:
        old = [_proto(node) for node in self.region.nodes]
        replaced: set[str] = set()
        for edit in edits:
            if isinstance(edit, Redirect):
                self.built.append(helper.make_node("Identity", [edit.to.name], [edit.tensor.name]))
                replaced.add(edit.tensor.name)
                continue
            names = [tensor.name if tensor is not None else "" for tensor in edit.tensors]
            self.make(edit.by, names)
            replaced.update(name for name in names if name)
        for proto in old:
            proto.output[:] = [f"before:{o}" if o in replaced else o for o in proto.output]
        return sort_nodes([*old, *self.built])

    def make(self, recipe: NewNode, outputs: list[str]) -> None:
        # A name that a tensor bears already, as where a recipe is shared, is not made twice.
        if recipe in self.made:
            self.built.append(helper.make_node("Identity", [self.made[recipe]], outputs[:1]))
            return
        outputs = [outputs[0] or f"made:{len(self.made)}", *outputs[1:]]
        self.made[recipe] = outputs[0]
        proto = NodeProto(op_type=recipe.op, domain=recipe.domain)
        for operand in recipe.inputs:
            proto.input.append(self.operand(operand))
        proto.output.extend(outputs)
        like = recipe.like.proto if recipe.like is not None else None
        for name, value in recipe.attrs.items():
            if isinstance(value, Graph) and like is not None:
                proto.attribute.append(next(a for a in like.attribute if a.name == name))
            elif isinstance(value, AttributeProto):
                proto.attribute.append(value)
            elif value is not None:
                proto.attribute.append(helper.make_attribute(name, value))
        self.built.append(proto)

    def operand(self, operand: Operand) -> str:
        if operand is None:
            return ""
        if isinstance(operand, Computed):
            name = f"new:{len(self.values)}"
            self.values[name] = cast_once(operand)
            return name
        if isinstance(operand, NewNode):
            if operand not in self.made:
                self.make(operand, [f"made:{len(self.made)}"])
            return self.made[operand]
        return operand.name


def sort_nodes(nodes: list[NodeProto]) -> list[NodeProto]:
    """Sort nodes topologically; nodes on a cycle are left out."""
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {maker[name] for name in _names_read(node) if name in maker} - {index}
        for index, node in enumerate(nodes)
    ]
    return [nodes[index] for index in topological(needs)]


def _names_read(node: NodeProto) -> Iterable[str]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield from current.input
        for attribute in current.attribute:
            if attribute.type == AttributeProto.GRAPH:
                pending.extend(attribute.g.node)


def _model(
    region: Region, nodes: list[NodeProto], values: dict[str, np.ndarray[Any, Any]], opset: int
) -> ModelProto:
    nodes = _live(nodes, {tensor.name for tensor in region.outputs})
    used = {name for node in nodes for name in _names_read(node)}
    inputs = [
        helper.make_tensor_value_info(t.name, t.dtype or TensorProto.FLOAT, None)
        for t in region.inputs
        if t.name in used
    ]
    outputs = [
        helper.make_tensor_value_info(t.name, t.dtype, None)
        if t.dtype
        else onnx.ValueInfoProto(name=t.name)
        for t in region.outputs
    ]
    domains = {node.domain for node in nodes if node.domain not in {"", "ai.onnx"}}
    graph = helper.make_graph(nodes, "region", inputs, outputs)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = min(model.ir_version, 10)
    # Weights come in last, for the model is a copy of the graph.
    for name, array in values.items():
        if name in used:
            model.graph.initializer.append(tensor_of(name, array))
    return model


def _live(nodes: list[NodeProto], wanted: set[str]) -> list[NodeProto]:
    """Drop nodes that no wanted tensor needs; `nodes` are in topological order."""
    live: list[NodeProto] = []
    needed = set(wanted)
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            live.append(node)
            needed.update(_names_read(node))
    return live[::-1]


def tensor_of(name: str, array: np.ndarray[Any, Any]) -> TensorProto:
    """Give an array as a TensorProto."""
    return onnx.numpy_helper.from_array(array, name)
