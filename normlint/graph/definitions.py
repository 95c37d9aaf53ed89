"""Nodes that break the definition of their operator: they are treated as of an unknown one.

So nobody who reads a Mul has to ask whether it has two inputs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import onnx
from onnx import AttributeProto

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import NodeProto

UNKNOWN = "?"
"""Stands before the operator's name in the graph; the file keeps its own."""


_TYPES = frozenset(AttributeProto.AttributeType.values()) - {AttributeProto.UNDEFINED}
_PLAIN = frozenset(
    getattr(AttributeProto, name)
    for name in ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS", "TENSOR", "GRAPH")
)


class _Definition(NamedTuple):
    inputs: int
    named: tuple[int, ...]
    """Which inputs may not be left out."""
    outputs: int
    attributes: Mapping[str, int]
    required: frozenset[str]


def operator_of(node: NodeProto, opset: int) -> str:
    """Give the operator of a node, marked as unknown where the node breaks its definition."""
    op: str = node.op_type
    is_standard = node.domain in {"", "ai.onnx"}
    definition = _definition(op, opset) if is_standard else None
    if definition is None:
        is_plain = all(a.type in _TYPES and not a.ref_attr_name for a in node.attribute)
        return op if is_plain else UNKNOWN + op
    return op if _has_ends(node, definition) and _has_attributes(node, definition) else UNKNOWN + op


def _has_ends(node: NodeProto, definition: _Definition) -> bool:
    if len(node.input) < definition.inputs or len(node.output) < definition.outputs:
        return False
    return all(node.input[index] for index in definition.named)


def _has_attributes(node: NodeProto, definition: _Definition) -> bool:
    """Whether attributes have the types of the definition; those of other opsets, plain ones."""
    for attribute in node.attribute:
        wanted = definition.attributes.get(attribute.name)
        if attribute.ref_attr_name:  # it stands in no function, so it refers to nothing
            return False
        if attribute.type != wanted and (wanted is not None or attribute.type not in _PLAIN):
            return False
    if not definition.required:
        return True
    return definition.required <= {attribute.name for attribute in node.attribute}


@cache
def _definition(op: str, opset: int) -> _Definition | None:
    """Give what a node needs; where the opset has no such operator, by its newest definition."""
    latest = onnx.defs.onnx_opset_version()
    for version in (max(1, min(opset, latest)), latest):
        try:
            schema = onnx.defs.get_schema(op, version)
        except onnx.defs.SchemaError:
            continue
        types = {
            name: int(entry.type.value)  # type: ignore[attr-defined] # an enum without stubs
            for name, entry in schema.attributes.items()
        }
        single = onnx.defs.OpSchema.FormalParameterOption.Single
        ends = list(schema.inputs)[: schema.min_input]
        return _Definition(
            schema.min_input,
            tuple(index for index, end in enumerate(ends) if end.option == single),
            schema.min_output,
            types,
            frozenset(name for name, entry in schema.attributes.items() if entry.required),
        )
    return None
