"""What a residual branch does to the tensor that it reads."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.steps import Role
from normlint.deferred import dataclass
from normlint.normalization import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from normlint.context.attention import Attention
    from normlint.context.steps import Step, Value
    from normlint.normalization import Normalization


class _State(IntEnum):
    """How far a value of a branch is from the root."""

    RAW = 0
    NORMED = 1
    LEARNED = 2


@dataclass(frozen=True, eq=False)
class Branch:
    """The steps between a root and the sum."""

    steps: tuple[Step, ...]
    """Those that depend on the root, in order."""
    entries: tuple[Normalization, ...] = ()
    """Norms that read the root in front of every learned layer."""
    exits: tuple[Normalization, ...] = ()
    """Norms whose output is added."""
    inner: tuple[Normalization, ...] = ()
    """All other norms."""
    reads_norms_only: bool = False
    """Whether every first learned layer reads the root through a norm."""
    learned: int = 0
    """Number of learned layers, and of what mixes tokens instead."""
    attention: Attention | None = None
    crosses: bool = False
    """Whether the keys of its attention come from elsewhere."""
    sides: int = 1
    """Number of branches that are added to each other first: attention and others, side by side."""

    @property
    def writer(self) -> Step | None:
        """The last learned layer, which writes to the stream."""
        return next((step for step in reversed(self.steps) if step.role is Role.LEARNED), None)


def follow(
    roots: Iterable[Value],
    steps: Sequence[Step],
    ends: Sequence[Value],
    attentions: dict[Step, Attention],
) -> Branch | None:
    """Follow a root, or the values that it is passed on as, through a branch to its ends.

    `steps` are in order, and may hold some that do not depend on the root. None where nothing
    learned lies on the way, or no end depends on the root.
    """
    states = dict.fromkeys(roots, _State.RAW)
    taken: list[Step] = []
    entries: list[Normalization] = []
    norms: list[Normalization] = []
    reads_raw = False
    for step in steps:
        known = [states[source] for source in step.sources if source in states]
        if not known:
            continue
        state = min(known)
        taken.append(step)
        if step.norm is not None:
            norms.append(step.norm)
        if _is_work(step):
            reads_raw |= state is _State.RAW
            state = _State.LEARNED
        elif _is_entry(step) and states.get(step.sources[0]) is _State.RAW:
            entries.append(_norm(step))
            state = _State.NORMED
        states.update(dict.fromkeys(step.results, state))
    learned = sum(_is_work(step) for step in taken)
    if not learned or not any(end in states for end in ends):
        return None
    exits = _exits(ends, states)
    outer = {*entries, *exits}
    attention = next((attentions[step] for step in taken if step in attentions), None)
    return Branch(
        steps=tuple(taken),
        entries=tuple(entries),
        exits=exits,
        inner=tuple(norm for norm in norms if norm not in outer),
        reads_norms_only=not reads_raw and bool(entries),
        learned=learned,
        attention=attention,
        crosses=attention is not None and _crosses(attention, states),
        sides=_sides(ends, states, taken, attentions),
    )


def _is_work(step: Step) -> bool:
    return step.role is Role.LEARNED or step.op in ops.MIXERS


def _is_entry(step: Step) -> bool:
    return step.norm is not None and step.norm.kind is not Kind.L2


def _norm(step: Step) -> Normalization:
    assert step.norm is not None  # noqa: S101 - a step of this role has one
    return step.norm


def _exits(ends: Sequence[Value], states: dict[Value, _State]) -> tuple[Normalization, ...]:
    makers = [end.origin.maker for end in ends if end.origin in states]
    return tuple(
        maker.norm for maker in makers if maker is not None and maker.norm and _is_entry(maker)
    )


def _crosses(attention: Attention, states: dict[Value, _State]) -> bool:
    operands = list(attention.operands)
    return len(operands) > 1 and any(operand not in states for operand in operands)


def _sides(
    ends: Sequence[Value],
    states: dict[Value, _State],
    taken: Sequence[Step],
    attentions: dict[Step, Attention],
) -> int:
    """Count attention and another branch that are added to each other before they are added."""
    arms = [end for end in ends if end in states]
    if len(arms) == 1:
        maker = arms[0].origin.maker
        if maker is None or maker.role is not Role.SUM:
            return 1
        arms = [source for source in maker.sources if source in states]
    if len(arms) < 2 or not any(step in attentions for step in taken):
        return 1
    behind = {result for step in taken if step in attentions for result in step.results}
    for step in taken:
        if any(source in behind for source in step.sources):
            behind.update(step.results)
    with_attention = sum(arm in behind for arm in arms)
    return len(arms) if 0 < with_attention < len(arms) else 1
