"""Streams that are trained through each other: a decoder with the encoder that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.steps import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context.residual import Residual
    from normlint.context.steps import Value
    from normlint.context.streams import Stream
    from normlint.context.structure import Structure

_FAR = 32


def stacks(streams: Sequence[Stream], structure: Structure) -> tuple[tuple[Stream, ...], ...]:
    """Group the streams: a decoder with its encoder, every other stream alone."""
    stream_of = {add: stream for stream in streams for add in stream.adds}
    groups: dict[Stream, list[Stream]] = {}
    for stream in streams:
        memory = _memory(stream, structure)
        encoder = None if memory is None else stream_of.get(memory)
        group = groups.get(encoder) if encoder is not None and encoder is not stream else None
        if group is None:
            group = []
        group.append(stream)
        groups[stream] = group
    distinct = {id(group): tuple(group) for group in groups.values()}
    return tuple(distinct.values())


def _memory(stream: Stream, structure: Structure) -> Residual | None:
    """Give the last addition of the stream that the first cross-attention reads."""
    crossing = next((add for add in stream.adds if add.branch.crosses), None)
    if crossing is None or crossing.branch.attention is None:
        return None
    own = {result for step in crossing.branch.steps for result in step.results}
    pending = [value for value in crossing.branch.attention.operands if value not in own]
    for _ in range(_FAR):
        if not pending:
            return None
        value: Value = pending.pop(0).origin
        found = structure.residuals.of(value)
        if found is not None:
            return found
        if value.maker is not None and value.maker.role in {Role.LEARNED, Role.NORM, Role.SUM}:
            pending.extend(value.maker.sources)
    return None
