"""Whether the new constants of a rewrite fit their types, where nothing else is proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.rule import Computed, NewNode, OutOfRange, Reason, Replace
from normlint.verify.region import Failure

if TYPE_CHECKING:
    from normlint.rule import Rewrite


def misfit(rewrite: Rewrite) -> Failure | None:
    """Say which new constant its type cannot hold; None where they all fit."""
    pending = [edit.by for edit in rewrite.edits if isinstance(edit, Replace)]
    seen: set[NewNode] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        pending.extend(operand for operand in node.inputs if isinstance(operand, NewNode))
        try:
            for operand in node.inputs:
                if isinstance(operand, Computed):
                    operand.compute()
        except OutOfRange as fault:
            return Failure(str(fault), moved=False, reason=Reason.WOULD_OVERFLOW)
    return None
