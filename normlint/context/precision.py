"""In which types norms compute, and what these types cannot hold.

Judged from the file alone: ONNX Runtime's CPU computes half precision in float and hides what other
backends do.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.context.epsilons import is_customary, was_scaled
from normlint.context.quantized import has_statistics
from normlint.deferred import dataclass
from normlint.normalization import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.context.constants import Constants
    from normlint.context.scaled_streams import ScaledStreams
    from normlint.graph import Node, Tensor
    from normlint.measure import Measured
    from normlint.normalization import Normalization

LARGEST_HALF = 65504.0
HEADROOM = 16.0
"""A value that is more than the largest number over this is near it."""
LARGEST_ROOT = math.sqrt(LARGEST_HALF)
"""The magnitude above which a square overflows float16."""
_LEAST_NORMAL: dict[int, float] = {
    TensorProto.FLOAT16: 2.0**-14,
    TensorProto.BFLOAT16: 2.0**-126,
    TensorProto.FLOAT: 2.0**-126,
    TensorProto.DOUBLE: 2.0**-1022,
}
_HALVES = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))
_TYPE_LEFT_OPEN = frozenset(("InstanceNormalization", "GroupNormalization"))
_GUARDS = frozenset(("Where", "Max", "Clip"))
_SUMS = frozenset(("ReduceSum", "ReduceSumSquare", "ReduceL2"))
_LAYOUT = frozenset(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Cast", "Flatten"))
_ADDS = _LAYOUT | {"Add", "Sum", "Gather"}
_LARGEST_READ = 1 << 22
_LINEAR = frozenset(("MatMul", "Gemm", "Conv"))
_FARTHEST = 24
_QUARTER = 0.25
"""The largest factor that is taken for a rescaling: a half stands at the end of GELU."""


@dataclass(frozen=True, eq=False)
class HalfStatistics:
    """A norm whose statistics are computed in half precision."""

    norm: Normalization
    dtype: int
    """FLOAT16 or BFLOAT16."""
    squares: bool
    """Whether the squares are; else only the mean."""
    left_open: bool
    """Whether it is one operator whose definition does not say in which type it computes."""
    count: int | None
    """Number of elements that a statistic is taken of, where it is known."""

    @property
    def is_float16(self) -> bool:
        """Whether the type is float16, whose range is small; bfloat16 has few bits instead."""
        return self.dtype == TensorProto.FLOAT16

    @property
    def adds_up(self) -> bool:
        """Whether a sum is taken in half precision before it is divided by the count."""
        parts = (self.norm.steps.get(name) for name in ("mean", "variance"))
        return any(
            node is not None and node.op in _SUMS and node.y.dtype == self.dtype for node in parts
        )


@dataclass(frozen=True, eq=False)
class Vanishing:
    """An epsilon that the type of its sum does not hold."""

    norm: Normalization
    word: str
    """missing, negative, zero or subnormal."""
    dtype: int
    """The type in which it is added."""
    epsilon: float


class Precision:
    """What the types of a model do to its norms."""

    def __init__(self, norms: Sequence[Normalization], constants: Constants) -> None:
        self.constants = constants
        self._all = norms
        self.norms = tuple(norm for norm in norms if has_statistics(norm))

    @cached_property
    def scaled_streams(self) -> ScaledStreams:
        """What can be multiplied by a power of two together."""
        from normlint.context.scaled_streams import ScaledStreams

        return ScaledStreams(self._all, self.constants)

    def half_statistics(self) -> Iterator[HalfStatistics]:
        """Give the norms whose statistics are computed in float16 or bfloat16."""
        for norm in self.norms:
            dtype = norm.statistics_dtype
            if dtype not in _HALVES or norm.kind in {Kind.L2, Kind.BATCH}:
                continue
            if norm.is_op and not _is_of_the_standard(norm):
                continue
            left_open = norm.op_type in _TYPE_LEFT_OPEN and "stash_type" not in norm.anchor.attrs
            yield HalfStatistics(norm, dtype, _squares(norm), left_open, count_of(norm))

    def vanishing(self) -> Iterator[Vanishing]:
        """Give the norms whose epsilon is missing, or not held by the type in which it is added."""
        for norm in self.norms:
            word = _word(norm)
            if word:
                yield Vanishing(norm, word, epsilon_type(norm), norm.epsilon)

    def rescaled(self) -> Iterator[tuple[Normalization, int, Node]]:
        """Give norms of 2⁻ᵏ·t with an epsilon that is not scaled with it: the norm, k, the node."""
        for norm in self.norms:
            node = _above(norm.x)
            factor = None if node is None else self._factor(node)
            if node is None or factor is None or not 0 < factor <= _QUARTER:
                continue
            exponent = -math.log2(factor)
            if exponent == int(exponent) and is_customary(norm.epsilon):
                yield norm, int(exponent), node

    def _factor(self, node: Node) -> float | None:
        """Give the number that a node multiplies its input by."""
        if node.op not in {"Mul", "Div"} or len(node.inputs) != 2:
            return None
        known = [self.constants.uniform(tensor) for tensor in node.inputs]
        if known[1] is not None and known[0] is None:
            return known[1] if node.op == "Mul" else (1 / known[1] if known[1] else None)
        return known[0] if known[1] is None and node.op == "Mul" else None

    def largest_read(self, norm: Normalization, measured: Measured | None) -> float:
        """Give the largest magnitude that a norm in float16 is known to read; 0 where none is.

        From data, else from constants that are added to what it reads. It may be infinite, and is 0
        where the input was scaled already.
        """
        if norm.x.dtype != TensorProto.FLOAT16 or was_scaled(norm):
            return 0.0
        seen = None if measured is None else measured.of(norm)
        if seen is not None:
            return max(abs(seen.low), abs(seen.high))
        return max(self._added(norm.x), default=0.0)

    def _added(self, tensor: Tensor) -> Iterator[float]:
        """Give the largest magnitudes of small constants that are added up in a tensor."""
        pending, seen = [tensor], {tensor}
        while pending and len(seen) < _FARTHEST:
            node = pending.pop().producer
            if node is None or node.op not in _ADDS:
                continue
            for source in node.inputs[:1] if node.op == "Gather" else node.inputs:
                if self.constants.is_constant(source):
                    values = self.constants.known(source, _LARGEST_READ)
                    if values is not None and values.dtype.kind == "f":
                        yield float(np.max(np.abs(values), initial=0.0))
                elif source not in seen:
                    seen.add(source)
                    pending.append(source)

    def squared_in_front(self, norm: Normalization) -> Node | None:
        """Give a product of a half-precision tensor with itself whose weighted sums a norm reads.

        Squares of activations reach 65504 where these reach 256, and a matrix of weights adds up
        many of them: what the norm reads may be infinite, in whatever type it computes itself. None
        where the input was scaled.
        """
        if was_scaled(norm):
            return None
        pending: list[tuple[Tensor, bool]] = [(norm.x, False)]
        seen: set[Node] = set()
        while pending and len(seen) < _FARTHEST:
            tensor, weighted = pending.pop()
            node = tensor.producer
            if node is None or node in seen or tensor.dtype != TensorProto.FLOAT16:
                continue
            seen.add(node)
            if weighted and self._squares(node):
                return node
            if node.op in _LINEAR:
                pending.append((node.inputs[0], True))
            elif node.op in {"Add", "Sum"}:
                pending.extend((source, weighted) for source in node.inputs)
            elif node.op in _LAYOUT or self._factor(node) is not None:
                pending.extend((s, weighted) for s in node.inputs if not s.is_constant)
        return None

    def _squares(self, node: Node) -> bool:
        if node.op == "Mul":
            return node.inputs[0] is node.inputs[1]
        if node.op != "Pow":
            return False
        exponent = self.constants.uniform(node.inputs[1])
        return exponent is not None and exponent >= 2


def epsilon_type(norm: Normalization) -> int:
    """Give the type in which epsilon is added: of an operator, float."""
    if norm.is_op:
        return norm.statistics_dtype
    for name in ("epsilon", "variance", "root"):
        node = norm.steps.get(name)
        if node is not None and node.y.dtype:
            return node.y.dtype
    return norm.statistics_dtype


def least_normal(dtype: int) -> float:
    """Give the least number of a type that is not subnormal, which hardware may take for 0."""
    return _LEAST_NORMAL.get(dtype, _LEAST_NORMAL[TensorProto.FLOAT])


def count_of(norm: Normalization) -> int | None:
    """Give the number of elements that a statistic is taken of, where all extents are known."""
    shape = norm.x.shape
    if shape is None or norm.axes is None:
        return None
    extents = [shape[axis] for axis in norm.axes]
    known = [extent for extent in extents if isinstance(extent, int)]
    if len(known) != len(extents):
        return None
    total = math.prod(known)
    return total // norm.groups if norm.kind is Kind.GROUP and norm.groups else total


def _is_of_the_standard(norm: Normalization) -> bool:
    return norm.op_type is not None and "::" not in norm.op_type


def _squares(norm: Normalization) -> bool:
    """Whether squares are taken in half precision: not if the norm is cast in between."""
    found = [node for name in ("square", "variance") if (node := norm.steps.get(name)) is not None]
    return not found or any(node.y.dtype in _HALVES for node in found)


def _word(norm: Normalization) -> str:
    if norm.kind is Kind.L2:
        return "zero" if _has_bound_of_zero(norm) else ""
    if norm.kind in {Kind.BATCH, Kind.OTHER} or norm.clipped or _is_guarded(norm):
        return ""
    if norm.epsilon < 0:
        return "negative"
    if norm.epsilon == 0:
        return "zero" if norm.is_op or _adds_something(norm) else "missing"
    if norm.is_op or "root" not in norm.steps:
        return ""
    return "subnormal" if norm.epsilon < least_normal(epsilon_type(norm)) else ""


def _adds_something(norm: Normalization) -> bool:
    """Whether something is added to the variance, be it 0 in its type."""
    root, variance = norm.steps.get("root"), norm.steps.get("variance")
    if root is None or variance is None:
        return False
    node = root.inputs[0].producer
    while node is not None and node is not variance and node in norm.nodes:
        if node.op == "Add":
            return True
        node = node.inputs[0].producer
    return False


def _has_bound_of_zero(norm: Normalization) -> bool:
    """Whether a length in half precision is bounded by what that type holds as 0."""
    if norm.is_op or norm.epsilon != 0 or norm.dtype not in _HALVES:
        return False
    return any(node.op in {"Max", "Clip"} for node in norm.nodes)


def _is_guarded(norm: Normalization) -> bool:
    """Whether something keeps the root away from 0 besides epsilon."""
    return norm.epsilon == 0 and any(node.op in _GUARDS for node in norm.nodes)


def _above(tensor: Tensor) -> Node | None:
    for _ in range(_FARTHEST):
        node = tensor.producer
        if node is None or node.op not in _LAYOUT:
            return node
        tensor = node.inputs[0]
    return None
