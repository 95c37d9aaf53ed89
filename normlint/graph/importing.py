"""From the model's protos to the graph that rules see.

graphsurgeon's own importer drops the protos, wants every string to be UTF-8 and knows the types of
today only; this one keeps what it does not understand and remembers where each node came from.
"""

from __future__ import annotations

import gc
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx
from onnx import AttributeProto, ModelProto

from normlint.graph.definitions import operator_of
from normlint.graph.functions import Library, expand, library
from normlint.graph.types import Constant, Graph, Node, Tensor, Values, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from onnx import GraphProto, NodeProto, TensorProto, TypeProto

    from normlint.graph.types import Origin, Shape

    Reader = Callable[[TensorProto], np.ndarray[Any, Any]]
    Types = dict[str, tuple[int, Shape | None]]

_PLAIN: dict[int, Callable[[AttributeProto], Any]] = {
    AttributeProto.FLOAT: lambda a: a.f,
    AttributeProto.INT: lambda a: a.i,
    AttributeProto.STRING: lambda a: a.s.decode("utf-8", "surrogateescape"),
    AttributeProto.FLOATS: lambda a: list(a.floats),
    AttributeProto.INTS: lambda a: list(a.ints),
    AttributeProto.STRINGS: lambda a: [s.decode("utf-8", "surrogateescape") for s in a.strings],
}
_CONSTANT_SCALARS = {"value_float": 1, "value_int": 7, "value_floats": 1, "value_ints": 7}
"""Element types of the Constant attributes that are no tensors: float and int64."""
_CONSTANT_TYPES = {
    "value": AttributeProto.TENSOR,
    "value_float": AttributeProto.FLOAT,
    "value_int": AttributeProto.INT,
    "value_floats": AttributeProto.FLOATS,
    "value_ints": AttributeProto.INTS,
}
_UNTYPED: tuple[int, None] = (0, None)
_INTEGERS = (6, 7)
"""int32 and int64, which shapes are written in."""
_MOST_INTEGERS = 1 << 24


def build_graph(model: ModelProto, read: Reader) -> Graph:
    """Build the graph of a model whose large tensors may be references.

    `read` gives the values of a TensorProto; it is called when somebody asks for the values.
    """
    with collector_held():
        return _Importer(model, read).run()


