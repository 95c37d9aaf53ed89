"""Normalisations spelled in random ways, and the same with one thing broken.

A `Speller` writes one normalisation as an ONNX graph; each choice is drawn from a source of
numbers, so hypothesis can drive and shrink it. What it must compute is known from the start: the
tests compare the fact with `Spelling`, and the graph with numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

FLAWS = (
    "exponent",
    "epsilon-outside",
    "keepdims",
    "no-root",
    "cube-root",
    "operand-order",
    "numerator",
    "denominator",
    "axes",
    "other-tensor",
    "half-mean",
)
"""What can be wrong with a normalisation."""


@dataclass
class Spelling:
    """A graph, and what it computes."""

    model: onnx.ModelProto
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    epsilon: float
    centred: bool
    scale: Array
    bias: Array

    def expected(self, x: Array) -> Array:
        """Compute it in float64."""
        x = x.astype(np.float64)
        difference = x - x.mean(self.axes, keepdims=True) if self.centred else x
        square = (difference**2).mean(self.axes, keepdims=True)
        return difference / np.sqrt(square + self.epsilon) * self.scale + self.bias


@dataclass
class Speller:
    """Spells one normalisation; `choose(n)` draws a number below n."""

    choose: Callable[[int], int]
    shape: tuple[int, ...] = (2, 3, 4)
    axes: tuple[int, ...] = (-1,)
    centred: bool = True
    epsilon: float = 1e-3
    affine: bool = True
    opset: int = 13
    flaw: str = ""
    along: tuple[int, ...] = ()
    """The axes that scale and bias run along; where none is given, the normalised ones."""
    symbolic: bool = False
    rank_known: bool = True
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    derived: set[str] = field(default_factory=lambda: {"x"})
    """The tensors that depend on x."""
    closed: str = ""
    """The result where the bias is in it already."""

    @property
    def count(self) -> int:
        """Elements that a mean runs over."""
        return int(np.prod([self.shape[axis] for axis in self.axes]))

    # Building blocks

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node; its operands and result may pass through what changes nothing."""
        inputs = tuple(self.passed(name) if name in self.derived else name for name in inputs)
        return self.plain(op, *inputs, **attrs)

    def plain(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Add a node."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"n_{name}", **attrs))
        if not self.derived.isdisjoint(inputs):
            self.derived.add(name)
        return name

    def passed(self, name: str) -> str:
        """Pass a tensor through something that changes nothing, or not."""
        way = self.choose(24)
        if way == 0:
            return self.plain("Identity", name)
        if way == 1:
            return self.plain("Dropout", name)
        if way == 2:
            wide = self.plain("Cast", name, to=TensorProto.DOUBLE)
            return self.plain("Cast", wide, to=TensorProto.FLOAT)
        if way == 3:
            return self.plain("Neg", self.plain("Neg", name))
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Add a constant, as an initializer or as a Constant node."""
        array = np.asarray(values, dtype)
        name = f"c{len(self.constants) + len(self.nodes)}"
        if self.choose(2):
            self.constants.append(numpy_helper.from_array(array, name))
            return name
        return self.plain("Constant", value=numpy_helper.from_array(array))

    def scalar(self, value: float) -> str:
        """Add a number, of rank 0 to the rank of x."""
        return self.constant(np.full((1,) * self.choose(len(self.shape) + 1), value))

    def either(self, op: str, left: str, right: str) -> str:
        """Add a commutative operator with its operands in either order."""
        return self.node(op, *((left, right) if self.choose(2) else (right, left)))

    # Parts of a normalisation

    def reduced(self, op: str, name: str, axes: tuple[int, ...], *, kept: bool) -> str:
        """Reduce over axes, counted from either end, given as attribute or input."""
        if self.rank_known and self.choose(2):
            axes = tuple(axis % len(self.shape) for axis in axes)
        return self.attached(op, name, axes, kept=kept)

    def attached(self, op: str, name: str, axes: tuple[int, ...], *, kept: bool) -> str:
        """Give the axes as an input or an attribute, as the opset wants it."""
        as_input = self.opset >= 18 or (op == "ReduceSum" and self.opset >= 13)
        if as_input:
            return self.node(op, name, self.constant(axes, np.int64), keepdims=int(kept))
        return self.node(op, name, axes=list(axes), keepdims=int(kept))

    def restored(self, name: str, axes: tuple[int, ...]) -> str:
        """Put axes back that a reduction dropped."""
        way = self.choose(3) if self.rank_known and not self.symbolic else 0
        rank = len(self.shape)
        positions = sorted(axis % rank for axis in axes)
        if way == 1:
            shape = [1 if axis in positions else n for axis, n in enumerate(self.shape)]
            return self.node("Reshape", name, self.constant(shape, np.int64))
        if way == 2:
            shape = [1 if axis in positions else n for axis, n in enumerate(self.shape)]
            name = self.node("Reshape", name, self.constant([0] * (rank - len(axes)), np.int64))
            return self.node("Reshape", name, self.constant(shape, np.int64))
        given = [position - rank for position in positions] if self.opset >= 13 else positions
        if self.opset >= 13:
            return self.node("Unsqueeze", name, self.constant(given, np.int64))
        return self.node("Unsqueeze", name, axes=given)

    def over(self, op: str, name: str, axes: tuple[int, ...] | None = None) -> str:
        """Reduce and keep the axes, one way or another."""
        axes = self.axes if axes is None else axes
        if self.flaw == "keepdims":
            return self.reduced(op, name, axes, kept=False)
        way = self.choose(5)
        if way == 0 and self.rank_known and len(self.shape) > 1:
            return self.over_transposed(op, name, axes)
        if way == 1 and self.rank_known and not self.symbolic:
            return self.over_flattened(op, name, axes)
        if way > 2:
            return self.reduced(op, name, axes, kept=True)
        return self.restored(self.reduced(op, name, axes, kept=False), axes)

    def over_transposed(self, op: str, name: str, axes: tuple[int, ...]) -> str:
        """Transpose, reduce, and transpose back, as optimisers of layouts leave it."""
        rank = len(self.shape)
        order = list(range(rank))
        cut = 1 + self.choose(rank - 1)
        order = order[cut:] + order[:cut]
        moved = tuple(sorted(order.index(axis % rank) - rank for axis in axes))
        result = self.reduced(op, self.node("Transpose", name, perm=order), moved, kept=True)
        back = [order.index(axis) for axis in range(rank)]
        return self.node("Transpose", result, perm=back)

    def over_flattened(self, op: str, name: str, axes: tuple[int, ...]) -> str:
        """Merge the axes from the first normalised one on, if they are all the last ones."""
        rank = len(self.shape)
        first = rank - len(axes)
        if sorted(axis % rank for axis in axes) != list(range(first, rank)):
            return self.reduced(op, name, axes, kept=True)
        flat = self.node("Reshape", name, self.constant([*self.shape[:first], -1], np.int64))
        axis = (first,) if self.choose(2) else (-1,)
        return self.restored(self.attached(op, flat, axis, kept=False), axes)

    def mean(self, name: str, axes: tuple[int, ...] | None = None) -> str:
        """Spell a mean."""
        axes = self.axes if axes is None else axes
        count = int(np.prod([self.shape[axis] for axis in axes]))
        way = self.choose(6) if self.rank_known else 6  # a sum needs to know how many there are
        if way == 0:
            return self.either("Mul", self.over("ReduceSum", name, axes), self.scalar(1 / count))
        if way == 1:
            return self.node("Div", self.over("ReduceSum", name, axes), self.scalar(count))
        if way == 2 and self.flaw != "keepdims":
            divided = self.node("Div", name, self.scalar(count))
            return self.over("ReduceSum", divided, axes)
        if way == 3 and len(axes) > 1 and self.flaw != "keepdims":
            for axis in axes:
                name = self.reduced("ReduceMean", name, (axis,), kept=True)
            return name
        return self.over("ReduceMean", name, axes)

    def square(self, name: str) -> str:
        """Spell a square."""
        if self.flaw == "exponent":
            return self.node("Pow", name, self.scalar(float(3 + self.choose(2))))
        way = self.choose(4)
        if way == 0:
            return self.node("Mul", name, name)
        if way == 1:
            negative = self.node("Neg", name)
            return self.node("Mul", negative, negative)
        if way == 2:
            return self.either("Mul", name, self.plain("Identity", name))
        return self.node("Pow", name, self.scalar(2))

    def mean_square(self, name: str, axes: tuple[int, ...]) -> str:
        """Spell the mean of squares."""
        way = self.choose(6) if self.rank_known else 6
        if self.flaw == "exponent":
            return self.mean(self.square(name), axes)
        if way == 0:
            total = self.over("ReduceSumSquare", name, axes)
            return self.node("Div", total, self.scalar(self.count))
        if way == 1:
            length = self.over("ReduceL2", name, axes)
            return self.node("Div", self.square(length), self.scalar(self.count))
        return self.mean(self.square(name), axes)

    def difference(self, mean: str, name: str = "x") -> str:
        """Spell x - mean."""
        way = self.choose(4)
        if way == 0:
            return self.either("Add", name, self.node("Neg", mean))
        if way == 1:
            return self.node("Neg", self.node("Sub", mean, name))
        if way == 2 and self.opset >= 8:
            return self.node("Sum", self.node("Neg", mean), name)
        return self.node("Sub", name, mean)

    def variance(self, mean: str, axes: tuple[int, ...]) -> str:
        """Spell the variance, in one pass or two."""
        if self.flaw or self.choose(3):
            return self.mean_square(self.difference(mean), axes)
        squares = self.mean_square("x", axes)
        variance = self.node("Sub", squares, self.square(mean))
        way = self.choose(3)
        if way == 0:
            return self.node("Relu", variance)
        if way == 1:
            return self.either("Max", variance, self.scalar(0))
        return variance

    def shifted(self, square: str) -> str:
        """Add epsilon, in one part or two."""
        if self.epsilon == 0:
            return square
        way = self.choose(4)
        if way == 0:
            return self.node("Sub", square, self.scalar(-self.epsilon))
        if way == 1:
            part = self.either("Add", square, self.scalar(self.epsilon / 4))
            return self.either("Add", self.scalar(self.epsilon * 3 / 4), part)
        return self.either("Add", square, self.scalar(self.epsilon))

    def divided(self, value: str, radicand: str, factor: str | None) -> str:
        """Spell value / sqrt(radicand) * factor."""
        way = self.choose(6)
        if way == 0:
            return self.times(self.node("Div", value, self.node("Sqrt", radicand)), factor)
        if way == 1 and factor:
            below = self.node("Div", self.node("Sqrt", radicand), factor)
            return self.node("Div", value, below)
        inverse = self.inverse(radicand)
        if way == 2 and factor:
            return self.either("Mul", value, self.either("Mul", inverse, factor))
        if way == 3 and factor:
            return self.either("Mul", self.either("Mul", value, factor), inverse)
        return self.times(self.either("Mul", value, inverse), factor)

    def times(self, value: str, factor: str | None) -> str:
        """Multiply by the scale, if there is one."""
        return self.either("Mul", value, factor) if factor else value

    def inverse(self, radicand: str) -> str:
        """Spell 1 / sqrt(radicand)."""
        way = self.choose(6)
        if way == 0:
            return self.node("Reciprocal", self.node("Sqrt", radicand))
        if way == 1:
            return self.node("Sqrt", self.node("Reciprocal", radicand))
        if way == 2:
            return self.node("Pow", radicand, self.scalar(-0.5))
        if way == 3:
            root = self.node("Pow", radicand, self.scalar(0.5))
            return self.node("Pow", root, self.scalar(-1))
        if way == 4:
            return self.node("Div", self.scalar(1), self.node("Sqrt", radicand))
        return self.node("Sqrt", self.node("Div", self.scalar(1), radicand))

    def scale(self, values: Array) -> str:
        """Spell the scale: one constant, or a product or sum of two."""
        way = self.choose(6)
        if way == 0:
            return self.node("Add", self.constant(values - 1), self.scalar(1))
        if way == 1:
            return self.node("Mul", self.constant(values / 2), self.scalar(2))
        lead = (1,) * self.choose(len(self.shape) - values.ndim + 1)
        return self.constant(values.reshape(lead + values.shape))

    def shift(self, value: str, values: Array) -> str:
        """Add the bias."""
        way = self.choose(5)
        if way == 0:
            return self.node("Sub", value, self.constant(-values))
        if way == 1:
            half = self.either("Add", value, self.constant(values / 4))
            return self.either("Add", half, self.constant(values * 3 / 4))
        return self.either("Add", value, self.constant(values))

    # Whole normalisations

    def spell(self) -> Spelling:
        """Spell it."""
        random = np.random.default_rng(self.choose(1000))
        along = {axis % len(self.shape) for axis in self.along or self.axes}
        full = [n if axis in along else 1 for axis, n in enumerate(self.shape)]
        extents = tuple(full[min(along) :])
        scale = random.uniform(0.5, 2, extents).astype(np.float32)
        bias = random.uniform(-1, 1, extents).astype(np.float32)
        if self.flaw:
            y = self.broken()
        elif self.centred:
            y = self.layer_norm(scale, bias)
        else:
            y = self.divided(
                "x", self.shifted(self.mean_square("x", self.axes)), self.factor(scale)
            )
        if self.affine and not self.flaw and (not self.centred or y != self.closed):
            y = self.shift(y, bias)
        return Spelling(
            self.model(y),
            self.shape,
            self.axes,
            self.epsilon,
            self.centred,
            scale if self.affine else np.ones(()),
            bias if self.affine else np.zeros(()),
        )

    def factor(self, scale: Array) -> str | None:
        """Give the scale, where there is one."""
        return self.scale(scale) if self.affine else None

    def layer_norm(self, scale: Array, bias: Array) -> str:
        """Spell a normalisation with its mean subtracted, all but the bias."""
        mean = self.mean("x")
        radicand = self.shifted(self.variance(mean, self.axes))
        way = self.choose(4)
        if way == 0:
            inverse = self.times(self.inverse(radicand), self.factor(scale))
            product = self.either("Mul", mean, inverse)
            if not self.affine:
                return self.node("Sub", self.either("Mul", "x", inverse), product)
            rest = self.node("Sub", self.constant(bias), product)
            self.closed = self.either("Add", self.either("Mul", "x", inverse), rest)
            return self.closed
        if way == 1:
            one = self.divided("x", radicand, self.factor(scale))
            other = self.divided(mean, radicand, self.factor(scale))
            return self.node("Sub", one, other)
        return self.divided(self.difference(mean), radicand, self.factor(scale))

    def broken(self) -> str:
        """Spell something that is nearly a normalisation."""
        axes = self.axes
        mean = self.mean("x") if self.centred else ""
        value = self.difference(mean) if self.centred else "x"
        if self.flaw == "axes":
            axes = (-2,)
        squared = value
        if self.flaw == "numerator":
            value = "x" if self.centred else self.difference(self.mean("x"))
        if self.flaw == "denominator":
            squared = "x" if self.centred else self.difference(self.mean("x"))
        if self.flaw == "half-mean":
            value = self.node("Sub", "x", self.either("Mul", self.mean("x"), self.scalar(0.5)))
        if self.flaw == "other-tensor":
            value = self.node("Sin", "x")
        square = self.mean_square(squared, axes)
        if self.flaw == "epsilon-outside":
            root = self.either("Add", self.node("Sqrt", square), self.scalar(self.epsilon))
            return self.node("Div", value, root)
        radicand = self.shifted(square)
        if self.flaw == "no-root":
            return self.node("Div", value, radicand)
        if self.flaw == "cube-root":
            return self.either("Mul", value, self.node("Pow", radicand, self.scalar(-1 / 3)))
        if self.flaw == "operand-order":
            return self.node("Div", self.node("Sqrt", radicand), value)
        return self.divided(value, radicand, None)

    def model(self, y: str) -> onnx.ModelProto:
        """Make the model."""
        shape: list[Any] | None = list(self.shape)
        if self.symbolic:
            normalised = {axis % len(self.shape) for axis in self.axes}
            shape = [n if a in normalised else f"d{a}" for a, n in enumerate(self.shape)]
        nodes = [*self.nodes, helper.make_node("Identity", [y], ["y"], name="last")]
        value = helper.make_tensor_value_info
        inputs = [value("x", TensorProto.FLOAT, shape)]
        if not self.rank_known:
            nodes.insert(0, helper.make_node("Reshape", ["flat", "as"], ["x"], name="first"))
            inputs = [
                value("flat", TensorProto.FLOAT, None),
                value("as", TensorProto.INT64, ["rank"]),
            ]
        graph = helper.make_graph(
            nodes, "spelled", inputs, [value("y", TensorProto.FLOAT, None)], self.constants
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8
        )
