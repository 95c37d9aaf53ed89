"""Residual additions: a sum of a tensor and of what a branch of learned layers makes of it.

R = u + v is one where u, walked back through steps that pass it on, is a root r, v depends on r,
and a learned layer lies between. The walk through a branch never goes in front of its root, so that
the walks of a stack of layers do not overlap.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.branch import Branch, follow
from normlint.context.steps import Level, Role
from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from normlint.context.attention import Attention
    from normlint.context.flow import Flow
    from normlint.context.steps import Step, Value
    from normlint.normalization import Normalization

_LONGEST_CHAIN = 64
_ADDITIONS_BEFORE = 2
_LONGEST_WALK = 1 << 16
_SHORT_WALK = 256
_WALKS_PER_STEP = 32


@dataclass(eq=False)
class Residual:
    """A residual addition."""

    step: Step
    root: Value
    """What the skip path carries, and the branch reads."""
    skip: tuple[Value, ...]
    """The values of the skip path, from the operand of the sum back to the root."""
    branch: Branch
    parallel: Residual | None = None
    """The addition in front whose root this one shares: two branches side by side."""
    projected: bool = False
    """Whether a convolution stands in the skip path."""
    before: Residual | None = None
    """The addition of the same stream in front."""
    link: tuple[Step, ...] = ()
    """What stands between the sum in front and the root: norms and activations."""
    after: list[Residual] = field(default_factory=list)
    """Additions that go on from this one's sum."""

    @property
    def total(self) -> Value:
        """The sum."""
        return self.step.results[0]


