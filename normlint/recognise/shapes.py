"""Shapes that inference left open, as far as the operators around tell them.

Shape inference stops at operators of other domains, and at every Reshape whose operand is computed,
though how many extents that operand holds, and what follows from the weights, is often known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from normlint.recognise.extents import reshaped

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.constants import Constants
    from normlint.graph import Node, Shape, Tensor

    Ask: TypeAlias = "Callable[[Tensor], Shape | None]"

_DEEPEST = 8
"""Shapes that are asked for while others are: a Reshape reads extents of other tensors."""
_AS_FIRST = frozenset(
    [
        "Identity",
        "Dropout",
        "Cast",
        "CastLike",
        "Clip",
        "Softmax",
        "LogSoftmax",
        "Sqrt",
        "Exp",
        "Relu",
        "Gelu",
        "FastGelu",
        "QuickGelu",
        "BiasGelu",
        "Erf",
        "Tanh",
        "Sigmoid",
        "HardSwish",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Selu",
        "Softplus",
        "HardSigmoid",
        "Mish",
        "Abs",
        "Neg",
        "Reciprocal",
        "LayerNormalization",
        "InstanceNormalization",
        "BatchNormalization",
        "GroupNormalization",
        "RMSNormalization",
        "SimplifiedLayerNormalization",
        "LpNormalization",
        "QuantizeLinear",
        "DequantizeLinear",
        "SkipLayerNormalization",
        "GroupNorm",
        "Pow",
        "Sin",
        "SkipSimplifiedLayerNormalization",
        "Cos",
        "Log",
        "Not",
        "Floor",
        "Trilu",
        "CumSum",
    ]
)
_ELEMENTWISE = frozenset(("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min", "Where"))
_OF_SEVERAL = frozenset(("MatMul", "FusedMatMul", "Gemm", "Concat", "Gather"))
_CONVOLUTIONS = frozenset(("Conv", "FusedConv", "NhwcFusedConv"))
_REDUCTIONS = frozenset(
    ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
)
_POOLS = frozenset(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))


class Shapes:
    """Shapes of tensors, in which an extent that is not known is None."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self._known: dict[Tensor, Shape | None] = {}
        self._nested = 0

    def of(self, tensor: Tensor) -> Shape | None:
        """Give the shape of a tensor; None where not even its rank is known."""
        if tensor.shape is not None or tensor in self._known or self._nested >= _DEEPEST:
            return self._ask(tensor)
        self._nested += 1
        try:
            self._follow(tensor)
        finally:
            self._nested -= 1
        return self._ask(tensor)

    def _follow(self, tensor: Tensor) -> None:
        """Find the shapes of a tensor and of those that it is computed from."""
        pending = [tensor]
        opened: set[Tensor] = set()
        while pending:
            current = pending[-1]
            node = current.producer
            if node is None or current.shape is not None or current in self._known:
                pending.pop()
            elif current in opened:
                self._known[current] = self._made(node, current)
                pending.pop()
            else:
                opened.add(current)
                pending.extend(source for source in _needed(node) if source not in opened)

    def _ask(self, tensor: Tensor) -> Shape | None:
        return tensor.shape if tensor.shape is not None else self._known.get(tensor)

    def _made(self, node: Node, tensor: Tensor) -> Shape | None:
        if not node.inputs or (node.outputs[0] is not tensor and node.op != "Split"):
            return None
        if node.op in _AS_FIRST:
            return self._ask(node.inputs[0])
        if node.op in _ELEMENTWISE:
            return _broadcast([self._ask(source) for source in node.inputs])
        if node.op == "Reshape" and len(node.inputs) > 1:
            return self._reshaped(node)
        maker = _MAKERS.get(node.op)
        return None if maker is None else maker(node, self._ask, self.constants)

    def _reshaped(self, node: Node) -> Shape | None:
        made = reshaped(node, self.constants)
        if made is not None:
            return tuple(extent if isinstance(extent, int | str) else None for extent in made)
        count = node.inputs[1].shape
        if count is None or len(count) != 1 or not isinstance(count[0], int):
            return None
        return (None,) * count[0]


def _needed(node: Node) -> list[Tensor]:
    if node.op in _ELEMENTWISE or node.op in _OF_SEVERAL:
        return list(node.inputs)
    return list(node.inputs[:1])


