"""Chains of Mul, Add, Sub and Div by constants per channel, and where they can go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from normlint.context.linear import Blocked
from normlint.rewrite.affine import Affine, elementwise
from normlint.rewrite.fold import Direction, Fold

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Elementwise, Weights
    from normlint.rule import Rewrite

_BIASED = frozenset(("MatMul", "FusedMatMul"))
"""Operators without a bias of their own: an Add behind one is its bias and no work left over."""
_MOST_IN_A_ROW = 64
_OF_IMAGES = frozenset(("Conv", "ConvTranspose", "FusedConv"))
_PRODUCTS = frozenset(("MatMul", "FusedMatMul", "Gemm", "FusedGemm"))
_BRINGS_IN = frozenset(("Cast", "Transpose", "Identity", "Unsqueeze", "Reshape", "Flatten"))
_SPLITS = frozenset(("Split", "Slice", "Gather", "Squeeze", "Expand", "Concat"))
"""Layout operators besides, between heads and their projection."""
_MOST_CHANNELS = 1 << 20
"""Channels that a file may declare before nobody believes it."""


class Chains:
    """Finds the chains of a model; nodes in `taken` belong to norms that other rules answer for."""

    def __init__(self, weights: Weights, taken: set[Node]) -> None:
        self._weights = weights
        self._taken = taken

    def ending_at(self, last: Node) -> Fold | None:
        """Give the fold of the chain that ends at a node; None where it starts or goes nowhere."""
        step = self._step(last)
        if step is None or self._goes_on(last):
            return None
        steps = self._steps(step)
        axes = {axis for one in steps for axis in one.varies() or ()}
        if len(axes) > 1:
            return None
        # A factor of one value is the same along every axis: images have channels in front or last.
        folds = (self._along(steps, axis) for axis in axes or {1, (step.x.rank or 2) - 1})
        fold = next((fold for fold in folds if fold is not None), None)
        if any(one.varies() for one in _without_bias(steps)):
            return fold
        return fold if fold is not None and _is_worth_it(fold, steps) else None

    def _along(self, steps: list[Elementwise], axis: int) -> Fold | None:
        channels = _channels(steps[-1].x, axis)
        if channels is None or not 0 < channels <= _MOST_CHANNELS:
            return None
        try:
            affine = Affine.identity(channels)
            for one in steps:
                affine = affine.after(one.affine(axis, channels, self._weights))
        except Blocked:
            return None
        return self._chain_fold(steps, axis, affine)

    def _chain_fold(self, steps: list[Elementwise], axis: int, affine: Affine) -> Fold | None:
        from normlint.rewrite.fold_attempt import backward, described
        from normlint.rewrite.fold_forward import Forward

        last, source = steps[0].node, steps[-1].x
        nodes = tuple(step.node for step in reversed(steps))
        outcome = backward(last, source, axis, affine, self._weights)
        if isinstance(outcome, Fold):
            return self._if_it_pays(outcome, nodes)
        search = Forward(last, self._weights)
        try:
            edits = search.fold(source, axis, affine)
        except Blocked:
            return None
        if search.added >= len(nodes):
            return None
        search.nodes[:0] = nodes
        fold = described(last, Direction.FORWARD, affine, edits, search)
        return Fold(last, nodes, fold.linear, fold.direction, fold.rewrite, evidence=fold.evidence)

    def _if_it_pays(self, fold: Fold, nodes: tuple[Node, ...]) -> Fold | None:
        """Keep a backward fold if fewer nodes are left: a MatMul needs an Add for its shift."""
        rewrite = fold.rewrite
        if rewrite is None:
            return None
        everything = tuple(dict.fromkeys((*nodes, *fold.nodes)))
        adds = sum(node.op in _BIASED for node in fold.linear)
        if adds and len(everything) <= adds and all(_is_shift(node) for node in everything):
            return None
        region = tuple(dict.fromkeys((*nodes, *rewrite.region)))
        folded = replace(rewrite, region=region)
        return replace(fold, nodes=everything, rewrite=_titled(folded, everything))

    def _step(self, node: Node) -> Elementwise | None:
        """Read a node of a chain: arithmetic with a constant along one axis at most."""
        if node in self._taken:
            return None
        step = elementwise(node, self._weights.constants)
        if step is None:
            return None
        axes = step.varies()
        return step if axes is not None and len(axes) <= 1 else None

    def _steps(self, last: Elementwise) -> list[Elementwise]:
        """Give the nodes of a chain from its last one on, backward."""
        steps = [last]
        axis = last.varies()
        while len(steps) < _MOST_IN_A_ROW:
            tensor = steps[-1].x
            node = tensor.producer
            if node is None or tensor.is_output or len(set(tensor.consumers)) != 1:
                break
            step = self._step(node) if node.graph is last.node.graph else None
            if step is None:
                break
            along = step.varies()
            if along and axis and along != axis:
                break
            axis = axis or along
            steps.append(step)
        return steps

    def _goes_on(self, node: Node) -> bool:
        """Whether the node behind belongs to the same chain."""
        tensor = node.y
        readers = set(tensor.consumers)
        if tensor.is_output or len(readers) != 1:
            return False
        step = self._step(readers.pop())
        if step is None or step.node.graph is not node.graph:
            return False
        own, other = elementwise(node, self._weights.constants), step
        mine, theirs = own.varies() if own is not None else None, other.varies()
        return not (mine and theirs and mine != theirs)


def _channels(tensor: Tensor, axis: int) -> int | None:
    shape = tensor.shape
    extent = shape[axis] if shape is not None and axis < len(shape) else None
    return extent if isinstance(extent, int) else None


def _is_worth_it(fold: Fold, steps: list[Elementwise]) -> bool:
    """Whether a factor of one value should go into weights.

    Not where it belongs to something larger that runtimes know as a whole, as the scale of an
    attention or part of an activation, and not where a copy of a matrix would be the price.
    """
    matrices = [node for node in fold.linear if node.op not in _OF_IMAGES]
    if all(step.is_shift for step in steps):
        return False
    if any(node.op not in _PRODUCTS or _is_shared(node) for node in matrices):
        return False
    if fold.is_forward:
        return _is_input(steps[-1].x)
    return not _is_part_of_attention(fold.node)


def _is_shared(node: Node) -> bool:
    """Whether another node reads the weight of a linear operator as well."""
    return any(
        tensor.is_constant and (len(set(tensor.consumers)) > 1 or tensor.is_output)
        for tensor in node.inputs[:2]
    )


def _is_part_of_attention(node: Node) -> bool:
    """Whether what a node computes is multiplied by another computed tensor, layout aside."""
    pending = [node.y]
    for _ in range(_MOST_IN_A_ROW):
        if not pending:
            return False
        tensor = pending.pop()
        for reader in tensor.consumers:
            if reader.op in _PRODUCTS and not any(t.is_constant for t in reader.inputs[:2]):
                return True
            if reader.op in _BRINGS_IN | _SPLITS:
                pending.extend(reader.outputs)
    return True


def _is_input(tensor: Tensor) -> bool:
    """Whether a tensor is an input of the graph, up to layout and type."""
    for _ in range(_MOST_IN_A_ROW):
        node = tensor.producer
        if node is None:
            return True
        if node.op not in _BRINGS_IN:
            return False
        tensor = node.inputs[0]
    return False


def _titled(rewrite: Rewrite | None, nodes: tuple[Node, ...]) -> Rewrite | None:
    """Name all nodes of a chain in the title."""
    if rewrite is None:
        return None
    ops = ", ".join(node.op for node in nodes)
    return replace(rewrite, title=rewrite.title.replace(nodes[-1].op, ops, 1))


def _without_bias(steps: list[Elementwise]) -> list[Elementwise]:
    """Give the steps without the first one where that is the bias of a MatMul."""
    first = steps[-1]
    producer = first.x.producer
    is_bias = first.is_shift and producer is not None and producer.op in _BIASED
    return steps[:-1] if is_bias else steps


def _is_shift(node: Node) -> bool:
    return node.op in {"Add", "Sub"}
