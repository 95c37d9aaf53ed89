"""What stands around a BatchNorm in a model of sequences: convolutions, attention, recurrences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.steps import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.context import Context
    from normlint.context.steps import Step, Value
    from normlint.context.structure import Structure
    from normlint.normalization import Normalization

_FAR = 64
_BETWEEN = frozenset(("Split", "Concat", "MaxPool", "AveragePool", "LpPool"))
_LINEAR = frozenset((*ops.PRODUCTS, *ops.RECURRENCES))


def remark(norm: Normalization, context: Context) -> str:
    """Say why a BatchNorm in a model of sequences is usual; empty where it is not."""
    if not is_batch_norm(norm) or norm not in context.structure.step_of:
        return ""
    if not context.sequence.is_sequence:
        return ""
    step = context.structure.step_of[norm]
    if next_to_convolution(step):
        return "next to a convolution, which is usual in a model of sequences"
    if not is_on_sequence(step, context.structure):
        return "behind a pool or apart from the tokens"
    return ""


def is_batch_norm(norm: Normalization) -> bool:
    """Whether a BatchNormalization is in it, whatever it computes."""
    return any(node.op == "BatchNormalization" for node in norm.nodes)


def next_to_convolution(norm: Step) -> bool:
    """Whether the norm reads convolutions, or one reads it, activations and pools between.

    Of a sum, all operands must come from convolutions: the sum of a residual network.
    """
    if any(step.op in ops.CONVOLUTIONS for step in _ahead(norm)):
        return True
    nearest = list(_back(norm))
    if any(step.op in ops.CONVOLUTIONS for step in nearest):
        return True
    summed = [step for step in nearest if step.role is Role.SUM]
    return len(summed) == len(nearest) > 0 and all(_sums_convolutions(step) for step in summed)


def _sums_convolutions(total: Step) -> bool:
    """Whether a sum is one of convolutions, norms and further sums between."""
    pending = list(total.sources)
    for _ in range(_FAR):
        if not pending:
            return True
        step = pending.pop().maker
        if step is None:
            return False
        if step.role in {Role.SUM, Role.NORM} or _is_between(step):
            pending.extend(step.sources)
        elif step.op not in ops.CONVOLUTIONS:
            return False
    return True


def is_on_sequence(norm: Step, structure: Structure) -> bool:
    """Whether attention or a recurrence stands before or behind a norm, with no pooling between."""
    return _reaches(norm, structure, ahead=False) or _reaches(norm, structure, ahead=True)


def feature_axis(norm: Step) -> int | None:
    """Give the axis, from the front, along which the input of a norm holds its features.

    It is where the linear layer in front puts them, moved as the layout operators between move it;
    None where that cannot be told.
    """
    path: list[Step] = []
    value = norm.sources[0]
    for _ in range(_FAR):
        step = value.maker
        if step is None:
            return None
        if step.op in ops.CONVOLUTIONS:
            axis: int | None = 1
            break
        if step.op in _LINEAR or step.role is Role.LOOKUP:
            rank = None if step.results[0].tensor is None else step.results[0].tensor.rank
            axis = None if rank is None else rank - 1
            break
        if step.role is Role.OTHER and step.op not in ops.POINTWISE:
            return None
        path.append(step)
        value = step.sources[-1] if step.role is Role.SUM else step.sources[0]
    else:
        return None
    for step in reversed(path):
        if axis is None:
            return None
        axis = _moved(step, axis)
    return axis


def _moved(step: Step, axis: int) -> int | None:
    node = step.node
    if step.role is not Role.PASS or node.op not in {
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
    }:
        return axis
    before, after = node.inputs[0].shape, node.y.shape
    if before is None or after is None:
        return None
    if node.op == "Transpose":
        order = node.attrs.get("perm") or list(reversed(range(len(before))))
        return order.index(axis) if axis in order else None
    if axis >= len(before):
        return None
    behind = len(before) - 1 - axis
    moved = len(after) - 1 - behind
    same = moved >= 0 and before[axis:] == after[moved:] and before[axis] is not None
    return moved if same else None


def _back(norm: Step) -> Iterator[Step]:
    """Give the nearest steps upstream that neither pass on nor activate."""
    pending = [norm.sources[0]]
    for _ in range(_FAR):
        if not pending:
            return
        step = pending.pop().maker
        if step is None:
            continue
        if _is_between(step):
            pending.extend(step.sources)
        else:
            yield step


def _ahead(norm: Step) -> Iterator[Step]:
    pending = list(norm.results[0].readers)
    for _ in range(_FAR):
        if not pending:
            return
        step = pending.pop()
        if _is_between(step):
            pending.extend(reader for result in step.results for reader in result.readers)
        else:
            yield step


def _is_between(step: Step) -> bool:
    if step.role is Role.PASS:
        return True
    return step.role is Role.OTHER and (step.op in ops.POINTWISE or step.op in _BETWEEN)


def _reaches(norm: Step, structure: Structure, *, ahead: bool) -> bool:
    seen: set[Step] = {norm}
    pending = list(_nearby(norm, ahead=ahead))
    while pending and len(seen) < _FAR * 4:
        step = pending.pop()
        if step in seen:
            continue
        seen.add(step)
        if step.op in ops.RECURRENCES or step in structure.attentions:
            return True
        if step.op in ops.POOLS or step.op in ops.CONVOLUTIONS or _drops_axis(step):
            continue
        pending.extend(_nearby(step, ahead=ahead))
    return False


def _drops_axis(step: Step) -> bool:
    """Whether it picks one token."""
    if step.op != "Gather" or step.role is Role.LOOKUP:
        return False
    indices = step.node.inputs[1]
    return indices.rank == 0


def _nearby(step: Step, *, ahead: bool) -> Iterator[Step]:
    values: list[Value] = step.results if ahead else step.sources
    for value in values:
        if ahead:
            yield from value.readers
        elif value.maker is not None:
            yield value.maker
