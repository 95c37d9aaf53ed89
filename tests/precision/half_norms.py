"""Norms in half precision, and an evaluator that computes in the types of the graph.

ONNX Runtime's CPU computes float16 in float and hides overflow; numpy's float16 does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, inliner, numpy_helper
from onnx.reference import ReferenceEvaluator

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

WIDTH = 16
TYPES = {np.float16: TensorProto.FLOAT16, np.float32: TensorProto.FLOAT}


def spelled(
    kind: str = "LayerNorm",
    *,
    epsilon: float | None = 1e-3,
    opset: int = 14,
    dtype: type = np.float16,
    cast: bool = False,
) -> ModelProto:
    """Give a LayerNorm or RMSNorm in elementary operators, with `cast` between Casts to float."""
    inner = np.float32 if cast else dtype
    weights = {
        "two": np.array(2, inner),
        "scale": np.linspace(0.5, 2, WIDTH).astype(dtype),
        "bias": np.linspace(-1, 1, WIDTH).astype(dtype),
    }
    nodes = []
    x = "x"
    if cast:
        nodes.append(helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT))
        x = "wide"
    if kind == "LayerNorm":
        nodes.append(helper.make_node("ReduceMean", [x], ["mean"], axes=[-1]))
        nodes.append(helper.make_node("Sub", [x, "mean"], ["centred"]))
        x = "centred"
    nodes.append(helper.make_node("Pow", [x, "two"], ["square"]))
    nodes.append(helper.make_node("ReduceMean", ["square"], ["variance"], axes=[-1]))
    variance = "variance"
    if epsilon is not None:
        weights["epsilon"] = np.array(epsilon, inner)
        nodes.append(helper.make_node("Add", ["variance", "epsilon"], ["shifted"]))
        variance = "shifted"
    nodes.append(helper.make_node("Sqrt", [variance], ["root"]))
    nodes.append(helper.make_node("Div", [x, "root"], ["quotient"]))
    quotient = "quotient"
    if cast:
        nodes.append(helper.make_node("Cast", ["quotient"], ["narrow"], to=TYPES[dtype]))
        quotient = "narrow"
    nodes.append(helper.make_node("Mul", [quotient, "scale"], ["scaled"]))
    nodes.append(helper.make_node("Add", ["scaled", "bias"], ["y"]))
    return model(nodes, weights, [2, WIDTH], TYPES[dtype], opset)


def group_norm() -> ModelProto:
    """Give a GroupNorm of float16 as exporters spell it below opset 21."""
    weights = {
        "split": np.array([1, 2, -1]),
        "join": np.array([1, 4, 4, 4]),
        "ones": np.ones(2, np.float16),
        "zeros": np.zeros(2, np.float16),
        "scale": np.linspace(0.5, 2, 4).astype(np.float16).reshape(4, 1, 1),
    }
    nodes = [
        helper.make_node("Reshape", ["x", "split"], ["rows"]),
        helper.make_node("InstanceNormalization", ["rows", "ones", "zeros"], ["normed"]),
        helper.make_node("Reshape", ["normed", "join"], ["joined"]),
        helper.make_node("Mul", ["joined", "scale"], ["y"]),
    ]
    return model(nodes, weights, [1, 4, 4, 4], TensorProto.FLOAT16, 17)


def model(
    nodes: list[Any], weights: dict[str, Array], shape: list[int], dtype: int, opset: int
) -> ModelProto:
    """Make a model from x to y."""
    graph = helper.make_graph(
        nodes,
        "norm",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", dtype, shape)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def in_own_types(model: ModelProto, x: Array) -> Array:
    """Run a model in the types that it says; operators by their definition in onnx.

    The evaluator's own LayerNormalization passes over `stash_type`.
    """
    typed = ModelProto.FromString(model.SerializeToString())
    for tensor in typed.graph.initializer:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        typed.graph.input.append(value)
    operators = [("", "LayerNormalization")]
    model = inliner.inline_selected_functions(typed, operators, inline_schema_functions=True)
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])


def layer_norm(x: Array, epsilon: float) -> Array:
    """Compute `spelled()` in double."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    quotient = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + epsilon)
    return quotient * np.linspace(0.5, 2, WIDTH) + np.linspace(-1, 1, WIDTH)
