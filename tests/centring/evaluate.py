"""A small evaluator in float64, written apart from the one that the tool verifies with."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper

Array = np.ndarray[Any, Any]
Values = dict[str, Array]


def run(model: onnx.ModelProto, feeds: Values) -> list[Array]:
    """Compute the outputs of a model; everything that is a float is computed in float64."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    opset = next(o.version for o in model.opset_import if o.domain in {"", "ai.onnx"})
    values = graph_values(model.graph, {k: wide(v) for k, v in feeds.items()}, opset)
    return [values[output.name] for output in model.graph.output]


def wide(values: Array) -> Array:
    return values.astype(np.float64) if values.dtype.kind in "fV" else values


def graph_values(graph: onnx.GraphProto, outer: Values, opset: int) -> Values:
    values = {"": np.zeros(0)}
    for tensor in graph.initializer:
        if tensor.name not in outer:
            values[tensor.name] = wide(numpy_helper.to_array(tensor))
    values = {**outer, **values} if graph.input == [] else {**values, **outer}
    for node in graph.node:
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "If":
            chosen = attrs["then_branch" if values[node.input[0]] else "else_branch"]
            inner = graph_values(chosen, values, opset)
            results: Any = [inner[output.name] for output in chosen.output]
        else:
            inputs = [values[name] if name else None for name in node.input]
            while inputs and inputs[-1] is None:
                inputs.pop()
            results = OPERATORS[node.op_type](attrs, opset, *inputs)
        if not isinstance(results, (list, tuple)):
            results = [results]
        values.update(zip(node.output, results, strict=False))
    return values


def layer_norm(attrs: Any, _: int, x: Array, scale: Array, bias: Any = 0.0) -> Array:
    axes = tuple(range(attrs.get("axis", -1) % x.ndim, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = (centred**2).mean(axis=axes, keepdims=True)
    result: Array = centred / np.sqrt(variance + attrs.get("epsilon", 1e-5)) * scale + bias
    return result


def rms_norm(attrs: Any, _: int, x: Array, scale: Array) -> Array:
    axes = tuple(range(attrs.get("axis", -1) % x.ndim, x.ndim))
    square = (x**2).mean(axis=axes, keepdims=True)
    result: Array = x / np.sqrt(square + attrs.get("epsilon", 1e-5)) * scale
    return result


def skip(norm: Any, bias: int) -> Any:
    """Give a norm of a sum, which is its fourth output."""

    def run_it(attrs: Any, opset: int, x: Array, *more: Any) -> list[Any]:
        given = [*more, *[None] * 4]
        total = x + given[0] + (0.0 if given[bias - 1] is None else given[bias - 1])
        attrs = {"epsilon": 1e-12, **attrs}
        shift = () if given[2] is None or bias == 3 else (given[2],)
        return [norm(attrs, opset, total, given[1], *shift), None, None, total]

    return run_it


def embedded(attrs: Any, opset: int, ids: Array, segments: Any, *more: Any) -> list[Any]:
    """Give the norm of a sum of embeddings, and as third output the sum."""
    words, positions, kinds, scale, bias = more[:5]
    total = words[ids] + positions[: ids.shape[1]]
    total = total if kinds is None else total + kinds[segments]
    attrs = {"epsilon": 1e-12, **attrs}
    return [layer_norm(attrs, opset, total, scale, bias), None, total]


def biased(attrs: Any, _: int, x: Array, bias: Any = 0.0) -> Array:
    """Compute the approximation of GELU by tanh, of a sum."""
    del attrs
    y = x + bias
    return np.asarray(y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))) / 2)


def gemm(attrs: Any, _: int, a: Array, b: Array, c: Any = None) -> Array:
    a = a.T if attrs.get("transA") else a
    b = b.T if attrs.get("transB") else b
    result: Array = attrs.get("alpha", 1.0) * (a @ b)
    return result if c is None else result + attrs.get("beta", 1.0) * c


