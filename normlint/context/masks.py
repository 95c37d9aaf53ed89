"""Causal masks: what hides from a token the ones that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.steps import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.attention import Attention
    from normlint.context.flow import Flow
    from normlint.context.steps import Step
    from normlint.graph import Node, Tensor

_FAR = 64
_LARGEST_MASK = 1 << 20
_COMPARES = frozenset(("Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
_CAUSAL_OPS = frozenset(
    ("GroupQueryAttention", "DecoderMaskedMultiHeadAttention", "PagedAttention")
)


class Masks:
    """Finds causal masks; a mask that several attentions share is looked at once."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._known: dict[Tensor, Node | None] = {}

    def causal(self, attention: Attention) -> Node | None:
        """Give the node that makes an attention causal; None where it is not."""
        node = attention.mix.node
        if node.op in ops.ATTENTIONS:
            if (
                node.op in _CAUSAL_OPS
                or node.attrs.get("is_causal")
                or node.attrs.get("unidirectional")
            ):
                return node
            tensors = [t for t in node.inputs[3:] if t.name]
        else:
            tensors = list(self._mask_operands(attention))
        for tensor in tensors:
            if tensor not in self._known:
                self._known[tensor] = self._maker(tensor)
            found = self._known[tensor]
            if found is not None:
                return found
        return None

    def _mask_operands(self, attention: Attention) -> Iterator[Tensor]:
        """Give what is added to the scores of an attention, or chooses among them."""
        pending = list(attention.softmax.sources)
        stop = set(attention.steps)
        yield from self._beside(attention.softmax)
        for _ in range(_FAR):
            if not pending:
                return
            step = pending.pop().maker
            if step is None or step in stop:
                continue
            yield from self._beside(step)
            pending.extend(step.sources)

    def _beside(self, step: Step) -> Iterator[Tensor]:
        if step.op not in {"Add", "Where", "Sub", "BiasSoftmax"}:
            return
        for tensor in step.node.inputs:
            if tensor.name and self.flow.value(tensor).level is not Level.DATA:
                yield tensor

    def _maker(self, mask: Tensor) -> Node | None:
        pending = [mask]
        for _ in range(_FAR):
            if not pending:
                return None
            tensor = pending.pop()
            node = tensor.producer
            if node is None:
                if self._is_triangular(tensor):
                    return tensor.consumers[0]
            elif node.op == "Trilu" or _compares_positions(node):
                return node
            else:
                pending.extend(t for t in node.inputs if t.name)
        return None

    def _is_triangular(self, tensor: Tensor) -> bool:
        shape = tensor.shape
        if not tensor.is_constant or shape is None or len(shape) < 2 or shape[-1] != shape[-2]:
            return False
        values = self.flow.constants.known(tensor, _LARGEST_MASK)
        if values is None or values.shape[-1] < 2:
            return False
        import numpy as np

        square = values.reshape(-1, *values.shape[-2:])[0]
        future = square[np.triu_indices(square.shape[0], 1)]
        past = square[np.tril_indices(square.shape[0])]
        return bool(
            (future == future[0]).all() and (past == past[0]).all() and past[0] != future[0]
        )


def _compares_positions(node: Node) -> bool:
    """Whether it compares the numbers of tokens with each other."""
    return node.op in _COMPARES and all(_counts(tensor) for tensor in node.inputs)


def _counts(tensor: Tensor) -> bool:
    for _ in range(8):
        node = tensor.producer
        if node is None:
            return False
        if node.op in {"Range", "CumSum"}:
            return True
        if not node.inputs:
            return False
        tensor = node.inputs[0]
    return False
