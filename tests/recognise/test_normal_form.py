"""A normal form computes what the graph computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from normlint.algebra import Leaf, Statistic
from normlint.context.constants import Constants
from normlint.graph import build_graph
from normlint.recognise.reading import Reading, Scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.recognise.reading import Value

    Array = np.ndarray[Any, Any]

SHAPES = [(2, 3, 4), (3, 3, 3), (4,), (2, 2), (1, 3, 2), (2, 1, 3, 2)]


class Program:
    """A random graph of arithmetic on x, with what each tensor holds."""

    def __init__(self, choose: Callable[[int], int], shape: tuple[int, ...]) -> None:
        self.choose = choose
        self.shapes = {"x": shape}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def pick(self) -> str:
        """Draw a tensor, a late one more often than not."""
        names = list(self.shapes)
        return names[max(self.choose(len(names)), self.choose(len(names)))]

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        self.shapes[name] = shape

    def step(self) -> None:
        steps = [self.binary, self.binary, self.with_constant, self.with_constant, self.unary]
        steps += [self.power, self.reduce, self.reduce, self.relayout, self.relayout, self.binary]
        steps[self.choose(len(steps))]()

    def binary(self) -> None:
        left, right = self.pick(), self.pick()
        try:
            shape = np.broadcast_shapes(self.shapes[left], self.shapes[right])
        except ValueError:
            return
        self.add(("Add", "Sub", "Mul", "Div", "Sum")[self.choose(5)], [left, right], shape)

    def with_constant(self) -> None:
        name = self.pick()
        own = self.shapes[name]
        random = np.random.default_rng(self.choose(50))
        extents = tuple(
            extent if self.choose(2) else 1 for extent in own[self.choose(len(own) + 1) :]
        )
        numbers = (2.0, -1.0, 0.5, 1e-3)
        values = (
            random.uniform(0.5, 2, extents)
            if self.choose(2)
            else np.full(extents, numbers[self.choose(4)])
        )
        inputs = [name, self.constant(values)]
        if self.choose(2):
            inputs.reverse()
        op = ("Add", "Sub", "Mul", "Div", "Max")[self.choose(5)]
        self.add(op, inputs, np.broadcast_shapes(own, extents))

    def unary(self) -> None:
        name = self.pick()
        op = ("Neg", "Sqrt", "Reciprocal", "Identity", "Abs", "Relu", "Sqrt")[self.choose(7)]
        self.add(op, [name], self.shapes[name])

    def power(self) -> None:
        name = self.pick()
        exponent = (2.0, 0.5, -0.5, -1.0, 1.0, -2.0, 0.25)[self.choose(7)]
        self.add("Pow", [name, self.constant(exponent)], self.shapes[name])

    def reduce(self) -> None:
        name = self.pick()
        own = self.shapes[name]
        if not own:
            return
        axes = sorted({self.choose(len(own)) for _ in range(1 + self.choose(2))})
        kept = self.choose(2)
        op = ("ReduceMean", "ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2")[
            self.choose(5)
        ]
        shape = tuple(
            1 if axis in axes else extent
            for axis, extent in enumerate(own)
            if kept or axis not in axes
        )
        self.add(op, [name, self.constant(axes, np.int64)], shape, keepdims=kept)

    def relayout(self) -> None:
        name = self.pick()
        own = self.shapes[name]
        way = self.choose(5)
        if way == 0 and len(own) > 1:
            order = list(range(len(own)))
            cut = self.choose(len(own))
            order = order[cut:] + order[:cut]
            self.add("Transpose", [name], tuple(own[axis] for axis in order), perm=order)
        elif way == 1 and len(own) > 1:
            axis = self.choose(len(own) - 1)
            shape = (*own[:axis], own[axis] * own[axis + 1], *own[axis + 2 :])
            self.add("Reshape", [name, self.constant(shape, np.int64)], shape)
        elif way == 2 and 1 in own:
            axis = own.index(1)
            shape = own[:axis] + own[axis + 1 :]
            self.add("Squeeze", [name, self.constant([axis], np.int64)], shape)
        elif way == 3 and len(own) > 1:
            axis = self.choose(len(own) + 1)
            shape = (int(np.prod(own[:axis])), int(np.prod(own[axis:])))
            self.add("Flatten", [name], shape, axis=axis)
        elif len(own) < 4:
            axis = self.choose(len(own) + 1)
            shape = (*own[:axis], 1, *own[axis:])
            self.add("Unsqueeze", [name, self.constant([axis], np.int64)], shape)

    def model(self) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        outputs = [
            value(name, TensorProto.DOUBLE, shape)
            for name, shape in self.shapes.items()
            if name != "x"
        ]
        inputs = [value("x", TensorProto.DOUBLE, self.shapes["x"])]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def holds(reading: Reading, value: Value, x: Array, truth: dict[str, Array]) -> Array:
    """Compute a normal form; `truth` gives the tensors that have none."""
    generators = reading.algebra.generators
    rank = x.ndim

    def generator(number: int) -> Array:
        of = generators[number]
        if isinstance(of, Statistic):
            return (
                np.mean(x**of.power, axis=tuple(of.axes), keepdims=True) if of.axes else x**of.power
            )
        if isinstance(of, Leaf):
            values = (
                truth[of.tensor.name] if not of.constant else reading.constants.values(of.tensor)
            )
            extents = [x.shape[axis] for entry in of.dims for axis in entry]
            axes = [axis for entry in of.dims for axis in entry]
            full = values.reshape(extents).transpose(np.argsort(axes))
            return full.reshape([x.shape[axis] if axis in axes else 1 for axis in range(rank)])
        inner = polynomial(of.polynomial)
        return inner if of.clip is None else np.maximum(inner, of.clip)

    def polynomial(terms: Any) -> Array:
        total: Array = np.zeros((1,) * rank)
        for monomial, coefficient in terms.items():
            term: Array = np.full((1,) * rank, coefficient)
            for number, exponent in monomial:
                term = term * generator(number) ** exponent
            total = total + term
        return total

    total = polynomial(value.polynomial)
    order = [axis for entry in value.dims for axis in entry]
    rest = [axis for axis in range(rank) if axis not in order]
    assert all(total.shape[axis] == 1 for axis in rest)
    full = np.broadcast_to(total, [x.shape[a] if a in order else 1 for a in range(rank)])
    extents = [int(np.prod([x.shape[axis] for axis in entry])) for entry in value.dims]
    return full.transpose(order + rest).reshape(extents)


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.data())
def test_a_normal_form_computes_what_the_graph_computes(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from(SHAPES))
    program = Program(lambda n: data.draw(st.integers(0, n - 1)), shape)
    for _ in range(data.draw(st.integers(2, 12))):
        program.step()
    if not program.nodes:
        return
    model = program.model()
    x = np.random.default_rng(data.draw(st.integers(0, 9))).normal(0.3, 1.5, shape)
    names = [output.name for output in model.graph.output]
    with np.errstate(all="ignore"):
        truth = dict(zip(names, ReferenceEvaluator(model).run(None, {"x": x}), strict=True))
        graph = build_graph(model, numpy_helper.to_array)
        reading = Reading(Scope(graph, Constants(graph)), graph.inputs[0])
        for tensor, value in reading.values.items():
            if tensor.name == "x" or value.flaw is not None:
                continue
            expected = truth[tensor.name]
            computed = holds(reading, value, x, truth)
            assert computed.shape == expected.shape
            finite = np.isfinite(expected)
            scale = max(1.0, float(np.abs(expected[finite]).max(initial=0)))
            np.testing.assert_allclose(
                computed[finite], expected[finite], rtol=1e-4, atol=1e-6 * scale
            )
