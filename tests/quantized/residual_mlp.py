"""A small residual network with outlier channels, in float and quantised by ONNX Runtime."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

if TYPE_CHECKING:
    from pathlib import Path

    Array = np.ndarray[Any, Any]

WIDTH, HIDDEN, BLOCKS, TOKENS = 32, 64, 3, 8
OUTLIERS = [3, 17]


def float_model(
    *, fused: bool = True, opset: int = 17, gain: float = 0.1, post: bool = False
) -> onnx.ModelProto:
    """Give a stack of blocks x + down(relu(up(norm(x)))) with a last norm and a head.

    `gain` multiplies the scales of the outlier channels; with `post` the norms stand on the sums.
    """
    random = np.random.default_rng(3)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Array] = {"two": np.array(2.0), "epsilon": np.array(1e-5)}

    def op(kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attrs))
        return name

    def weight(values: Array) -> str:
        name = f"w{len(weights)}"
        weights[name] = values
        return name

    def linear(x: str, rows: int, columns: int, *, writes: bool = False) -> str:
        values = random.standard_normal((rows, columns)) / np.sqrt(rows)
        if writes:
            values[:, OUTLIERS] *= 4
        product = op("MatMul", x, weight(values))
        return op("Add", product, weight(0.1 * random.standard_normal(columns)))

    def norm(x: str) -> str:
        values = 1 + 0.2 * random.standard_normal(WIDTH)
        values[OUTLIERS] *= gain
        scale, bias = weight(values), weight(0.1 * random.standard_normal(WIDTH))
        if fused:
            return op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)
        centred = op("Sub", x, op("ReduceMean", x, axes=[-1]))
        variance = op("ReduceMean", op("Pow", centred, "two"), axes=[-1])
        root = op("Sqrt", op("Add", variance, "epsilon"))
        return op("Add", op("Mul", op("Div", centred, root), scale), bias)

    x = op("Mul", "x", weight(np.where(np.isin(np.arange(WIDTH), OUTLIERS), 20.0, 1.0)))
    for _ in range(BLOCKS):
        up = op("Relu", linear(x if post else norm(x), WIDTH, HIDDEN))
        x = op("Add", x, linear(up, HIDDEN, WIDTH, writes=True))
        x = norm(x) if post else x
    y = linear(x if post else norm(x), WIDTH, WIDTH)
    shape = [1, TOKENS, WIDTH]
    graph = helper.make_graph(
        nodes,
        "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def inputs(count: int, seed: int) -> list[dict[str, Array]]:
    """Give random inputs."""
    random = np.random.default_rng(seed)
    shape = (1, TOKENS, WIDTH)
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(count)]


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # it has no types
    def __init__(self) -> None:
        self.rest = iter(inputs(8, 1))

    def get_next(self) -> dict[str, Array] | None:
        return next(self.rest, None)


def quantised(folder: Path, model: onnx.ModelProto, **options: Any) -> Path:
    """Quantise a model with `quantize_static` and give the file."""
    logging.disable(logging.WARNING)
    source, target = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(model, source)
    quantization.quantize_static(source, target, _Reader(), **options)
    logging.disable(logging.NOTSET)
    return target


def error(path: Path, reference: onnx.ModelProto) -> float:
    """Give the relative error of a model's output against another model's, over some inputs."""
    truth, got = _run(reference.SerializeToString()), _run(path.read_bytes())
    return float(np.linalg.norm(got - truth) / np.linalg.norm(truth))


def _run(data: bytes) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return np.stack([np.asarray(session.run(None, feed)[0]) for feed in inputs(4, 2)])
