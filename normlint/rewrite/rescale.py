"""A norm of 2⁻ᵏ·t in place of one of t: exact if epsilon is scaled by 2⁻²ᵏ.

Norm(a·t, a²·ε) = Norm(t, ε), for t that does not fit half precision where a·t does. The factor goes
into the weights that write t, and with it to all of the residual stream that t is part of; a power
of two changes no digit of them. The source is SLaNC (Salmani et al. 2024), here for whole streams.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.epsilons import epsilon_place
from normlint.deferred import dataclass
from normlint.recognise.parameter import static
from normlint.rewrite.unquantize import clone
from normlint.rule import Applicability, Computed, NewNode, NotFixed, Reason, Replace, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.context.constants import Constants
    from normlint.context.scaled_streams import ScaledStream
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Operand

    Array = np.ndarray[Any, Any]

EXPONENT = 4
"""Sixteen times as large values fit; normal numbers above 2⁻¹⁰ stay normal."""


@dataclass(frozen=True, eq=False)
class Rescaled:
    """The rewrite of a stream, and which norms it serves."""

    norms: tuple[Normalization, ...]
    outcome: Rewrite | NotFixed


def rescaled_stream(context: Context, norm: Normalization, exponent: int) -> Rescaled:
    """Scale a stream that a norm reads by 2⁻ᵏ, and the epsilons of all norms that read it."""
    if epsilon_place(norm, context.constants) is None:
        detail = "it has no epsilon in float that could be scaled"
        return Rescaled((norm,), NotFixed(Reason.TYPE_MISMATCH, norm.anchor, detail))
    stream = context.precision.scaled_streams(norm)
    if isinstance(stream, NotFixed):
        return Rescaled((norm,), stream)
    edits = _Edits(stream, context.constants, exponent).edits()
    what = (
        "its input" if len(stream.norms) == 1 else f"the stream that {len(stream.norms)} norms read"
    )
    title = f"scale {what} by 2^-{exponent} in the weights, and epsilon by 2^-{2 * exponent}"
    return Rescaled(stream.norms, Rewrite(title, Applicability.UNSAFE, tuple(edits), stream.nodes))


class _Edits:
    """The edits of one stream."""

    def __init__(self, stream: ScaledStream, constants: Constants, exponent: int) -> None:
        self.stream = stream
        self.constants = constants
        self.exponent = exponent
        self.inputs: dict[Node, dict[int, Operand]] = {}
        self.epsilons: dict[Node, float] = {}
        self.made: dict[tuple[Tensor, int], Computed] = {}
        self.products: dict[Tensor, NewNode] = {}

    def edits(self) -> list[Replace]:
        """Give one edit for each node that changes."""
        for node, at in self.stream.constants:
            self.change(node, at, self.times(node.inputs[at], self.exponent))
        for node, at in self.stream.explicit:
            self.change(node, at, self.product(node.inputs[at]))
        for norm in self.stream.norms:
            place = epsilon_place(norm, self.constants)
            if place is None:
                continue
            node, at = place
            if at < 0:
                self.epsilons[node] = norm.epsilon * 4.0**-self.exponent
            else:
                self.change(node, at, self.times(node.inputs[at], 2 * self.exponent))
        nodes = dict.fromkeys((*self.inputs, *self.epsilons))
        return [self.edited(node) for node in nodes]

    def change(self, node: Node, at: int, by: Operand) -> None:
        """Put an operand in the place of another one."""
        self.inputs.setdefault(node, {})[at] = by

    def edited(self, node: Node) -> Replace:
        """Give a node with its changes in the place of the old one."""
        outputs = tuple(tensor if tensor.name else None for tensor in node.outputs)
        new = clone(node, self.inputs.get(node, {}))
        if node in self.epsilons:
            new = replace(new, attrs={**new.attrs, "epsilon": self.epsilons[node]})
        return Replace(outputs, new)

    def times(self, tensor: Tensor, exponent: int) -> Computed:
        """Give a constant times 2⁻ᵏ; one for all nodes that read it."""
        if (tensor, exponent) not in self.made:
            self.made[tensor, exponent] = _times(tensor, self.constants, 2.0**-exponent)
        return self.made[tensor, exponent]

    def product(self, tensor: Tensor) -> NewNode:
        """Give the node that multiplies a tensor by 2⁻ᵏ; one for all that read it."""
        if tensor not in self.products:
            factor = 2.0**-self.exponent
            constant = Computed((), tensor.dtype, lambda: np.asarray(factor), "factor")
            self.products[tensor] = NewNode("Mul", (tensor, constant), like=tensor.producer)
        return self.products[tensor]


def _times(tensor: Tensor, constants: Constants, factor: float) -> Computed:
    shape = static(tensor.shape)
    if shape is None:
        shape = tuple(constants.values(tensor).shape)

    def values() -> Array:
        return constants.values(tensor).astype(np.float64) * factor

    return Computed(shape, tensor.dtype, values, tensor.name)
