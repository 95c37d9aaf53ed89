"""Local functions, expanded where they are called.

The same function computes something else for each caller's constants, so a normalisation inside
of one is judged call by call. Every expanded node remembers its call: where nothing was changed,
the call itself is written back (`exporting`). onnx.inliner does the same work but forgets which
node was which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto, NodeProto

from normlint.deferred import dataclass
from normlint.graph.types import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onnx import FunctionProto, GraphProto, ModelProto

MOST_NODES = 30_000
"""Nodes that calls are expanded to, in one graph; what is called beyond stays a call."""
DEEPEST_CALL = 32


@dataclass(frozen=True)
class Library:
    """The functions of a model that can be expanded, by domain, name and overload."""

    functions: Mapping[tuple[str, str, str], FunctionProto]
    taken: set[str]
    """Names of tensors in use anywhere in the model; expanding adds to it."""

    def find(self, node: NodeProto) -> FunctionProto | None:
        """Give the function that a node calls."""
        if not self.functions:
            return None
        return self.functions.get((node.domain, node.op_type, node.overload))


def library(model: ModelProto) -> Library:
    """Collect the functions whose operators mean the same in the model as in the function."""
    if not model.functions:
        return Library({}, set())
    versions = {_domain(entry.domain): entry.version for entry in model.opset_import}
    functions = {
        (function.domain, function.name, function.overload): function
        for function in model.functions
        if _same_meaning(function, versions)
    }
    return Library(functions, _names(model))


def expand(nodes: Iterable[NodeProto], known: Library) -> Iterator[Origin]:
    """Give the nodes of a graph in order, those of called functions in place of the call."""
    made = 0
    for index, top in enumerate(nodes):
        pending = [Origin(top, index)]
        while pending:
            origin = pending.pop()
            function = known.find(origin.proto)
            if function is None or made > MOST_NODES or _is_endless(origin, function):
                yield origin
                continue
            body = list(_body(origin, function, known.taken))
            made += len(body)
            pending.extend(reversed(body))


def _is_endless(origin: Origin, function: FunctionProto) -> bool:
    """Whether a function calls itself, in however many steps, or calls go too deep."""
    return _qualified(function) in origin.functions or len(origin.functions) >= DEEPEST_CALL


def _qualified(function: FunctionProto) -> str:
    return f"{function.domain}::{function.name}"


def _body(origin: Origin, function: FunctionProto, taken: set[str]) -> Iterator[Origin]:
    call = origin.proto
    label = call.name or (call.output[0] if call.output else function.name)
    renamed = dict.fromkeys(function.input, "")
    renamed.update(zip(function.input, call.input, strict=False))
    results: dict[str, str] = {}
    for formal, actual in zip(function.output, call.output, strict=False):
        if formal in renamed:  # an input that is passed through needs a node of its own
            yield _origin(origin, function, _identity(renamed[formal], actual))
        else:
            results[formal] = actual
    renamed.update((formal, actual) for formal, actual in results.items() if actual)
    attributes = {attribute.name: attribute for attribute in function.attribute_proto}
    attributes.update((attribute.name, attribute) for attribute in call.attribute)
    for node in function.node:
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.name = f"{label}/{node.name}" if node.name else ""
        _rename(copy, renamed, f"{label}/", taken)
        _bind(copy.attribute, attributes)
        yield _origin(origin, function, copy)


def _origin(outer: Origin, function: FunctionProto, proto: NodeProto) -> Origin:
    call = outer.call or outer.proto.name or (outer.proto.output[0] if outer.proto.output else "")
    return Origin(proto, outer.index, (*outer.functions, _qualified(function)), call)


def _identity(source: str, target: str) -> NodeProto:
    return NodeProto(op_type="Identity", input=[source], output=[target])


def _rename(node: NodeProto, renamed: dict[str, str], prefix: str, taken: set[str]) -> None:
    """Give the tensors of a node their names in the caller, in place."""

    def fresh(name: str) -> str:
        if not name:
            return ""
        if name not in renamed:
            candidate = prefix + name
            while candidate in taken:
                candidate += "_"
            taken.add(candidate)
            renamed[name] = candidate
        return renamed[name]

    node.input[:] = [fresh(name) for name in node.input]
    node.output[:] = [fresh(name) for name in node.output]
    pending = list(_graphs(node.attribute))
    while pending:
        graph = pending.pop()
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = fresh(value.name)
        for sparse in graph.sparse_initializer:
            sparse.values.name = fresh(sparse.values.name)
        for inner in graph.node:
            inner.input[:] = [fresh(name) for name in inner.input]
            inner.output[:] = [fresh(name) for name in inner.output]
            pending.extend(_graphs(inner.attribute))


def _bind(attributes: Iterable[AttributeProto], given: Mapping[str, AttributeProto]) -> None:
    """Replace references to the function's attributes by what the caller gave, in place."""
    pending = [attributes]
    while pending:
        holder = pending.pop()
        kept = []
        for attribute in holder:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in given:
                    bound = AttributeProto()
                    bound.CopyFrom(given[attribute.ref_attr_name])
                    bound.name = attribute.name
                    kept.append(bound)
                continue
            kept.append(attribute)
            pending.extend(node.attribute for graph in _graphs([attribute]) for node in graph.node)
        if any(attribute.ref_attr_name for attribute in holder):
            copies = [AttributeProto.FromString(a.SerializeToString()) for a in kept]
            del holder[:]  # type: ignore[attr-defined] # a repeated field
            holder.extend(copies)  # type: ignore[attr-defined]
            pending.append(holder)


def _graphs(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    for attribute in attributes:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _names(model: ModelProto) -> set[str]:
    names: set[str] = set()
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        names.update(value.name for value in (*graph.input, *graph.initializer))
        for node in graph.node:
            names.update(node.input)
            names.update(node.output)
            pending.extend(_graphs(node.attribute))
    return names


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _same_meaning(function: FunctionProto, versions: Mapping[str, int]) -> bool:
    """Whether each standard operator of the function has one definition for both opsets."""
    own = {_domain(entry.domain): entry.version for entry in function.opset_import}
    differing = {
        domain for domain, version in own.items() if versions.get(domain, version) != version
    }
    if not differing:
        return True
    return all(
        _since(node, own) == _since(node, versions)
        for node in function.node
        if _domain(node.domain) in differing
    )


def _since(node: NodeProto, versions: Mapping[str, int]) -> int:
    domain = _domain(node.domain)
    try:
        return int(onnx.defs.get_schema(node.op_type, versions[domain], domain).since_version)
    except (onnx.defs.SchemaError, KeyError):
        return -versions.get(domain, 0)
