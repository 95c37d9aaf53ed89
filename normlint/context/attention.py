"""Attention, by its operators or spelled out: a product, a softmax, a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.steps import Level, Role
from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.flow import Flow
    from normlint.context.steps import Step, Value

_FAR = 64
"""Steps to look around a softmax."""
_TALKING = 1
"""Learned layers between a product and the softmax, where heads talk to each other."""
_BETWEEN = frozenset(("Concat", "Softcap", "BiasSoftmax", "LogSoftmax"))


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention: which tokens look at which."""

    steps: tuple[Step, ...]
    """What multiplies queries with keys; the one operator where there is one."""
    mix: Step
    """What multiplies the weights with the values; the same operator where there is one."""
    softmax: Step

    @property
    def operands(self) -> Iterator[Value]:
        """Queries and keys."""
        if self.mix.op in ops.ATTENTIONS:
            yield from self.mix.sources[:2]
            return
        for step in self.steps:
            yield from step.sources


def attentions(flow: Flow) -> dict[Step, Attention]:
    """Give every attention of a model, by the step that mixes the values."""
    found: dict[Step, Attention] = {}
    for step in flow.steps:
        if step.op in ops.ATTENTIONS and step.role in {Role.PRODUCT, Role.LEARNED}:
            found[step] = Attention((step,), step, step)
        elif _is_softmax(step):
            attention = _around(step, flow)
            if attention is not None:
                found[attention.mix] = attention
    return found


def _is_softmax(step: Step) -> bool:
    if step.op in {"Softmax", "BiasSoftmax", "QLinearSoftmax"}:
        return True
    if step.op != "Div" or step.role is not Role.OTHER or len(step.sources) != 2:
        return False
    exponential, total = (source.origin.maker for source in step.sources)
    if exponential is None or total is None or exponential.op != "Exp":
        return False
    return total.op == "ReduceSum" and total.sources[0].origin.maker is exponential


def _around(softmax: Step, flow: Flow) -> Attention | None:
    mix = _mix(softmax)
    if mix is None:
        return None
    scores = tuple(_scores(softmax, flow))
    return Attention(scores, mix, softmax) if scores else None


def _mix(softmax: Step) -> Step | None:
    """Give the product of the weights with the values, downstream of the softmax."""
    pending = [(softmax.results[0], 0)]
    seen: set[Value] = set()
    while pending and len(seen) < _FAR:
        value, learned = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for step in value.readers:
            if step.role is Role.PRODUCT and step.op not in ops.ATTENTIONS:
                return step
            crossed = learned + (step.role is Role.LEARNED)
            if _is_between(step) or (step.role is Role.LEARNED and crossed <= _TALKING):
                pending.extend((result, crossed) for result in step.results[:1])
    return None


def _scores(softmax: Step, flow: Flow) -> Iterator[Step]:
    """Give the products of queries with keys, upstream of the softmax."""
    pending = [(source, 0) for source in softmax.sources]
    seen: set[Value] = set()
    while pending and len(seen) < _FAR:
        value, learned = pending.pop()
        step = value.maker
        if value in seen or step is None:
            continue
        seen.add(value)
        if step.role is Role.PRODUCT or _has_learned_queries(step, flow):
            yield step
            continue
        crossed = learned + (step.role is Role.LEARNED)
        if _is_between(step) or (step.role is Role.LEARNED and crossed <= _TALKING):
            pending.extend((source, crossed) for source in step.sources)


def _is_between(step: Step) -> bool:
    if step.role in {Role.PASS, Role.SUM}:
        return True
    return step.role is Role.OTHER and (
        step.op in ops.POINTWISE
        or step.op in _BETWEEN
        or step.op in {"ReduceMax", "GatherElements"}
    )


def _has_learned_queries(step: Step, flow: Flow) -> bool:
    """Whether it multiplies queries that are written in the file with keys that are data."""
    if step.role is not Role.LEARNED or step.op not in ops.PRODUCTS:
        return False
    return flow.value(step.node.inputs[0]).level is Level.KNOWN
