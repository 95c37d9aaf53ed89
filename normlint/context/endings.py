"""What reads the last sum of a residual stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.steps import Role

if TYPE_CHECKING:
    from normlint.context.steps import Step, Value
    from normlint.context.streams import Stream
    from normlint.context.structure import Structure

_FAR = 64


def ends_bare(stream: Stream, structure: Structure) -> bool:
    """Whether a last sum reaches a linear head, or leaves its graph, with no norm on the way.

    False where it is one of several stages or feeds another stream.
    """
    inside = {step for chain in structure.chains for add in chain for step in add.branch.steps}
    starts = {chain[0].root.origin.maker for chain in structure.chains}
    bare = False
    pending: list[Value] = [stream.adds[-1].total]
    seen: set[Value] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if len(seen) > _FAR:
            return False
        bare |= value.tensor is not None and value.tensor.is_output
        for step in value.readers:
            if step.role is Role.NORM or step in inside:
                return False
            if step.role is Role.LEARNED:
                if _starts_stage(step, starts):
                    return False
                bare = True
            elif _is_between(step):
                pending.extend(step.results[:1])
            else:
                return False
    return bare


def _starts_stage(step: Step, starts: set[Step | None]) -> bool:
    """Whether a learned layer makes the root of another stream, norms and embeddings between."""
    pending = [step]
    for _ in range(_FAR):
        if not pending:
            return False
        current = pending.pop()
        if current in starts:
            return True
        pending.extend(
            reader
            for result in current.results
            for reader in result.readers
            if reader.role in {Role.PASS, Role.NORM, Role.SUM}
        )
    return False


def _is_between(step: Step) -> bool:
    if step.role is Role.PASS:
        return True
    return step.role is Role.OTHER and (step.op in ops.POOLS or step.op in ops.POINTWISE)