def reduce(function: Any) -> Any:
    def run_it(attrs: Any, _: int, x: Array, axes: Any = None) -> Array:
        over = attrs.get("axes") if axes is None else axes
        where = None if over is None else tuple(int(axis) for axis in over)
        return np.asarray(function(x, axis=where, keepdims=bool(attrs.get("keepdims", 1))))

    return run_it


def conv(attrs: Any, _: int, x: Array, weight: Array, bias: Any = None) -> Array:
    """Compute a convolution without padding or with it, of any rank, one tap at a time."""
    groups, rank = attrs.get("group", 1), x.ndim - 2
    pads, strides = attrs.get("pads", [0] * 2 * rank), attrs.get("strides", [1] * rank)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    kernel = weight.shape[2:]
    extents = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, strides, strict=True)]
    x = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    weight = weight.reshape(groups, -1, *weight.shape[1:])
    result = np.zeros((x.shape[0], groups, weight.shape[1], *extents))
    for tap in np.ndindex(*kernel):
        window = tuple(
            slice(t, t + s * (n - 1) + 1, s) for t, s, n in zip(tap, strides, extents, strict=True)
        )
        part = x[(slice(None),) * 3 + window]
        result += np.einsum("bgc...,goc->bgo...", part, weight[(slice(None),) * 3 + tap])
    result = result.reshape(x.shape[0], -1, *extents)
    return result if bias is None else result + bias.reshape(-1, *(1,) * rank)


def softmax(attrs: Any, opset: int, x: Array) -> Array:
    if opset < 13:
        axis = attrs.get("axis", 1) % x.ndim
        flat = x.reshape(int(np.prod(x.shape[:axis])), -1)
        return softmax({"axis": -1}, 13, flat).reshape(x.shape)
    axis = attrs.get("axis", -1)
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def sliced(attrs: Any, _: int, x: Array, starts: Any = None, ends: Any = None, *more: Any) -> Array:
    starts = attrs["starts"] if starts is None else starts
    ends = attrs["ends"] if ends is None else ends
    axes = more[0] if more else attrs.get("axes", range(len(starts)))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    where = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        where[axis] = slice(start, end if end > -1000 else None, step)
    return x[tuple(where)]


def split(attrs: Any, _: int, x: Array, sizes: Any = None) -> list[Array]:
    parts = attrs.get("split") if sizes is None else sizes
    assert parts is not None
    return np.split(x, np.cumsum(parts)[:-1], axis=attrs.get("axis", 0))


def padded(attrs: Any, _: int, x: Array, pads: Any, value: Any = 0.0) -> Array:
    half = len(pads) // 2
    cut = [
        slice(max(-b, 0), n - max(-e, 0))
        for b, e, n in zip(pads[:half], pads[half:], x.shape, strict=True)
    ]
    x = x[tuple(cut)]
    pads = np.maximum(pads, 0)
    widths = list(zip(pads[:half], pads[half:], strict=True))
    mode = attrs.get("mode", b"constant").decode()
    if mode == "constant":
        return np.pad(x, widths, constant_values=float(value))
    return np.asarray(np.pad(x, widths, mode=mode))


def unsqueezed(attrs: Any, _: int, x: Array, axes: Any = None) -> Array:
    return np.expand_dims(x, tuple(int(a) for a in (attrs["axes"] if axes is None else axes)))


def reshaped(attrs: Any, _: int, x: Array, shape: Array) -> Array:
    del attrs
    extents = [x.shape[k] if e == 0 else int(e) for k, e in enumerate(shape)]
    return x.reshape(extents)


def casted(attrs: Any, _: int, x: Array) -> Array:
    to = onnx.helper.tensor_dtype_to_np_dtype(attrs["to"])
    return wide(x.astype(to)) if to.kind != "f" else wide(x)


def pooled(attrs: Any, _: int, x: Array) -> Array:
    size = attrs["kernel_shape"][0]
    return x.reshape(*x.shape[:2], -1, size).mean(-1)


