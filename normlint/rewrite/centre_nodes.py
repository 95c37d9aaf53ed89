"""The nodes that take a LayerNorm's place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from normlint.deferred import dataclass
from normlint.normalization import SKIP_LAYER_NORM
from normlint.rewrite.demands import (
    Impossible,
    demand_along,
    demand_plain,
    normalised_shape,
    refuse,
    trailing,
    working_type,
)
from normlint.rewrite.norm_ops import cast_in
from normlint.rewrite.vectors import Vectors
from normlint.rule import Computed, NewNode, NotFixed, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.graph import Node
    from normlint.normalization import Normalization, Parameter
    from normlint.rule import Operand

_AXES_INPUT = 18
"""The opset from which on ReduceMean takes its axes as an input."""


def reduce_mean(x: Operand, axes: Sequence[int], opset: int, like: Node | None) -> NewNode:
    """Give a mean over axes that keeps them."""
    if opset < _AXES_INPUT:
        return NewNode("ReduceMean", (x,), {"axes": list(axes), "keepdims": 1}, like=like)
    values = np.asarray(axes, np.int64)
    given = Computed(values.shape, TensorProto.INT64, lambda: values, "axes")
    return NewNode("ReduceMean", (x, given), {"keepdims": 1}, like=like)


@dataclass(frozen=True, eq=False)
class RMSNorm:
    """How an RMSNorm that takes a LayerNorm's place is written."""

    norm: Normalization
    is_op: bool
    """RMSNormalization, or the spelling that runtimes fuse: Pow, ReduceMean, Add, Sqrt, Div."""
    opset: int
    """The opset that the nodes are of."""

    @property
    def is_skip(self) -> bool:
        """Whether it adds first: then it stays an operator of com.microsoft."""
        return bool(self.norm.op_type == SKIP_LAYER_NORM)

    @property
    def nodes(self) -> int:
        """Number of nodes, without an addition of the bias."""
        moved = int(self.norm.permutation is not None)
        if self.is_op:
            return 1 + moved
        norm = self.norm
        casts = (self._wide != norm.x.dtype) + (self._wide != norm.y.dtype)
        return 5 + casts + (norm.scale is not None) + moved

    @property
    def _wide(self) -> int:
        """The element type of the statistics; a double is never made narrower for them."""
        given = self.norm.x.dtype
        return given if given == TensorProto.DOUBLE else self.norm.statistics_dtype or given

    def obstacle(self) -> NotFixed | None:
        """Tell why it cannot be written; None where it can."""
        if self.is_skip:
            return None
        try:
            self.node(self.norm.x, self.norm.bias)
        except Impossible as impossible:
            return impossible.reason
        return None

    def node(self, x: Operand, bias: Parameter | None) -> NewNode:
        """Give the node whose output is the result. Raises Impossible."""
        demand_plain(self.norm)
        order = self.norm.permutation
        if order is not None:
            x = NewNode("Transpose", (x,), {"perm": list(order)}, like=self.norm.anchor)
            return replace(self, norm=upright(self.norm)).node(x, _permuted(bias, order))
        return self._fused(x, bias) if self.is_op else self._spelled(x, bias)

    def _fused(self, x: Operand, bias: Parameter | None) -> NewNode:
        norm, like = self.norm, self.norm.anchor
        width = trailing(norm)
        for parameter in (norm.scale, bias):
            demand_along(norm, parameter, range(-width, 0))
        # An operator takes half precision as it is, and computes the statistics in float.
        work = norm.x.dtype if norm.is_op and norm.y.dtype == norm.x.dtype else working_type(norm)
        vectors = Vectors(work, normalised_shape(norm, width), norm)
        if work != norm.x.dtype:
            x = cast_in(norm, work) if x is norm.x else NewNode("Cast", (x,), {"to": work})
        attrs = {"axis": -width, "epsilon": norm.epsilon}
        node = NewNode("RMSNormalization", (x, vectors.scale(norm.scale)), attrs, like=like)
        if bias is not None:
            node = NewNode("Add", (node, vectors.give(bias, "bias")), like=like)
        if norm.y.dtype != work:
            node = NewNode("Cast", (node,), {"to": norm.y.dtype}, like=like)
        return node

    def _spelled(self, x: Operand, bias: Parameter | None) -> NewNode:
        norm, like = self.norm, self.norm.anchor
        assert norm.axes is not None  # noqa: S101 - LayerNorms have axes
        dtype = self._wide
        if dtype != norm.x.dtype:
            x = NewNode("Cast", (x,), {"to": dtype}, like=like)
        # Each norm has its own exponent: a shared one has crashed ONNX Runtime in half precision.
        square = NewNode("Pow", (x, _number(2.0, dtype, "exponent")), like=like)
        mean = reduce_mean(square, norm.axes, self.opset, like)
        raised = NewNode("Add", (mean, _number(norm.epsilon, dtype, "epsilon")), like=like)
        root = NewNode("Sqrt", (raised,), like=like)
        node = NewNode("Div", (x, root), like=like)
        if dtype != norm.y.dtype:
            node = NewNode("Cast", (node,), {"to": norm.y.dtype}, like=like)
        if norm.scale is not None:
            node = NewNode("Mul", (node, _aligned(norm.scale, norm, "scale")), like=like)
        if bias is not None:
            node = NewNode("Add", (node, _aligned(bias, norm, "bias")), like=like)
        return node


