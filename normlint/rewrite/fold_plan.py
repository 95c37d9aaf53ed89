"""What becomes of each scale and shift of a model: where it goes, or why it stays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.batch_norms import batch_norm_ops
from normlint.context.linear import Blocked
from normlint.context.shapes import complete_shapes
from normlint.normalization import Kind, Normalization
from normlint.rewrite.affine import (
    Affine,
    Weights,
    elementwise,
    is_per_channel,
    is_spatial,
    of_batch_norm,
)
from normlint.rewrite.centre_region import rounding
from normlint.rewrite.fold_backward import Backward
from normlint.rewrite.fold_forward import Forward
from normlint.rule import Applicability, NotFixed, Reason, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.graph import Node, Tensor
    from normlint.normalization import NearNorm
    from normlint.rewrite.affine import Elementwise
    from normlint.rule import Edit

_BIASED = frozenset(("MatMul", "FusedMatMul"))
"""Operators without a bias of their own: an Add behind one is its bias and no work left over."""
_MOST_IN_A_ROW = 64
_GATED = frozenset(("LSTM", "GRU", "RNN"))
_GATE_ROUNDING = 1e-3
_OF_IMAGES = frozenset(("Conv", "ConvTranspose", "FusedConv"))
_BRINGS_IN = frozenset(("Cast", "Transpose", "Identity", "Unsqueeze", "Reshape"))


class Direction(StrEnum):
    """Which way a scale and shift goes."""

    BACKWARD = "backward"
    FORWARD = "forward"


@dataclass(frozen=True, eq=False)
class Fold:
    """What becomes of one scale and shift."""

    node: Node
    """The BatchNormalization, or the last node of a chain of Mul, Add, Sub, Div."""
    nodes: tuple[Node, ...] = ()
    """All nodes that are taken up, without the linear operators."""
    linear: tuple[Node, ...] = ()
    """Linear operators that take it up."""
    direction: Direction | None = None
    rewrite: Rewrite | None = None
    refusal: NotFixed | None = None
    """Why it stays; also set beside a rewrite that only `--unsafe-fixes` makes."""
    quantized: bool = False
    """Whether the weights that take it up are behind a DequantizeLinear."""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def into(self) -> str:
        """Name the linear operators."""
        ops = list(dict.fromkeys(node.op for node in self.linear))
        return " and ".join(ops)


class Folds:
    """The folds of a model, each worked out when it is asked for."""

    def __init__(self, context: Context) -> None:
        self._context = context
        complete_shapes(context.graph, context.constants)
        self._weights = Weights(context.constants)
        self._overridable = Weights(context.constants, overridable=True)

    @cached_property
    def batch_norms(self) -> tuple[Fold, ...]:
        """The fold of every BatchNormalization on running statistics that acts on data."""
        taken: set[Node] | None = None
        folds = []
        for op in batch_norm_ops(self._context):
            if op.is_training or not is_spatial(op.node):
                continue
            if is_per_channel(op.node):
                folds.append(self._batch_norm(op.node))
                continue
            taken = self._parts_of_norms() if taken is None else taken
            if op.node not in taken:
                folds.append(_on_own_statistics(op.node))
        return tuple(folds)

    @cached_property
    def affines(self) -> tuple[Fold, ...]:
        """The fold of every chain of Mul, Add, Sub, Div by constants per channel that can go."""
        taken = self._parts_of_norms()
        return tuple(
            fold
            for scope in self._context.graph.scopes()
            for node in scope.nodes
            if node not in taken and (fold := self._chain(node, taken)) is not None
        )

    def _batch_norm(self, node: Node) -> Fold:
        fold = self._attempt(node, self._weights)
        if fold.refusal is None or fold.refusal.reason is not Reason.OVERRIDABLE_INPUT:
            return fold
        unsafe = self._attempt(node, self._overridable)
        if unsafe.rewrite is None:
            return fold
        rewrite = replace(
            unsafe.rewrite,
            title=f"{unsafe.rewrite.title}, as if nobody overrode the initializers",
            applicability=Applicability.UNSAFE,
            approximate=True,
        )
        return replace(unsafe, rewrite=rewrite, refusal=fold.refusal)

    def _attempt(self, node: Node, weights: Weights) -> Fold:
        try:
            affine = of_batch_norm(node, weights)
        except Blocked as blocked:
            return Fold(node, (node,), refusal=blocked.not_fixed)
        refusals: dict[Direction, NotFixed] = {}
        for direction, attempt in (
            (Direction.BACKWARD, self._backward),
            (Direction.FORWARD, self._forward),
        ):
            outcome = attempt(node, node.inputs[0], 1, affine, weights)
            if isinstance(outcome, Fold):
                return outcome
            refusals[direction] = outcome
        evidence = {key.value: value.reason.value for key, value in refusals.items()}
        return Fold(node, (node,), refusal=_telling(refusals), evidence=evidence)

    def _backward(
        self, node: Node, source: Tensor, axis: int, affine: Affine, weights: Weights
    ) -> Fold | NotFixed:
        search = Backward(node, weights)
        try:
            edits = search.fold(source, axis, affine)
        except Blocked as blocked:
            return blocked.not_fixed
        return self._fold(node, Direction.BACKWARD, affine, edits, search)

    def _forward(
        self, node: Node, source: Tensor, axis: int, affine: Affine, weights: Weights
    ) -> Fold | NotFixed:
        search = Forward(node, weights)
        try:
            edits = search.fold(source, axis, affine)
        except Blocked as blocked:
            return blocked.not_fixed
        return self._fold(node, Direction.FORWARD, affine, edits, search)

    def _fold(
        self,
        node: Node,
        direction: Direction,
        affine: Affine,
        edits: tuple[Edit, ...],
        search: Backward | Forward,
    ) -> Fold:
        linear = tuple(search.linear)
        names = " and ".join(dict.fromkeys(n.op for n in linear))
        title = f"fold {node.op} {direction.value} into {names}"
        merged = tuple(search.merged) if isinstance(search, Backward) else ()
        return Fold(
            node,
            (node, *merged),
            linear,
            direction,
            Rewrite(
                title,
                Applicability.SAFE,
                edits,
                tuple(dict.fromkeys(search.nodes)),
                rounding=max(rounding(edits), _saturated(linear)),
            ),
            quantized=isinstance(search, Backward) and search.quantized,
            evidence={"direction": direction.value, "linear": len(linear), **_spread(affine)},
        )

    def _parts_of_norms(self) -> set[Node]:
        """Give the nodes of norms that other rules answer for."""
        context = self._context
        return {
            node
            for facts in (context.norms, context.constant_norms, context.near_norms)
            for fact in facts
            if not _is_running(fact)
            for node in fact.nodes
        }

    def _chain(self, last: Node, taken: set[Node]) -> Fold | None:
        """Give the fold of the chain that ends at a node; None where it starts or goes nowhere."""
        step = self._step(last, taken)
        if step is None or self._goes_on(last, taken):
            return None
        steps = self._steps(step, taken)
        axes = {axis for one in steps for axis in one.varies() or ()}
        if len(axes) > 1:
            return None
        # A factor of one value is the same along every axis: images have channels in front or last.
        folds = (self._along(steps, axis) for axis in axes or {1, (step.x.rank or 2) - 1})
        fold = next((fold for fold in folds if fold is not None), None)
        if any(one.varies() for one in _without_bias(steps)):
            return fold
        return fold if fold is not None and _is_scaled_image(fold, steps) else None

    def _along(self, steps: list[Elementwise], axis: int) -> Fold | None:
        channels = _channels(steps[-1].x, axis)
        if channels is None:
            return None
        try:
            affine = Affine.identity(channels)
            for one in steps:
                affine = affine.after(one.affine(axis, channels, self._weights))
        except Blocked:
            return None
        return self._chain_fold(steps, axis, affine)

    def _chain_fold(self, steps: list[Elementwise], axis: int, affine: Affine) -> Fold | None:
        last, source = steps[0].node, steps[-1].x
        nodes = tuple(step.node for step in reversed(steps))
        outcome = self._backward(last, source, axis, affine, self._weights)
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
        fold = self._fold(last, Direction.FORWARD, affine, edits, search)
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

    def _step(self, node: Node, taken: set[Node]) -> Elementwise | None:
        """Read a node of a chain: arithmetic with a constant along one axis at most."""
        if node in taken:
            return None
        step = elementwise(node, self._context.constants)
        if step is None:
            return None
        axes = step.varies()
        return step if axes is not None and len(axes) <= 1 else None

    def _steps(self, last: Elementwise, taken: set[Node]) -> list[Elementwise]:
        """Give the nodes of a chain from its last one on, backward."""
        steps = [last]
        axis = last.varies()
        while len(steps) < _MOST_IN_A_ROW:
            tensor = steps[-1].x
            node = tensor.producer
            if node is None or tensor.is_output or len(set(tensor.consumers)) != 1:
                break
            step = self._step(node, taken) if node.graph is last.node.graph else None
            if step is None:
                break
            along = step.varies()
            if along and axis and along != axis:
                break
            axis = axis or along
            steps.append(step)
        return steps

    def _goes_on(self, node: Node, taken: set[Node]) -> bool:
        """Whether the node behind belongs to the same chain."""
        tensor = node.y
        readers = set(tensor.consumers)
        if tensor.is_output or len(readers) != 1:
            return False
        step = self._step(readers.pop(), taken)
        if step is None or step.node.graph is not node.graph:
            return False
        own, other = elementwise(node, self._context.constants), step
        mine, theirs = own.varies() if own is not None else None, other.varies()
        return not (mine and theirs and mine != theirs)


def _saturated(linear: tuple[Node, ...]) -> float:
    """Give what saturated gates make of the rounding of what they read."""
    return _GATE_ROUNDING if any(node.op in _GATED for node in linear) else 0.0


def _on_own_statistics(node: Node) -> Fold:
    detail = "its mean and variance are computed from what it reads"
    return Fold(node, (node,), refusal=NotFixed(Reason.BATCH_STATISTICS, node, detail))


def _is_running(fact: Normalization | NearNorm) -> bool:
    """Whether it is a BatchNorm on running statistics: a scale and shift like any other."""
    return isinstance(fact, Normalization) and fact.kind is Kind.BATCH and not fact.training


def _channels(tensor: Tensor, axis: int) -> int | None:
    shape = tensor.shape
    extent = shape[axis] if shape is not None and axis < len(shape) else None
    return extent if isinstance(extent, int) else None


def _is_scaled_image(fold: Fold, steps: list[Elementwise]) -> bool:
    """Whether a factor of one value is that of an image or of a convolution.

    Elsewhere it belongs to something larger, as the scale of an attention or part of an activation,
    that runtimes know as a whole.
    """
    if all(step.is_shift for step in steps) or any(n.op not in _OF_IMAGES for n in fold.linear):
        return False
    return fold.direction is Direction.BACKWARD or _is_input(steps[-1].x)


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


def _telling(refusals: dict[Direction, NotFixed]) -> NotFixed:
    """Choose the reason that says most: that of a linear operator which was reached."""
    found = list(refusals.values())
    return next((r for r in found if r.reason is not Reason.NO_LINEAR_NEIGHBOUR), found[0])


def _spread(affine: Affine) -> dict[str, Any]:
    """Say how far the scales lie apart, which a later quantisation per tensor has to bear."""
    magnitude = np.abs(affine.scale)
    typical = float(np.median(magnitude))
    facts = {"largest_factor": float(magnitude.max()), "smallest_factor": float(magnitude.min())}
    if typical > 0:
        facts["range_factor"] = float(magnitude.max()) / typical
    return {key: float(f"{value:.4g}") for key, value in facts.items()}