def best(function: Any) -> Any:
    def run_it(attrs: Any, _: int, x: Array) -> Array:
        axis = attrs.get("axis", 0)
        found = np.asarray(function(x, axis=axis))
        return np.expand_dims(found, axis) if attrs.get("keepdims", 1) else found

    return run_it


def gathered(attrs: Any, _: int, x: Array, indices: Array) -> Array:
    return np.asarray(np.take(x, indices, axis=attrs.get("axis", 0)))


def dequantised(attrs: Any, _: int, x: Array, scale: Array, zero: Any = 0) -> Array:
    del attrs
    return np.asarray((x.astype(np.float64) - zero) * scale)


def constant(attrs: Any, _: int) -> Array:
    return wide(numpy_helper.to_array(attrs["value"]))


OPERATORS: dict[str, Any] = {
    "Add": lambda _a, _o, x, y: x + y,
    "Sub": lambda _a, _o, x, y: x - y,
    "Mul": lambda _a, _o, x, y: x * y,
    "Div": lambda _a, _o, x, y: x / y,
    "Pow": lambda _a, _o, x, y: x**y,
    "Sum": lambda _a, _o, *xs: sum(xs),
    "Neg": lambda _a, _o, x: -x,
    "Abs": lambda _a, _o, x: np.abs(x),
    "Sqrt": lambda _a, _o, x: np.sqrt(x),
    "Reciprocal": lambda _a, _o, x: 1 / x,
    "Relu": lambda _a, _o, x: np.maximum(x, 0),
    "Tanh": lambda _a, _o, x: np.tanh(x),
    "Identity": lambda _a, _o, x: x,
    "Where": lambda _a, _o, c, x, y: np.where(c, x, y),
    "MatMul": lambda _a, _o, x, y: x @ y,
    "Einsum": lambda a, _o, *xs: np.einsum(a["equation"].decode(), *xs),
    "Concat": lambda a, _o, *xs: np.concatenate(xs, axis=a["axis"]),
    "Transpose": lambda a, _o, x: np.transpose(x, a.get("perm")),
    "Flatten": lambda a, _o, x: x.reshape(int(np.prod(x.shape[: a.get("axis", 1)])), -1),
    "Squeeze": lambda _a, _o, x, axes: np.squeeze(x, tuple(int(a) for a in axes)),
    "Expand": lambda _a, _o, x, s: x * np.ones([int(e) for e in s]),
    "Tile": lambda _a, _o, x, r: np.tile(x, [int(e) for e in r]),
    "Shape": lambda _a, _o, x: np.asarray(x.shape, np.int64),
    "Size": lambda _a, _o, x: np.asarray(x.size, np.int64),
    "ReduceMean": reduce(np.mean),
    "ReduceSum": reduce(np.sum),
    "ReduceMax": reduce(np.max),
    "ArgMax": best(np.argmax),
    "ArgMin": best(np.argmin),
    "GlobalAveragePool": lambda _a, _o, x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "SkipLayerNormalization": skip(layer_norm, 4),
    "SkipSimplifiedLayerNormalization": skip(rms_norm, 3),
    "EmbedLayerNormalization": embedded,
    "FastGelu": biased,
    "FusedGemm": lambda a, o, *xs: np.maximum(gemm(a, o, *xs), 0),
    "FusedMatMul": lambda a, _o, x, y: (
        a.get("alpha", 1.0) * (x @ (y.swapaxes(-1, -2) if a.get("transB") else y))
    ),
    "Gemm": gemm,
    "Conv": conv,
    "Softmax": softmax,
    "Slice": sliced,
    "Split": split,
    "Pad": padded,
    "Unsqueeze": unsqueezed,
    "Reshape": reshaped,
    "Cast": casted,
    "AveragePool": pooled,
    "Gather": gathered,
    "DequantizeLinear": dequantised,
    "Constant": constant,
}
