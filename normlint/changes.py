"""What rewrites changed, node by node, as the lines of a diff."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from onnx import AttributeProto, TensorProto

from normlint.digits import shortest
from normlint.graph import plain_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import GraphProto, ModelProto, NodeProto

_LONGEST_VALUE = 60


def changed_lines(before: ModelProto, after: ModelProto) -> tuple[str, ...]:
    """Give a line for each node that is gone (`- `) or new (`+ `), and for each opset that rose."""
    lines = [
        f"opset {entry.domain or 'ai.onnx'} {entry.version} -> {other.version}"
        for entry, other in zip(before.opset_import, after.opset_import, strict=False)
        if entry.version != other.version
    ]
    for path, old, new in _pairs(before.graph, after.graph):
        lines.extend(_graph_lines(path, old, new))
    return tuple(lines)


def _pairs(before: GraphProto, after: GraphProto) -> Iterator[tuple[str, GraphProto, GraphProto]]:
    """Give the graphs of both models that belong together: the main ones, subgraphs of one node."""
    pending = [("graph", before, after)]
    while pending:
        path, old, new = pending.pop()
        yield path, old, new
        inside = {node.output[0]: node for node in new.node if node.output}
        for node in old.node:
            other = inside.get(node.output[0]) if node.output else None
            if other is None or node.op_type != other.op_type:
                continue
            for attribute, counterpart in zip(node.attribute, other.attribute, strict=False):
                if attribute.type == counterpart.type == AttributeProto.GRAPH:
                    label = f"{path}/{node.name or node.op_type}.{attribute.name}"
                    pending.append((label, attribute.g, counterpart.g))


def _graph_lines(path: str, before: GraphProto, after: GraphProto) -> Iterator[str]:
    old = [(_signature(node), node) for node in before.node]
    new = [(_signature(node), node) for node in after.node]
    kept = Counter(text for text, _ in old) & Counter(text for text, _ in new)
    gone, made = _left(old, kept), _left(new, kept)
    if not gone and not made:
        return
    yield f"@@ {path}: {len(before.node)} -> {len(after.node)} nodes"
    yield from (f"- {node_line(node)}" for node in gone)
    yield from (f"+ {node_line(node)}" for node in made)


def _left(nodes: list[tuple[str, NodeProto]], kept: Counter[str]) -> list[NodeProto]:
    """Give the nodes that the other graph does not have."""
    counts = Counter(kept)
    left = []
    for text, node in nodes:
        if counts[text]:
            counts[text] -= 1
        else:
            left.append(node)
    return left


def _signature(node: NodeProto) -> str:
    plain = [a for a in node.attribute if a.type != AttributeProto.GRAPH]
    attributes = ",".join(sorted(f"{a.name}={_shown(a)}" for a in plain))
    reads, gives = ",".join(node.input), ",".join(node.output)
    return f"{node.domain}.{node.op_type}({reads})->{gives}[{attributes}]"


def node_line(node: NodeProto) -> str:
    """Give a node as a line: outputs, operator, inputs, attributes and name."""
    domain = f"{node.domain}::" if node.domain not in {"", "ai.onnx"} else ""
    reads = ", ".join((*node.input, *(f"{a.name}={_shown(a)}" for a in node.attribute)))
    name = f"  ({node.name})" if node.name else ""
    return f"{', '.join(node.output)} = {domain}{node.op_type}({reads}){name}"


def _shown(attribute: AttributeProto) -> str:
    value = plain_value(attribute)
    if isinstance(value, AttributeProto):
        if value.type != AttributeProto.TENSOR:
            return "…"
        return f"{type_name(value.t.data_type)}{list(value.t.dims)}"
    text = f"{shortest(value):.9g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def type_name(dtype: int) -> str:
    """Give the name of an element type; its number where there is no such type."""
    try:
        return TensorProto.DataType.Name(dtype)  # type: ignore[no-any-return] # an enum
    except ValueError:
        return f"type {dtype}"