def upright(norm: Normalization) -> Normalization:
    """Give a norm whose result is transposed as one that reads what is transposed already.

    Raises Impossible where types change on the way, or the result's shape is not known.
    """
    order = norm.permutation
    if order is None or norm.axes is None:
        return norm
    if norm.y.shape is None or norm.y.dtype != norm.x.dtype:
        raise refuse(Reason.SHAPE_UNKNOWN, norm.y, "the result is transposed, and of another type")
    rank = len(order)
    reduced = {axis % rank for axis in norm.axes}
    return replace(
        norm,
        x=norm.y,
        axes=tuple(place - rank for place, axis in enumerate(order) if axis in reduced),
        permutation=None,
        scale=_permuted(norm.scale, order),
        bias=_permuted(norm.bias, order),
    )


def _permuted(parameter: Parameter | None, order: tuple[int, ...]) -> Parameter | None:
    """Align a scale or a bias to the axes of the transposed result."""
    if parameter is None:
        return None
    shape, compute = parameter.shape, parameter.compute
    return replace(
        parameter,
        shape=None if shape is None else tuple(shape[axis] for axis in order),
        compute=None if compute is None else lambda: compute().transpose(order),
        tensor=None,
    )


def bias_operand(norm: Normalization, bias: Parameter) -> Operand:
    """Give the bias that an Add adds to the result of a norm."""
    return _aligned(bias, norm, "bias")


def centred_bias(norm: Normalization, axes: range) -> Parameter:
    """Give the bias of a norm without its mean over the axes."""
    bias = norm.bias
    assert bias is not None  # noqa: S101 - the caller looked
    compute = bias.compute
    assert compute is not None  # noqa: S101 - such norms have constant biases
    assert norm.x.shape is not None  # noqa: S101 - and inputs of known shape
    widths = {axis: norm.x.shape[axis] for axis in axes}

    def values() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        old = compute()
        shape = [widths.get(axis, extent) for axis, extent in enumerate(old.shape)]
        full = np.broadcast_to(old, [extent for extent in shape if isinstance(extent, int)])
        return np.asarray(full - full.mean(axis=tuple(axes), keepdims=True))

    return replace(bias, tensor=None, compute=values)


def _aligned(parameter: Parameter, norm: Normalization, what: str) -> Operand:
    """Give a scale or a bias as an operand that is broadcast to the normalised value."""
    tensor = parameter.tensor
    if tensor is not None and tensor.dtype == norm.y.dtype:
        return tensor
    if parameter.compute is None or parameter.shape is None:
        raise refuse(Reason.TYPE_MISMATCH, norm.y, f"the {what} is of another type, or computed")
    return Computed(parameter.shape, norm.y.dtype, parameter.compute, f"{norm.y.name}_{what}")


def _number(value: float, dtype: int, name: str) -> Computed:
    return Computed((), dtype, lambda: np.asarray(value, np.float64), name)
