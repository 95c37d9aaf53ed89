"""Nodes that break the definition of their operator: they are treated as of an unknown one.

So nobody who reads a Mul has to ask whether it has two inputs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import onnx

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import NodeProto

UNKNOWN = "?"
"""Stands before the operator's name in the graph; the file keeps its own."""


class _Definition(NamedTuple):
    inputs: int
    outputs: int
    attributes: Mapping[str, int]


def operator_of(node: NodeProto, opset: int) -> str:
    """Give the operator of a node, marked as unknown where the node breaks its definition."""
    op: str = node.op_type
    if node.domain not in {"", "ai.onnx"}:
        return op
    definition = _definition(op, opset)
    if definition is None:
        return op
    if len(node.input) < definition.inputs or len(node.output) < definition.outputs:
        return UNKNOWN + op
    if definition.inputs and not node.input[0]:
        return UNKNOWN + op
    for attribute in node.attribute:
        wanted = definition.attributes.get(attribute.name, attribute.type)
        if attribute.type != wanted:
            return UNKNOWN + op
    return op


@cache
def _definition(op: str, opset: int) -> _Definition | None:
    """Give what a node needs; where the opset has no such operator, by its newest definition."""
    latest = onnx.defs.onnx_opset_version()
    for version in (min(opset, latest), latest):
        try:
            schema = onnx.defs.get_schema(op, version)
        except onnx.defs.SchemaError:
            continue
        types = {
            name: int(entry.type.value)  # type: ignore[attr-defined] # an enum without stubs
            for name, entry in schema.attributes.items()
        }
        return _Definition(schema.min_input, schema.min_output, types)
    return None
