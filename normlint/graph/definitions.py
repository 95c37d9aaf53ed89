"""Nodes that break the definition of their operator: they are treated as of an unknown one.

So nobody who reads a Mul has to ask whether it has two inputs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import onnx
from onnx import AttributeProto

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def operator_of(
    node: NodeProto,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Sequence[AttributeProto],
    opset: int,
) -> str:
    """Give the operator of a node, marked as unknown where the node breaks its definition.

    The names and attributes are those of the node, which the caller has read already.
    """
    op: str = node.op_type
    is_standard = node.domain in {"", "ai.onnx"}
    definition = _definition(op, opset) if is_standard else None
    if definition is None:
        is_plain = all(a.type in _TYPES and not a.ref_attr_name for a in attributes)
        return op if is_plain else UNKNOWN + op
    if _has_ends(inputs, outputs, definition) and _has_attributes(attributes, definition):
        return op
    return UNKNOWN + op


def _has_ends(inputs: Sequence[str], outputs: Sequence[str], definition: _Definition) -> bool:
    if len(inputs) < definition.inputs or len(outputs) < definition.outputs:
        return False
    return "" not in inputs or all(inputs[index] for index in definition.named)


def _has_attributes(attributes: Sequence[AttributeProto], definition: _Definition) -> bool:
    """Whether attributes have the types of the definition; those of other opsets, plain ones."""
    if not attributes and not definition.required:
        return True
    named = set()
    for attribute in attributes:
        name, kind = attribute.name, attribute.type
        named.add(name)
        wanted = definition.attributes.get(name)
        if attribute.ref_attr_name:  # it stands in no function, so it refers to nothing
            return False
        if kind != wanted and (wanted is not None or kind not in _PLAIN):
            return False
    return definition.required <= named


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
