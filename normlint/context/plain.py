"""What numpy computes as ONNX defines it: small constants, without onnx's reference evaluator.

Importing that one takes longer than everything else that a check of a small model does, and nearly
all that exporters compute from constants is one of these few operators on a few numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.graph import Node

    Array = np.ndarray[Any, Any]
    Operation = Callable[[Node, list[Array]], Array | None]

_LARGEST = 1024
"""Elements of an operand; two such make a million at most."""


def evaluated_plainly(node: Node, inputs: list[Array]) -> Array | None:
    """Give the result of a standard node of one output, None where it is not as plain as that."""
    operation = _OPERATIONS.get(node.op)
    if operation is None or len(inputs) != len(node.inputs) or len(node.outputs) != 1:
        return None
    if not inputs or any(v.size > _LARGEST or v.dtype.kind not in "iuf" for v in inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            result = operation(node, inputs)
    except (LookupError, OverflowError, TypeError, ValueError):
        return None
    return None if result is None else np.asarray(result)


def _of_pair(function: Callable[[Array, Array], Array], kinds: str) -> Operation:
    """Give an elementwise operator of two operands of one type; attributes mean an old opset."""

    def operation(node: Node, inputs: list[Array]) -> Array | None:
        a, b = inputs
        if node.attrs or a.dtype != b.dtype or a.dtype.kind not in kinds:
            return None
        return function(a, b)

    return operation


def _sqrt(_: Node, inputs: list[Array]) -> Array | None:
    [x] = inputs
    return np.sqrt(x) if x.dtype.kind == "f" else None


def _identity(_: Node, inputs: list[Array]) -> Array:
    [x] = inputs
    return x


def _concat(node: Node, inputs: list[Array]) -> Array | None:
    if len({values.dtype for values in inputs}) != 1:
        return None
    return np.concatenate(inputs, axis=node.attrs["axis"])


def _gather(node: Node, inputs: list[Array]) -> Array:
    data, places = inputs
    return np.take(data, places, axis=node.attrs.get("axis", 0))


def _unsqueeze(node: Node, inputs: list[Array]) -> Array:
    axes = node.attrs["axes"] if len(inputs) == 1 else inputs[1].reshape(-1).tolist()
    return np.expand_dims(inputs[0], tuple(axes))


def _slice(_: Node, inputs: list[Array]) -> Array | None:
    """Slice as numpy does; a negative step means another thing at the ends."""
    data, starts, ends, *rest = inputs
    count = starts.size
    axes = rest[0].tolist() if rest else list(range(count))
    steps = rest[1].tolist() if len(rest) > 1 else [1] * count
    if min(steps, default=1) < 1 or len({axis % data.ndim for axis in axes}) != count:
        return None
    wanted = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts.tolist(), ends.tolist(), steps, strict=True):
        wanted[axis] = slice(start, end, step)
    return data[tuple(wanted)].copy()


_OPERATIONS: dict[str, Operation] = {
    "Add": _of_pair(np.add, "iuf"),
    "Sub": _of_pair(np.subtract, "iuf"),
    "Mul": _of_pair(np.multiply, "iuf"),
    "Div": _of_pair(np.divide, "f"),
    "Pow": _of_pair(np.power, "f"),
    "Sqrt": _sqrt,
    "Identity": _identity,
    "Concat": _concat,
    "Gather": _gather,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
}
