"""Norms that are spelled out in part by integer operators, which no float algebra reads.

ONNX Runtime's QOperator format turns each Add and Mul of a spelled-out norm into QLinearAdd and
QLinearMul; the root and the division stay in float. An epsilon that QLinearAdd adds right in front
of a root tells such a norm from other arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor

_ROOTS = frozenset(("Sqrt", "Pow"))
_QUOTIENTS = frozenset(("Div", "Reciprocal"))


@dataclass(frozen=True, eq=False)
class IntegerNorm:
    """The parts of a spelled-out norm that integer operators compute."""

    epsilon: Node
    """The QLinearAdd of epsilon to the variance."""
    dequantize: Node
    """What makes a float of its result, for the root."""
    root: Node
    affine: tuple[Node, ...]
    """QLinearMul and QLinearAdd of scale and bias behind the quotient, in order."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of them."""
        return (self.epsilon, self.dequantize, self.root, *self.affine)


def integer_norms(graph: Graph, constants: Constants) -> Iterator[IntegerNorm]:
    """Give the norms of a graph and its subgraphs whose epsilon an integer operator adds."""
    for scope in graph.scopes():
        for node in scope.nodes:
            if node.op == "QLinearAdd" and known_operand(node, constants) is not None:
                found = _behind(node, constants)
                if found is not None:
                    yield found


def known_operand(node: Node, constants: Constants) -> int | None:
    """Give the position of the operand of an integer operator that is constant."""
    known = [at for at in (0, 3) if constants.is_constant(node.inputs[at])]
    return known[0] if len(known) == 1 else None


def _behind(node: Node, constants: Constants) -> IntegerNorm | None:
    dequantize = _only(node.y, frozenset(("DequantizeLinear",)))
    root = None if dequantize is None else _only(dequantize.y, _ROOTS)
    if dequantize is None or root is None:
        return None
    quotient = _only(root.y, _QUOTIENTS)
    if quotient is not None and quotient.op == "Reciprocal":
        quotient = _only(quotient.y, frozenset(("Mul",)))
    affine: list[Node] = []
    pair = None if quotient is None else _only(quotient.y, frozenset(("QuantizeLinear",)))
    tensor = None if pair is None else pair.y
    for op in ("QLinearMul", "QLinearAdd"):
        after = None if tensor is None else _only(tensor, frozenset((op,)))
        if after is not None and known_operand(after, constants) is not None:
            affine.append(after)
            tensor = after.y
    return IntegerNorm(node, dequantize, root, tuple(affine))


def _only(tensor: Tensor, ops: frozenset[str]) -> Node | None:
    """Give the only reader of a tensor, where it is one of these operators."""
    readers = tensor.consumers
    fits = len(readers) == 1 and readers[0].op in ops and not tensor.is_output
    return readers[0] if fits else None
