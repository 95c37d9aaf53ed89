"""Raising the opset of a model: which nodes change their meaning, and what says the same above.

A node is left alone where each newer definition of its operator only adds to the older one. Where
it does not, a converter says the same in the newer words, or the opset is not raised at all.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import onnx

from normlint.rewrite.opset_kernels import Kernels
from normlint.rewrite.opset_steps import CONVERTERS, Draft, Unfaithful
from normlint.rule import Applicability, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from onnx.defs import OpSchema

    from normlint.context import Context
    from normlint.graph import Graph, Node

_RENAMED = {"Upsample": "Resize", "Scatter": "ScatterElements"}
"""Deprecated operators and those that took their place, under the version that deprecated them."""


def raise_opset(context: Context, to: int) -> list[Rewrite] | NotFixed:
    """Give the rewrites that a model needs at a higher opset, or why it cannot be raised.

    Each rewrite computes at the new opset what its node computes at the present one.
    """
    if to > onnx.defs.onnx_opset_version():
        return NotFixed(Reason.OPSET, None, f"opset {to} is newer than the installed onnx")
    kernels = Kernels(context.opset, to)
    rewrites = []
    for scope in context.graph.scopes():
        for node in scope.nodes:
            if not node.is_standard:
                continue
            try:
                rewrite = _raised(node, context.graph, to, kernels)
            except Unfaithful as problem:
                detail = f"{node.op} cannot be raised to opset {to}: {problem}"
                return NotFixed(Reason.OPSET, node, detail)
            if rewrite is not None:
                rewrites.append(rewrite)
    return rewrites


def _raised(node: Node, graph: Graph, to: int, kernels: Kernels) -> Rewrite | None:
    """Give the rewrite of a node, None where it may stay. Raises Unfaithful."""
    draft = Draft.of(node)
    for older, newer in _steps(node.op, graph.opset, to):
        convert = CONVERTERS.get((newer.name, newer.since_version))
        if convert is not None:
            convert(draft)
        else:
            _demand_addition(draft, older, newer)
    if not draft.changed:
        if kernels.loses(node):
            # It may run by its definition as a function at the one opset only.
            raise Unfaithful("onnxruntime has no kernel for it there")
        return None
    outputs = node.outputs if draft.keeps_outputs else node.outputs[:1]
    tensors = tuple(tensor if tensor.name else None for tensor in outputs)
    return Rewrite(
        f"say {node.op} as opset {to} does",
        Applicability.SAFE,
        (Replace(tensors, draft.finished(len(tensors))),),
        (node,),
        to,
    )


@cache
def _steps(op: str, below: int, to: int) -> tuple[tuple[OpSchema, OpSchema], ...]:
    """Give the definitions of an operator that replace one another between two opsets."""
    schema = _schema(op, below)
    if schema is None:
        return ()
    steps = []
    for opset in range(below + 1, to + 1):
        newer = _schema(schema.name, opset)
        if newer is not None and newer.deprecated and newer.name in _RENAMED:
            newer = _schema(_RENAMED[newer.name], opset)
        if newer is None or newer.since_version == schema.since_version:
            continue
        steps.append((schema, newer))
        schema = newer
    return tuple(steps)


def _schema(op: str, opset: int) -> OpSchema | None:
    try:
        return onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return None


def _demand_addition(draft: Draft, older: OpSchema, newer: OpSchema) -> None:
    """Raise Unfaithful where a newer definition does more than to add to an older one."""
    if newer.deprecated:
        raise Unfaithful("it is deprecated there")
    for name in draft.attrs:
        if name not in newer.attributes:
            raise Unfaithful(f"it has no attribute {name} any more")
    for name, attribute in newer.attributes.items():
        known = older.attributes.get(name)
        if name in draft.attrs:
            continue
        if attribute.required and known is None:
            raise Unfaithful(f"it demands an attribute {name}")
        if known is not None and known.default_value != attribute.default_value:
            raise Unfaithful(f"the default of its attribute {name} is another")
    _demand_inputs(older, newer)


def _demand_inputs(older: OpSchema, newer: OpSchema) -> None:
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    for index, formal in enumerate(newer.inputs):
        if formal.option == optional:
            continue
        if index >= len(older.inputs):
            raise Unfaithful(f"it demands an input {formal.name}")
        if formal.option != older.inputs[index].option:
            raise Unfaithful(f"its input {formal.name} is another")