class Residuals:
    """All residual additions of a model, in order."""

    def __init__(self, flow: Flow, attentions: dict[Step, Attention]) -> None:
        self.flow = flow
        self.attentions = attentions
        self.found: dict[Step, Residual] = {}
        self.visited = 0
        """Steps that were walked over, in all: what it cost."""
        self._budget = _WALKS_PER_STEP * len(flow.steps) + _LONGEST_WALK
        for step in flow.steps:
            residual = self._read(step)
            if residual is not None:
                self.found[step] = residual

    def of(self, value: Value) -> Residual | None:
        """Give the addition whose sum a value is."""
        return None if value.maker is None else self.found.get(value.maker)

    def _read(self, step: Step) -> Residual | None:
        if step.role is not Role.SUM:
            return None
        operands = list(dict.fromkeys(step.sources))
        if operands[0].level is not Level.DATA:
            return self._on_learned_queries(step, operands)
        return (
            self._plain(step, operands)
            or self._parallel(step, operands)
            or self._projected(step, operands)
            or self._older(step, operands)
            or self._joined(step, operands)
        )

    def _plain(self, step: Step, operands: list[Value]) -> Residual | None:
        for skip in operands:
            others = [value for value in operands if value is not skip]
            found = self._with(step, _chain(skip), others)
            if found is not None:
                return found
        return None

    def _parallel(self, step: Step, operands: list[Value]) -> Residual | None:
        """Read (r + f) + g where g depends on r alone."""
        for skip in operands:
            inner = self.of(skip.origin)
            if inner is None or inner.projected:
                continue
            others = [value for value in operands if value is not skip]
            found = self._with(step, _chain(skip) + list(inner.skip), others)
            if found is not None and (found.branch.attention is None) != (
                inner.branch.attention is None
            ):
                found.parallel = inner
                return found
        return None

    def _projected(self, step: Step, operands: list[Value]) -> Residual | None:
        """Read the first block of a stage, where a convolution fits the skip path to the branch."""
        for skip in operands:
            source = _before_convolution(skip)
            if source is None:
                continue
            others = [value for value in operands if value is not skip]
            found = self._with(step, _chain(source), others)
            if found is not None and found.branch.learned > 1:
                found.projected = True
                return found
        return None

    def _older(self, step: Step, operands: list[Value]) -> Residual | None:
        """Read x + f(w) where w is what the stream was up to two additions before x."""
        for skip in operands:
            roots = list(self._roots_before(skip))
            if not roots:
                continue
            others = [value for value in operands if value is not skip]
            found = self._with(step, roots, others)
            if found is not None:
                chain = _chain(skip)
                found.root, found.skip = chain[-1], tuple(chain)
                return found
        return None

    def _joined(self, step: Step, operands: list[Value]) -> Residual | None:
        """Read [c, t] + f([c', t]): tokens that were put aside are joined to the others again."""
        for skip in operands:
            join = skip.origin.maker
            if join is None or join.op != "Concat":
                continue
            parts = [value for source in join.sources for value in _chain(source)]
            others = [value for value in operands if value is not skip]
            found = self._with(step, parts, others)
            if found is not None:
                chain = _chain(skip)
                found.root, found.skip = chain[-1], tuple(chain)
                return found
        return None

    def _roots_before(self, value: Value) -> Iterator[Value]:
        for _ in range(_ADDITIONS_BEFORE):
            maker = value.origin.maker
            normed = maker is not None and maker.role is Role.NORM
            found = self.of(
                maker.sources[0].origin if maker is not None and normed else value.origin
            )
            if found is None:
                return
            value = found.root
            yield value

    def _with(self, step: Step, chain: list[Value], others: list[Value]) -> Residual | None:
        places = {value: index for index, value in reversed(list(enumerate(chain)))}
        floor = min(_position(value) for value in chain)
        steps, hits = self._walk(others, places, floor)
        if not hits:
            return None
        nearest = min(hits)
        roots = [chain[hit] for hit in hits]
        branch = follow(roots, steps, others, self.attentions)
        if branch is None:
            return None
        return Residual(step, chain[nearest], tuple(chain[: nearest + 1]), branch)

    def _walk(
        self, ends: Iterable[Value], places: dict[Value, int], floor: int
    ) -> tuple[list[Step], set[int]]:
        """Walk back from the ends of a branch to the values of the skip path."""
        most = _LONGEST_WALK if self.visited < self._budget else _SHORT_WALK
        pending = list(ends)
        steps: set[Step] = set()
        hits: set[int] = set()
        while pending and len(steps) < most:
            value = pending.pop()
            if value in places:
                hits.add(places[value])
                continue
            step = value.maker
            if step is None or step.position <= floor or step in steps:
                continue
            steps.add(step)
            pending.extend(step.sources)
        self.visited += len(steps)
        return sorted(steps, key=lambda step: step.position), hits

    def _on_learned_queries(self, step: Step, operands: list[Value]) -> Residual | None:
        """Read q + attention(q, x) where the queries q are written in the file."""
        root, end = operands
        maker = end.origin.maker
        mix = maker.sources[0].base.maker if maker is not None and maker.sources else None
        attention = None if mix is None else self.attentions.get(mix)
        if attention is None:
            return None
        of_queries = [reader.norm for reader in root.readers if reader.norm is not None]
        entries = (*of_queries, *_norms_of_table(end, root))
        branch = Branch(
            (), entries, attention=attention, crosses=True, reads_norms_only=bool(entries)
        )
        return Residual(step, root, (root,), branch)


def _position(value: Value) -> int:
    return -1 if value.maker is None else value.maker.position


def _chain(value: Value) -> list[Value]:
    """Give the values that a value is passed on from, nearest first."""
    chain = [value]
    while len(chain) < _LONGEST_CHAIN:
        step = chain[-1].maker
        if step is None or step.role is not Role.PASS:
            break
        chain.append(step.sources[0])
    return chain


def _before_convolution(value: Value) -> Value | None:
    """Give what a single convolution in the skip path reads."""
    convolutions = 0
    for _ in range(_LONGEST_CHAIN):
        value = value.origin
        step = value.maker
        if step is None or not step.sources:
            break
        if step.op in ops.CONVOLUTIONS and not convolutions:
            convolutions += 1
        elif step.role is not Role.NORM and step.op not in ops.POOLS:
            break
        value = step.sources[0]
    return value if convolutions else None


def _norms_of_table(end: Value, table: Value) -> Iterator[Normalization]:
    """Give the norms in a branch that read a table of the file, joined to data."""
    pending = [end]
    seen: set[Step] = set()
    while pending and len(seen) < _SHORT_WALK:
        step = pending.pop().maker
        if step is None or step in seen:
            continue
        seen.add(step)
        if step.norm is None:
            pending.extend(step.sources)
        elif any(
            value.maker is not None and table.tensor in value.maker.node.inputs
            for value in _chain(step.sources[0])
        ):
            yield step.norm