@contextmanager
def collector_held() -> Iterator[None]:
    """Hold the garbage collector back: it would visit all the new objects again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Importer:
    def __init__(self, model: ModelProto, read: Reader) -> None:
        self.model = model
        self.read = read
        self.functions: Library = library(model)
        self.opset = next(
            (entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), 1
        )

    def run(self) -> Graph:
        expanded = list(expand(self.model.graph.node, self.functions))
        typed = _inferred(self.model, expanded)
        graph = Graph(self.model.graph.name, opset=self.opset, path="graph")
        graph.ir_version = self.model.ir_version
        graph.import_domains = self.model.opset_import
        pending = list(self.fill(graph, self.model.graph, typed, {}, expanded))
        while pending:
            pending.extend(self.fill(*pending.pop()))
        return graph

    def fill(
        self,
        graph: Graph,
        proto: GraphProto,
        typed: GraphProto,
        outer: dict[str, Tensor],
        origins: list[Origin] | None,
    ) -> list[tuple[Graph, GraphProto, GraphProto, dict[str, Tensor], None]]:
        """Fill a graph; give its subgraphs, which remain to be filled."""
        types = _types(typed)
        scope: dict[str, Tensor] = dict(outer)
        self.add_constants(graph, proto, scope)
        self.add_inputs(graph, proto, scope, types)
        if origins is None:
            origins = list(expand(proto.node, self.functions))
        for position, origin in enumerate(origins):
            self.add_outputs(graph, origin, scope, position, types)
            if origin.functions:
                graph.call_sizes[origin.index] = graph.call_sizes.get(origin.index, 0) + 1
        for position, origin in enumerate(origins):
            if not _is_plain_constant(origin.proto):
                self.add_node(graph, origin, scope, position, types)
        for value in proto.output:
            if value.name not in scope:
                scope[value.name] = self.variable(value.name, graph, types)
        graph.outputs = [scope[value.name] for value in proto.output]
        graph.output_set = frozenset(graph.outputs)
        return list(self.subgraphs(graph, typed, scope))

    def add_constants(self, graph: Graph, proto: GraphProto, scope: dict[str, Tensor]) -> None:
        overridable = {value.name for value in proto.input} if self.model.ir_version >= 4 else set()
        for tensor in proto.initializer:
            values = self.values(tensor)
            if tensor.name in overridable:
                variable = Variable(tensor.name, graph, values.dtype, values.shape)
                variable.default = values
                scope[tensor.name] = variable
                continue
            constant = Constant(tensor.name, graph, values)
            graph.constants.append(constant)
            scope[tensor.name] = constant
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            scope[name] = Variable(name, graph, sparse.values.data_type, tuple(sparse.dims))

    def add_inputs(
        self, graph: Graph, proto: GraphProto, scope: dict[str, Tensor], types: Types
    ) -> None:
        own = {tensor.name for tensor in proto.initializer}
        for value in proto.input:
            if value.name not in own:
                scope[value.name] = self.variable(value.name, graph, types)
            tensor = scope[value.name]
            if isinstance(tensor, Variable):
                graph.inputs.append(tensor)

    def add_outputs(
        self, graph: Graph, origin: Origin, scope: dict[str, Tensor], position: int, types: Types
    ) -> None:
        if _is_plain_constant(origin.proto):
            constant = self.constant(graph, origin)
            constant.order = (position,)
            graph.constants.append(constant)
            scope[constant.name] = constant
            return
        for name in origin.proto.output:
            known = scope.get(name)
            if name and (known is None or known.graph is not graph or known.is_constant):
                scope[name] = Variable(name, graph, *types.get(name, _UNTYPED))

    def add_node(
        self, graph: Graph, origin: Origin, scope: dict[str, Tensor], position: int, types: Types
    ) -> None:
        proto = origin.proto
        read, written, attributes = list(proto.input), list(proto.output), list(proto.attribute)
        for name in read:
            if name and name not in scope:
                scope[name] = self.variable(name, graph, types)
        node = Node(
            operator_of(proto, read, written, attributes, self.opset),
            graph,
            name=proto.name,
            domain=proto.domain,
            attrs={attribute.name: plain_value(attribute) for attribute in attributes},
            inputs=[scope[name] if name else Variable("", graph) for name in read],
            outputs=[scope[name] if name else Variable("", graph) for name in written],
            origin=origin,
        )
        node.order = (position,)
        graph.nodes.append(node)

    def subgraphs(
        self, graph: Graph, typed: GraphProto, scope: dict[str, Tensor]
    ) -> Iterator[tuple[Graph, GraphProto, GraphProto, dict[str, Tensor], None]]:
        for node in graph.nodes:
            for name, value in node.attrs.items():
                if not isinstance(value, AttributeProto) or value.type != AttributeProto.GRAPH:
                    continue
                label = node.name or node.op
                inner = Graph(
                    value.g.name, opset=self.opset, path=f"{graph.path}/{label}.{name}", parent=node
                )
                inner.ir_version = self.model.ir_version
                node.attrs[name] = inner
                yield inner, value.g, _counterpart(typed, node, name) or value.g, scope, None

    def constant(self, graph: Graph, origin: Origin) -> Constant:
        attribute = origin.proto.attribute[0]
        constant = Constant(origin.proto.output[0], graph, self.attribute_values(attribute))
        constant.origin = origin
        return constant

    def attribute_values(self, attribute: AttributeProto) -> Values:
        if attribute.type == AttributeProto.TENSOR:
            return self.values(attribute.t)
        plain = plain_value(attribute)
        dtype = _CONSTANT_SCALARS[attribute.name]
        shape = (len(plain),) if isinstance(plain, list) else ()

        def load() -> np.ndarray[Any, Any]:
            import numpy as np

            return np.asarray(plain, onnx.helper.tensor_dtype_to_np_dtype(dtype))

        return Values(shape, dtype, load)

    def values(self, tensor: TensorProto) -> Values:
        return Values(tensor.dims, tensor.data_type, lambda: self.read(tensor))

    def variable(self, name: str, graph: Graph, types: Types) -> Variable:
        return Variable(name, graph, *types.get(name, _UNTYPED))


def plain_value(attribute: AttributeProto) -> Any:
    """Give an attribute as a Python value; the proto itself where it has none."""
    reader = _PLAIN.get(attribute.type)
    if reader is None or attribute.ref_attr_name:
        return attribute
    return reader(attribute)


def _is_plain_constant(node: NodeProto) -> bool:
    if node.op_type != "Constant" or node.domain not in {"", "ai.onnx"}:
        return False
    if len(node.attribute) != 1 or len(node.output) != 1 or node.input:
        return False
    attribute = node.attribute[0]
    if attribute.ref_attr_name:
        return False
    return bool(attribute.type == _CONSTANT_TYPES.get(attribute.name))


def _inferred(model: ModelProto, expanded: list[Origin]) -> GraphProto:
    """Run shape inference on the skeleton; the graph as it is where that fails."""
    typed = model
    if model.functions:
        typed = ModelProto()
        typed.CopyFrom(model)
        del typed.functions[:]  # calls within calls would be followed without any bound
        del typed.graph.node[:]
        typed.graph.node.extend(origin.proto for origin in expanded)
    known = {value.name for value in (*typed.graph.value_info, *typed.graph.output)}
    if all(name in known for node in typed.graph.node for name in node.output if name) and not any(
        attribute.type == AttributeProto.GRAPH
        for node in typed.graph.node
        for attribute in node.attribute
    ):
        return typed.graph
    try:
        return onnx.shape_inference.infer_shapes(typed, data_prop=_is_sane(typed.graph)).graph
    except Exception:  # noqa: BLE001 - whatever it is, shapes are a help and no condition
        return typed.graph


def _is_sane(graph: GraphProto) -> bool:
    """Whether no integers claim to be more than shapes ever are: onnx believes the claim."""
    return all(
        tensor.data_type not in _INTEGERS or math.prod(tensor.dims) <= _MOST_INTEGERS
        for tensor in graph.initializer
    )


def _types(proto: GraphProto) -> Types:
    types: Types = {}
    read: dict[bytes, tuple[int, Shape | None]] = {}
    for value in (*proto.value_info, *proto.input, *proto.output):
        written = value.type
        # A model has few types; to read one field by field takes ten times as long as its bytes.
        key = written.SerializePartialToString()
        found = read.get(key)
        if found is None:
            found = read[key] = _type(written)
        name = value.name
        known = types.get(name)
        if known is None or (known[1] is None and found[1] is not None):
            types[name] = found
    return types


def _type(proto: TypeProto) -> tuple[int, Shape | None]:
    if not proto.HasField("tensor_type"):
        return 0, None
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    return tensor.elem_type, tuple(
        # A negative extent is what some exporters write for an open one.
        (dim.dim_value if dim.dim_value >= 0 else None)
        if dim.HasField("dim_value")
        else dim.dim_param or None
        for dim in tensor.shape.dim
    )


def _counterpart(typed: GraphProto, node: Node, name: str) -> GraphProto | None:
    """Give the subgraph of the same node in the graph that shape inference returned."""
    position = node.order[0]
    if position >= len(typed.node) or node.proto is None:
        return None
    other = typed.node[position]
    if list(other.output) != list(node.proto.output):
        return None
    return next((a.g for a in other.attribute if a.name == name), None)