def _broadcast(shapes: list[Shape | None]) -> Shape | None:
    """Broadcast; where one operand is not known, nothing is."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes) or not known:
        return None
    rank = max(len(shape) for shape in known)
    result: list[int | str | None] = []
    for back in range(-rank, 0):
        extents = {shape[back] for shape in known if len(shape) >= -back} - {1}
        numbers = [extent for extent in extents if isinstance(extent, int)]
        if len(extents) == 1:
            result.append(extents.pop())
        else:  # whatever the others are, they are 1 or the same number
            result.append(numbers[0] if numbers else None if extents else 1)
    return tuple(result)


def _multiplied(node: Node, ask: Ask, _: Constants) -> Shape | None:
    left, right = ask(node.inputs[0]), ask(node.inputs[1])
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    if node.attrs.get("transA") or node.attrs.get("transB") or node.attrs.get("transBatchA"):
        return (None,) * max(len(left), len(right))
    batch = _broadcast([left[:-2], right[:-2]])
    return (*(batch or ()), left[-2], right[-1])


def _convolved(node: Node, ask: Ask, _: Constants) -> Shape | None:
    weight = ask(node.inputs[1])
    if weight is None or len(weight) < 3:
        return None
    before = ask(node.inputs[0])
    batch = before[0] if before else None
    return (batch, weight[0], *([None] * (len(weight) - 2)))


def _pooled(node: Node, ask: Ask, _: Constants) -> Shape | None:
    before = ask(node.inputs[0])
    if before is None or len(before) < 3:
        return None
    extent = 1 if node.op.startswith("Global") else None
    return (*before[:2], *([extent] * (len(before) - 2)))


def _transposed(node: Node, ask: Ask, _: Constants) -> Shape | None:
    before = ask(node.inputs[0])
    order = node.attrs.get("perm")
    if before is None:
        return None if order is None else (None,) * len(order)
    if order is None:
        return tuple(reversed(before))
    is_order = sorted(order) == list(range(len(before)))
    return tuple(before[axis] for axis in order) if is_order else None


def _joined(node: Node, ask: Ask, _: Constants) -> Shape | None:
    known = [shape for source in node.inputs if (shape := ask(source)) is not None]
    return (None,) * len(known[0]) if known else None


def _same_rank(node: Node, ask: Ask, _: Constants) -> Shape | None:
    before = ask(node.inputs[0])
    return None if before is None else (None,) * len(before)


def _axes(node: Node, rank: int, constants: Constants) -> set[int] | None:
    axes = node.attrs.get("axes")
    if axes is None and node.input(1) is not None:
        axes = constants.integers(node.inputs[1])
    return None if axes is None else {axis % rank for axis in axes if rank}


def _reduced(node: Node, ask: Ask, constants: Constants) -> Shape | None:
    before = ask(node.inputs[0])
    if before is None:
        return None
    axes = _axes(node, len(before), constants)
    if not node.attrs.get("keepdims", 1):
        return None if axes is None else tuple(e for a, e in enumerate(before) if a not in axes)
    if axes is None:
        return (None,) * len(before)
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(before))


def _unsqueezed(node: Node, ask: Ask, constants: Constants) -> Shape | None:
    before = ask(node.inputs[0])
    given = node.attrs.get("axes") or constants.integers(node.input(1))
    if before is None or not given:
        return None
    extents = list(before)
    for axis in sorted(axis % (len(before) + len(given)) for axis in given):
        extents.insert(axis, 1)
    return tuple(extents)


def _squeezed(node: Node, ask: Ask, constants: Constants) -> Shape | None:
    before = ask(node.inputs[0])
    axes = None if before is None else _axes(node, len(before), constants)
    if before is None or axes is None:
        return None
    return tuple(extent for axis, extent in enumerate(before) if axis not in axes)


def _gathered(node: Node, ask: Ask, _: Constants) -> Shape | None:
    data, indices = ask(node.inputs[0]), ask(node.inputs[1])
    if data is None or indices is None or not data:
        return None
    axis = node.attrs.get("axis", 0) % len(data)
    return (*data[:axis], *indices, *data[axis + 1 :])


_MAKERS: dict[str, Callable[[Node, Ask, Constants], Shape | None]] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolved),
    **dict.fromkeys(_POOLS, _pooled),
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm"), _multiplied),
    **dict.fromkeys(("Slice", "Pad", "Resize", "Tile", "GatherElements"), _same_rank),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "Concat": _joined,
    "Gather": _gathered,
    "Split": _same_rank,
    "Squeeze": _squeezed,
    "Unsqueeze": _unsqueezed,
    "Transpose": _transposed,
}
