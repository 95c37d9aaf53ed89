"""What becomes of each scale and shift of a model: where it goes, or why it stays."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from normlint.context.batch_norms import batch_norm_ops
from normlint.context.linear import Blocked
from normlint.normalization import Kind, Normalization
from normlint.rewrite.affine import Weights, is_per_channel, is_spatial, of_batch_norm
from normlint.rewrite.fold import Direction, Fold
from normlint.rule import Applicability, NotFixed, Reason

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.context.constants import Constants
    from normlint.graph import Node
    from normlint.normalization import NearNorm


class Folds:
    """The folds of a model, each worked out when it is asked for."""

    def __init__(self, context: Context) -> None:
        self._context = context
        maps = context.settings.bias_maps
        self._weights = Weights(context.constants, bias_maps=maps)
        self._overridable = Weights(context.constants, overridable=True, bias_maps=maps)

    @cached_property
    def batch_norms(self) -> tuple[Fold, ...]:
        """The fold of every BatchNormalization on running statistics that acts on data."""
        taken: set[Node] | None = None
        folds = []
        for op in batch_norm_ops(self._context):
            if op.is_training or not is_spatial(op.node):
                continue
            if is_per_channel(op.node):
                folds.append(self._for_targets(self._batch_norm(op.node)))
                continue
            taken = self._parts_of_norms(other=True) if taken is None else taken
            if op.node not in taken:
                folds.append(_on_own_statistics(op.node))
        return tuple(folds)

    @cached_property
    def affines(self) -> tuple[Fold, ...]:
        """The fold of every chain of Mul, Add, Sub, Div by constants per channel that can go."""
        from normlint.rewrite.fold_chains import Chains

        chains = Chains(self._weights, self._parts_of_norms())
        return tuple(
            fold
            for scope in self._context.graph.scopes()
            for node in scope.nodes
            if (fold := chains.ending_at(node)) is not None
        )

    def _for_targets(self, fold: Fold) -> Fold:
        """Make what stays a depthwise Conv where a target has no BatchNormalization."""
        from normlint.rewrite.fold_depthwise import WITHOUT_BATCH_NORM, depthwise

        asking = self._context.settings.targets & WITHOUT_BATCH_NORM
        if fold.rewrite is not None or not asking:
            return fold
        evidence = {**fold.evidence, "targets": sorted(asking)}
        return replace(fold, rewrite=depthwise(fold.node, self._weights), evidence=evidence)

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
        from normlint.rewrite.fold_attempt import backward, beside, forward

        try:
            affine = of_batch_norm(node, weights)
        except Blocked as blocked:
            return Fold(node, (node,), refusal=blocked.not_fixed)
        refusals: dict[Direction, NotFixed] = {}
        for direction, attempt in (
            (Direction.BACKWARD, backward),
            (Direction.FORWARD, forward),
        ):
            outcome = attempt(node, node.inputs[0], 1, affine, weights)
            if isinstance(outcome, Fold):
                return outcome
            refusals[direction] = outcome
        found = beside(node, node.inputs[0], 1, affine, weights)
        if found is not None:
            return found
        evidence = {key.value: value.reason.value for key, value in refusals.items()}
        return Fold(
            node, (node,), refusal=_telling(node, refusals, weights.constants), evidence=evidence
        )

    def _parts_of_norms(self, *, other: bool = False) -> set[Node]:
        """Give the nodes of norms that are no scale and shift; `other`: that are no BatchNorm."""
        context = self._context
        return {
            node
            for facts in (context.norms, context.constant_norms, context.near_norms)
            for fact in facts
            if not (_is_batch(fact) if other else _is_running(fact))
            for node in fact.nodes
        }


def _on_own_statistics(node: Node) -> Fold:
    detail = "its mean and variance are computed from what it reads"
    return Fold(node, (node,), refusal=NotFixed(Reason.BATCH_STATISTICS, node, detail))


def _is_batch(fact: Normalization | NearNorm) -> bool:
    return isinstance(fact, Normalization) and fact.kind is Kind.BATCH


def _is_running(fact: Normalization | NearNorm) -> bool:
    """Whether it is a BatchNorm on running statistics: a scale and shift like any other."""
    return _is_batch(fact) and isinstance(fact, Normalization) and not fact.training


def _telling(node: Node, refusals: dict[Direction, NotFixed], constants: Constants) -> NotFixed:
    """Choose the reason that says most: that of a linear operator which was reached.

    Where one was reached on either side, it is the one in front; but behind a residual sum, which
    is read elsewhere nearly always, it is what stands on the other side.
    """
    from normlint.rewrite.fold_sums import is_sum

    ways = [(key.value, refusal) for key, refusal in refusals.items()]
    producer = node.inputs[0].producer
    if (
        producer is not None
        and is_sum(producer)
        and not any(constants.is_constant(tensor) for tensor in producer.inputs)
    ):
        ways.reverse()
    told = [way for way in ways if way[1].reason is not Reason.NO_LINEAR_NEIGHBOUR]
    if not told:
        return refusals[Direction.BACKWARD]
    (_, first), *others = told
    more = [f"; and {way}: {other.detail}" for way, other in others if other.detail != first.detail]
    return replace(first, detail="".join((first.detail, *more)))
