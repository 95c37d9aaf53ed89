"""A norm of 2⁻ᵏ·t in place of one of t: exact if epsilon is scaled by 2⁻²ᵏ.

Norm(a·t, a²·ε) = Norm(t, ε), for t that does not fit half precision where a·t does. The factor goes
into the weights that write t; a power of two changes no digit of them. The source is SLaNC
(Salmani et al. 2024), here for whatever a norm reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.normalization import Kind
from normlint.recognise.parameter import static
from normlint.rewrite.unquantize import clone
from normlint.rule import Applicability, Computed, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization

    Array = np.ndarray[Any, Any]

EXPONENT = 4
"""Sixteen times as large values fit; normal numbers above 2⁻¹⁰ stay normal."""
_PASSED = frozenset(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast"))
_SCALED_INPUTS = {"Gemm": (1, 2), "Conv": (1, 2), "ConvTranspose": (1, 2)}
_MOST_NODES = 64


class _Stuck(Exception):  # noqa: N818 - it is an answer and no error
    def __init__(self, reason: Reason, at: Node | Tensor, detail: str) -> None:
        super().__init__(detail)
        self.not_fixed = NotFixed(reason, at, detail)


def rescaled_input(
    context: Context, norm: Normalization, exponent: int = EXPONENT
) -> Rewrite | NotFixed:
    """Scale what a norm operator reads by 2⁻ᵏ in the weights that write it, and its epsilon."""
    if not norm.is_op or norm.kind not in {Kind.LAYER, Kind.RMS} or len(norm.anchor.inputs) < 2:
        return NotFixed(Reason.TYPE_MISMATCH, norm.anchor, "its epsilon is no attribute")
    try:
        edits, nodes = _scaled(norm, context.constants, 2.0**-exponent)
    except _Stuck as stuck:
        return stuck.not_fixed
    epsilon = norm.epsilon * 4.0**-exponent
    new = clone(norm.anchor, {})
    outputs = tuple(tensor if tensor.name else None for tensor in norm.anchor.outputs)
    edits.append(Replace(outputs, replace(new, attrs={**new.attrs, "epsilon": epsilon})))
    return Rewrite(
        f"scale its input by 2^-{exponent} in the weights, and its epsilon by 2^-{2 * exponent}",
        Applicability.UNSAFE,
        tuple(edits),
        (*nodes, norm.anchor),
    )


def _scaled(
    norm: Normalization, constants: Constants, factor: float
) -> tuple[list[Replace], list[Node]]:
    """Scale every term that a norm reads. Raises _Stuck."""
    edits: list[Replace] = []
    nodes: list[Node] = []
    pending = [norm.x]
    while pending:
        tensor = pending.pop()
        node = tensor.producer
        if node is None or len(nodes) >= _MOST_NODES:
            raise _Stuck(Reason.WRITER_NOT_LINEAR, tensor, f"{tensor.name} is given, not computed")
        if tensor.is_output or len(tensor.consumers) != 1:
            raise _Stuck(Reason.OTHER_READER, tensor, f"{tensor.name} has another reader")
        nodes.append(node)
        scaled, further = _step(node, constants)
        pending.extend(further)
        if scaled:
            changes = {at: _times(node.inputs[at], constants, factor) for at in scaled}
            edits.append(Replace((node.y,), clone(node, changes)))
    return edits, nodes


def _step(node: Node, constants: Constants) -> tuple[list[int], list[Tensor]]:
    """Give the constants of a node to scale, and its inputs to scale instead. Raises _Stuck."""
    known = [at for at, t in enumerate(node.inputs) if t.name and constants.is_constant(t)]
    rest = [tensor for at, tensor in enumerate(node.inputs) if tensor.name and at not in known]
    if node.op in {"Add", "Sum", "Sub"}:
        return known, rest
    if node.op == "MatMul" and len(known) == 1:
        return known, []
    if node.op in _SCALED_INPUTS and 1 in known and len(known) == len(node.inputs) - 1:
        return known, []
    if node.op == "Mul" and len(known) == 1:
        return known, []
    if node.op in _PASSED and node.inputs[0] in rest:
        return [], node.inputs[:1]
    raise _Stuck(Reason.WRITER_NOT_LINEAR, node, f"{node.op} has no weights for a factor")


def _times(tensor: Tensor, constants: Constants, factor: float) -> Computed:
    shape = static(tensor.shape)
    if shape is None:
        shape = tuple(constants.values(tensor).shape)

    def values() -> Array:
        return constants.values(tensor).astype(np.float64) * factor

    return Computed(shape, tensor.dtype, values, tensor.name)
