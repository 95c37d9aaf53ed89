"""Running a small model without optimisation, in its own types and in double."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from normlint.runtime import session_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Feed = dict[str, np.ndarray[Any, Any]]
    Run = Callable[[Feed], list[np.ndarray[Any, Any]]]

_LIFTED = (TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPED_ATTRIBUTES = frozenset(("to", "dtype", "stash_type", "output_dtype"))
_REFERENCE_IS_WRONG = 14
"""Below this opset onnx's reference evaluator computes BatchNormalization with batch statistics."""
_LARGEST_FOR_REFERENCE = 1 << 22
"""Elements of weights above which the reference evaluator would take too long."""

_LARGE = 1 << 20
"""Bytes of a weight from which on it is fed, not part of the model that runs."""
_FED = (TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16)
"""Types of arrays that the runtime takes."""


class CannotRun(Exception):  # noqa: N818 - it is no error of the user's
    """No engine runs the model."""


def own_types(model: ModelProto) -> Run:
    """Give a function that runs the model as it is. Raises CannotRun."""
    return _first(model, (_runtime, _reference))


def double(model: ModelProto) -> Run:
    """Give a function that runs the model with double in place of every narrower float."""
    return _first(lifted(model, TensorProto.DOUBLE), (_runtime, _reference))


def single(model: ModelProto) -> Run:
    """Give a function that runs the model with float in place of every other float type."""
    return _first(lifted(model, TensorProto.FLOAT), (_runtime, _reference))


def _first(model: ModelProto, engines: Iterable[Callable[[ModelProto], Run]]) -> Run:
    reasons = []
    for engine in engines:
        try:
            return engine(model)
        except Exception as fault:  # noqa: BLE001 - each engine has its own exceptions
            reasons.append(str(fault).strip().split("\n", maxsplit=1)[0])
    raise CannotRun("; ".join(reasons))


def _runtime(model: ModelProto) -> Run:
    values = (*model.graph.input, *model.graph.output)
    if any(value.type.tensor_type.elem_type == TensorProto.BFLOAT16 for value in values):
        raise CannotRun("the runtime's door takes no bfloat16 from numpy")
    model, weights = _apart(model)
    session = session_of(model.SerializeToString(), threads=1)
    inputs = session.get_inputs()
    wanted = {value.name: value.type for value in inputs if value.name not in weights}

    def run(feed: Feed) -> list[np.ndarray[Any, Any]]:
        given = {name: _as_wanted(feed[name], kind) for name, kind in wanted.items()}
        return [np.asarray(result) for result in session.run(None, given | weights)]

    return run


def _apart(model: ModelProto) -> tuple[ModelProto, Feed]:
    """Make inputs of large weights: a session would hold three copies of them to begin with."""
    results = {value.name for value in model.graph.output}
    large = [
        tensor
        for tensor in model.graph.initializer
        if tensor.ByteSize() >= _LARGE and tensor.data_type in _FED and tensor.name not in results
    ]
    if not large:
        return model, {}
    names = {tensor.name for tensor in large}
    bare = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph, given = bare.graph, model.graph
    graph.name = given.name
    graph.node.extend(given.node)
    graph.output.extend(given.output)
    graph.value_info.extend(given.value_info)
    graph.input.extend(value for value in given.input if value.name not in names)
    graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in large
    )
    graph.initializer.extend(t for t in given.initializer if t.name not in names)
    return bare, {tensor.name: _viewed(tensor) for tensor in large}


def _viewed(tensor: TensorProto) -> np.ndarray[Any, Any]:
    """Give the values of a tensor; a second copy of them only where they are no raw bytes."""
    if not tensor.raw_data:
        return onnx.numpy_helper.to_array(tensor)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return np.frombuffer(tensor.raw_data, dtype).reshape(tuple(tensor.dims))


def _as_wanted(values: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    types = {
        "tensor(float)": np.float32,
        "tensor(double)": np.float64,
        "tensor(float16)": np.float16,
    }
    return values.astype(types[kind], copy=False) if kind in types else values


def _reference(model: ModelProto) -> Run:
    from onnx.reference import ReferenceEvaluator

    opset = next((o.version for o in model.opset_import if o.domain in {"", "ai.onnx"}), 0)
    ops = {node.op_type for node in model.graph.node}
    if "BatchNormalization" in ops and opset < _REFERENCE_IS_WRONG:
        raise CannotRun("onnx.reference has no BatchNormalization of this opset")
    if any(node.op_type == "ConvTranspose" and _groups(node) > 1 for node in model.graph.node):
        raise CannotRun("onnx.reference gives every group of a ConvTranspose the bias of the first")
    weights = sum(int(np.prod(t.dims, dtype=np.int64)) for t in model.graph.initializer)
    if weights > _LARGEST_FOR_REFERENCE:
        raise CannotRun("too large for onnx.reference")
    evaluator = ReferenceEvaluator(model)
    types = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}

    def run(feed: Feed) -> list[np.ndarray[Any, Any]]:
        given = {
            name: feed[name].astype(onnx.helper.tensor_dtype_to_np_dtype(kind), copy=False)
            if kind
            else feed[name]
            for name, kind in types.items()
        }
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in evaluator.run(None, given)]

    return run


def _groups(node: NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)


def lifted(model: ModelProto, to: int) -> ModelProto:
    """Give the model with one float type in place of every other one."""
    wide = ModelProto()
    wide.CopyFrom(model)
    narrow = [dtype for dtype in _LIFTED if dtype != to]
    pending = [wide.graph]
    while pending:
        graph = pending.pop()
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in narrow:
                value.type.tensor_type.elem_type = to
        for tensor in graph.initializer:
            _lift_tensor(tensor, narrow, to)
        for node in graph.node:
            for attribute in node.attribute:
                _lift_attribute(attribute, narrow, to)
                if attribute.type == AttributeProto.GRAPH:
                    pending.append(attribute.g)
    return wide


def _lift_attribute(attribute: AttributeProto, narrow: Sequence[int], to: int) -> None:
    if attribute.name in _TYPED_ATTRIBUTES and attribute.i in narrow:
        attribute.i = to if attribute.name != "stash_type" else TensorProto.FLOAT
    if attribute.type == AttributeProto.TENSOR:
        _lift_tensor(attribute.t, narrow, to)


def _lift_tensor(tensor: TensorProto, narrow: Sequence[int], to: int) -> None:
    if tensor.data_type not in narrow:
        return
    values = onnx.numpy_helper.to_array(tensor)
    name = tensor.name
    tensor.CopyFrom(
        onnx.numpy_helper.from_array(values.astype(onnx.helper.tensor_dtype_to_np_dtype(to)), name)
    )
