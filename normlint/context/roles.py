"""What a node does to the data: pass it on, add it, multiply it with weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.steps import Level, Role

if TYPE_CHECKING:
    from normlint.context.flow import Flow
    from normlint.context.steps import Value
    from normlint.graph import Node, Tensor

    Reading = tuple[Role, list[Value]]

_FAR_BELOW = -1000.0


def role_of(node: Node, inputs: list[Value], captured: list[Value], flow: Flow) -> Reading:
    """Give the role of a node whose output is data, and the values that matter to it.

    `inputs` are those that are not omitted, `captured` what its subgraphs read.
    """
    data = [value for value in (*inputs, *captured) if value.level is Level.DATA]
    if node.op in ops.LEARNED or node.op in ops.ATTENTIONS:
        return _product(node, inputs, data, flow)
    if is_lookup(node, flow):
        return Role.LOOKUP, data
    if node.op in ops.CARRIES_FIRST:
        return (Role.PASS, inputs[:1]) if data == inputs[:1] else (Role.OTHER, data)
    if node.op in ops.COMBINES:
        return _combination(node, data, flow)
    return (Role.PASS if _is_guard(node, flow) else Role.OTHER), data


def is_lookup(node: Node, flow: Flow) -> bool:
    """Whether it reads rows of a table of weights."""
    if node.op != "Gather" or len(node.inputs) < 2:
        return False
    table = node.inputs[0]
    return (
        flow.value(table).level is Level.KNOWN
        and (table.is_float or table.dtype in ops.INTEGERS_OF_WEIGHTS)
        and (table.rank is None or table.rank >= 2)
    )


def _product(node: Node, inputs: list[Value], data: list[Value], flow: Flow) -> Reading:
    if node.op == "Attention" and node.domain == "com.microsoft":
        return Role.LEARNED, data
    weights = [t for k in ops.LEARNED.get(node.op, ()) if (t := node.input(k)) is not None]
    if any(flow.value(tensor).level is Level.KNOWN for tensor in weights):
        return Role.LEARNED, [value for value in inputs if value.level is not Level.KNOWN]
    return Role.PRODUCT, data


def _is_guard(node: Node, flow: Flow) -> bool:
    """Whether it is a Clip that only keeps values within the range of their type."""
    if node.op != "Clip":
        return False
    if node.input(1) is None:
        return "min" in node.attrs and node.attrs["min"] < _FAR_BELOW
    lower = flow.constants.scalar(node.inputs[1])
    return lower is not None and lower < _FAR_BELOW


def _combination(node: Node, data: list[Value], flow: Flow) -> Reading:
    if len(data) == 1:
        return _with_constants(node, data, flow)
    if node.op not in {"Concat", "QLinearConcat", "Sub", *ops.SUMS}:
        return Role.OTHER, data
    if len({value.origin for value in data}) == 1:
        return Role.PASS, data  # a rotation of one tensor, a shift, a merge of patches
    return (Role.SUM if node.op in ops.SUMS else Role.OTHER), data


def _with_constants(node: Node, data: list[Value], flow: Flow) -> Reading:
    queries = _learned_queries(node, data[0], flow)
    if queries is not None:
        return Role.SUM, [queries, data[0]]
    turned = node.op in {"Div", "Sub"} and flow.value(node.inputs[0]) is not data[0]
    return (Role.OTHER if turned else Role.PASS), data


def _learned_queries(node: Node, data: Value, flow: Flow) -> Value | None:
    """Give queries that are written in the file, where an attention is added to them."""
    maker = data.origin.maker
    if node.op != "Add" or maker is None or maker.role is not Role.LEARNED:
        return None
    mix = maker.sources[0].base.maker
    if mix is None or mix.role is not Role.PRODUCT:
        return None
    others = [tensor for tensor in node.inputs if flow.value(tensor) is not data]
    return flow.value(others[0]) if others and _is_table(others[0]) else None


def _is_table(tensor: Tensor) -> bool:
    """Whether it holds several tokens, or one that is joined to others elsewhere: no bias."""
    shape = tensor.shape
    if shape is None or sum(extent != 1 for extent in shape) > 1:
        return True
    return any(reader.op == "Concat" for reader in tensor.consumers)
