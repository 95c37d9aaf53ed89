"""Verification lets an equal rewrite pass and stops one that moves the numbers."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import numpy_helper, parser

from normlint.context.constants import Constants
from normlint.graph import Graph, build_graph
from normlint.rule import Applicability, Computed, NewNode, Replace, Rewrite
from normlint.verify import Failure, verify_rewrite
from normlint.verify.samples import Sizes, feeds


def graph_of(text: str, opset: int = 17) -> Graph:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    return build_graph(model, numpy_helper.to_array)


def layer_norm(dtype: str = "float", shape: str = "2,3,8") -> Graph:
    code = {"float": 1, "double": 11, "float16": 10, "bfloat16": 16}[dtype]
    return graph_of(
        f"""
        g ({dtype}[{shape}] x) => ({dtype}[{shape}] y)
        {{
            two32 = Constant<value_float = 2.0>()
            two = Cast<to = {code}>(two32)
            eps32 = Constant<value_float = 1e-5>()
            eps = Cast<to = {code}>(eps32)
            m = ReduceMean<axes = [-1]>(x)
            d = Sub(x, m)
            s = Pow(d, two)
            v = ReduceMean<axes = [-1]>(s)
            e = Add(v, eps)
            r = Sqrt(e)
            y = Div(d, r)
        }}
        """
    )


def fused(graph: Graph, epsilon: float) -> Rewrite:
    ones = Computed((8,), graph.inputs[0].dtype, lambda: np.ones(8))
    recipe = NewNode(
        "LayerNormalization", (graph.inputs[0], ones), {"axis": -1, "epsilon": epsilon}
    )
    return Rewrite(
        "fuse", Applicability.SAFE, (Replace((graph.outputs[0],), recipe),), tuple(graph.nodes)
    )


@pytest.mark.parametrize("dtype", ["float", "double", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", ["2,3,8", "N,T,8", "1,8"])
def test_an_equal_rewrite_passes(dtype: str, shape: str) -> None:
    graph = layer_norm(dtype, shape)

    outcome = verify_rewrite(fused(graph, 1e-5), Constants(graph), 17)

    assert not isinstance(outcome, Failure), outcome
    assert outcome.inputs == 5
    assert outcome.max_rel <= max(outcome.tolerance, 1e-2)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 1e-6])
def test_another_epsilon_is_seen(epsilon: float) -> None:
    graph = layer_norm()

    outcome = verify_rewrite(fused(graph, epsilon), Constants(graph), 17)

    assert isinstance(outcome, Failure)
    assert outcome.moved


def test_a_lost_mean_is_seen() -> None:
    graph = layer_norm()
    root = graph.nodes[-2].y
    recipe = NewNode("Div", (graph.inputs[0], root))
    rewrite = Rewrite("t", Applicability.SAFE, (Replace((graph.outputs[0],), recipe),), ())

    outcome = verify_rewrite(rewrite, Constants(graph), 17)

    assert isinstance(outcome, Failure)


def test_what_others_read_is_compared_too() -> None:
    graph = graph_of(
        """
        g (float[2,4] x) => (float[2,4] y, float[2,4] other) <float[4] w = {1, 2, 3, 4}> {
            a = Mul(x, w)
            y = Neg(a)
            other = Abs(a)
        }
        """
    )
    scaled, negation = graph.nodes[0], graph.nodes[1]
    weight = Computed((4,), 1, lambda: -scaled.inputs[1].values)
    rewrite = Rewrite(
        "t",
        Applicability.SAFE,
        (
            Replace((scaled.y,), NewNode("Mul", (scaled.inputs[0], weight))),
            Replace((negation.y,), NewNode("Identity", (scaled.y,))),
        ),
        (scaled, negation),
    )

    outcome = verify_rewrite(rewrite, Constants(graph), 17)

    assert isinstance(outcome, Failure)
    assert outcome.moved
    assert "a moved" in outcome.detail


def test_what_no_engine_runs_is_no_proof() -> None:
    graph = graph_of("g (float[2] x) => (float[2] y) { y = com.example.Odd(x) }")
    recipe = NewNode("Neg", (graph.inputs[0],))
    rewrite = Rewrite("t", Applicability.SAFE, (Replace((graph.outputs[0],), recipe),), ())

    outcome = verify_rewrite(rewrite, Constants(graph), 17)

    assert isinstance(outcome, Failure)
    assert not outcome.moved


@pytest.mark.parametrize("width", [2, 3, 4])
def test_few_values_far_from_zero_are_no_fault_of_the_rewrite(width: int) -> None:
    graph = layer_norm(shape=f"5,7,{width}")
    ones = Computed((width,), 1, lambda: np.ones(width))
    recipe = NewNode("LayerNormalization", (graph.inputs[0], ones), {"axis": -1, "epsilon": 1e-5})
    rewrite = Rewrite("t", Applicability.SAFE, (Replace((graph.outputs[0],), recipe),), ())

    outcome = verify_rewrite(replace(rewrite, region=tuple(graph.nodes)), Constants(graph), 17)

    assert not isinstance(outcome, Failure), outcome


@pytest.mark.parametrize(("tolerance", "is_bug"), [(0.0, True), (1e-6, False)])
def test_an_operator_that_cancels_by_definition_is_too_inexact_and_no_bug(
    tolerance: float, is_bug: bool
) -> None:
    graph = layer_norm()
    constants = Constants(graph)
    half = Computed((), 1, lambda: np.float64(1e-5))
    x = graph.inputs[0]
    axes = {"axes": [-1]}
    mean = NewNode("ReduceMean", (x,), axes)
    square = NewNode("ReduceMean", (NewNode("Mul", (x, x)),), axes)
    variance = NewNode("Sub", (square, NewNode("Mul", (mean, mean))))
    root = NewNode("Sqrt", (NewNode("Abs", (NewNode("Add", (variance, half)),)),))
    one_pass = NewNode("Div", (NewNode("Sub", (x, mean)), root))
    rewrite = Rewrite(
        "t",
        Applicability.SAFE,
        (Replace((graph.outputs[0],), one_pass),),
        tuple(graph.nodes),
        tolerance=tolerance,
    )

    outcome = verify_rewrite(rewrite, constants, 17)

    assert isinstance(outcome, Failure)
    assert outcome.moved == is_bug
    assert "large mean" in outcome.detail


@pytest.mark.parametrize("dtype", ["float", "float16", "bool", "int8"])
def test_an_input_without_extents_is_an_array_too(dtype: str) -> None:
    graph = graph_of(f"g ({dtype} x) => ({dtype} y) {{ y = Identity(x) }}")

    given = [feed["x"] for _, feed in feeds(graph.inputs, Sizes(3, 3))]

    assert all(isinstance(values, np.ndarray) and values.shape == () for values in given)


def test_a_rank_that_was_assumed_is_no_fault_of_the_rewrite() -> None:
    graph = graph_of(
        """
        g (float[A,B,C,D] x, int64[R] target) => (float[] y) <float[1,1,1,1] one = {1}> {
            open = Reshape(x, target)
            wide = Mul(open, one)
            y = Relu(wide)
        }
        """
    )
    wide = graph.nodes[1]
    edit = Replace((graph.outputs[0],), NewNode("Relu", (wide.inputs[0],)))

    outcome = verify_rewrite(
        Rewrite("t", Applicability.SAFE, (edit,), (wide,)), Constants(graph), 17
    )

    assert isinstance(outcome, Failure)
    assert not outcome.moved
    assert "a rank of 3, which may never occur" in outcome.detail


@pytest.mark.parametrize(("shape", "moved"), [("2,1,1,1", True), ("2,H,W,D", False)])
def test_what_does_not_run_at_guessed_extents_is_no_bug(shape: str, moved: bool) -> None:
    """The old nodes run at extents of 1, too: the scale spreads their result."""
    graph = graph_of(
        f"""
        g (float[{shape}] x) => (float[A,B,C,D] y)
        <float[2,5,3] s = {{{", ".join(str(k) for k in range(30))}}}> {{ y = Mul(x, s) }}
        """
    )
    x, scale = graph.nodes[0].inputs
    recipe = NewNode("LayerNormalization", (x, scale), {"axis": -3})
    rewrite = Rewrite(
        "fuse", Applicability.SAFE, (Replace((graph.outputs[0],), recipe),), tuple(graph.nodes)
    )

    outcome = verify_rewrite(rewrite, Constants(graph), 17)

    assert isinstance(outcome, Failure)
    assert "do not run" in outcome.detail
    assert outcome.moved is moved
