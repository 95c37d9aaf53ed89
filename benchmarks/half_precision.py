"""Exports in float16: which norms are reported, and what their repair computes where they overflow.

Run: python benchmarks/half_precision.py MODEL... Each model is given tables and inputs that grow
until it overflows, in an evaluator that computes in the types that the file says: ONNX Runtime's
CPU computes float16 in float and hides it. The truth is the same model in double.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, inliner, numpy_helper
from onnx.reference import ReferenceEvaluator

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
    Feed = dict[str, Array]

_NORMLINT = str(Path(sysconfig.get_path("scripts")) / "normlint")
_FUSED = [("", "LayerNormalization"), ("", "RMSNormalization"), ("", "GroupNormalization")]
_HALF, _DOUBLE = TensorProto.FLOAT16, TensorProto.DOUBLE
_LARGEST_POWER = 18
_LARGEST = 8192.0
"""Of tables and inputs: what is added up of some of them fits float16."""
_WRONG = 0.1


def normlint(command: str, path: Path, *flags: str) -> dict[str, Any]:
    """Run normlint and give what it says of one model."""
    ran = subprocess.run(
        [_NORMLINT, command, str(path), "--output-format", "json", *flags],
        check=True,
        capture_output=True,
    )
    model: dict[str, Any] = json.loads(ran.stdout)["models"][0]
    return model


def counts(path: Path) -> tuple[int, int, int]:
    """Count norms with statistics in half precision, those in float, and reports of NL501."""
    norms = [norm for norm in normlint("norms", path)["norms"] if norm["kind"] != "BatchNorm"]
    half = sum(norm["statistics_type"] in {"float16", "bfloat16"} for norm in norms)
    found = normlint("check", path, "--select", "NL501", "--exit-zero")["findings"]
    return half, len(norms) - half, len(found)


def in_order(model: ModelProto) -> ModelProto:
    """Sort the nodes: a tool that casts models writes them as it makes them."""
    ready = {tensor.name for tensor in (*model.graph.initializer, *model.graph.input)} | {""}
    rest, done = list(model.graph.node), []
    while rest:
        fit = [node for node in rest if ready.issuperset(node.input)]
        if not fit:
            break
        done.extend(fit)
        ready.update(name for node in fit for name in node.output)
        rest = [node for node in rest if not ready.issuperset(node.output)]
    del model.graph.node[:]
    model.graph.node.extend(done or rest)
    return model


def evaluate(model: ModelProto, feed: Feed) -> Array:
    """Give the float outputs in the types that the file says, as one vector."""
    typed = ModelProto.FromString(model.SerializeToString())
    known = {value.name for value in typed.graph.input}
    typed.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in typed.graph.initializer
        if tensor.name not in known
    )
    inlined = inliner.inline_selected_functions(typed, _FUSED, inline_schema_functions=True)
    with np.errstate(all="ignore"):
        found = ReferenceEvaluator(inlined).run(None, feed)
    floats = [np.asarray(y, np.float64).reshape(-1) for y in found if y.dtype.kind == "f"]
    return np.concatenate(floats)


def in_double(model: ModelProto) -> ModelProto:
    """Give a model with double in the place of float16 and float."""
    wide = ModelProto.FromString(model.SerializeToString())
    narrow = {_HALF, TensorProto.FLOAT}
    for tensor in wide.graph.initializer:
        if tensor.data_type in narrow:
            values = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type in narrow:
            value.type.tensor_type.elem_type = _DOUBLE
    del wide.graph.value_info[:]
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.name in {"to", "dtype"} and attribute.i in narrow:
                attribute.i = _DOUBLE
            if attribute.HasField("t") and attribute.t.data_type in narrow:
                values = numpy_helper.to_array(attribute.t).astype(np.float64)
                attribute.t.CopyFrom(numpy_helper.from_array(values))
    return wide


def grown(model: ModelProto, power: int) -> ModelProto:
    """Multiply the tables that rows are gathered from."""
    larger = ModelProto.FromString(model.SerializeToString())
    tables = {node.input[0] for node in larger.graph.node if node.op_type == "Gather"}
    for tensor in larger.graph.initializer:
        if tensor.name in tables and tensor.data_type == _HALF:
            values = numpy_helper.to_array(tensor).astype(np.float64) * 2.0**power
            fitting = np.clip(values, -_LARGEST, _LARGEST).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(fitting, tensor.name))
    return larger


def feed_of(model: ModelProto, power: int) -> Feed:
    """Give random inputs: numbers of tokens, and floats of some size."""
    random = np.random.default_rng(1)
    own = {tensor.name for tensor in model.graph.initializer}
    feed: Feed = {}
    for value in model.graph.input:
        if value.name in own:
            continue
        kind = value.type.tensor_type
        shape = [extent.dim_value or 2 for extent in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            values = 2.0**power * random.standard_normal(shape)
            feed[value.name] = np.clip(values, -_LARGEST, _LARGEST).astype(dtype)
        else:
            feed[value.name] = random.integers(0, 2, shape).astype(dtype)
    return feed


def wide_feed(feed: Feed) -> Feed:
    """Give the inputs in double."""
    return {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in feed.items()}


def errors(path: Path, target_opset: int) -> tuple[int, float, float] | None:
    """Give the power of two at which a model overflows, and the errors before and after repair."""
    model = in_order(onnx.load(path))
    for power in range(0, _LARGEST_POWER, 2):
        before, feed = grown(model, power), feed_of(model, power)
        truth = evaluate(in_double(before), wide_feed(feed))
        if error(evaluate(before, feed), truth) > _WRONG:
            break
    else:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(before, source)
        flags = ["--target-opset", str(target_opset)] if target_opset else []
        flags += ["--apply", "--select", "NL501", "-o", str(target), "--exit-zero"]
        normlint("check", source, *flags)
        after = onnx.load(target)
    found = [error(evaluate(which, feed), truth) for which in (before, after)]
    return power, found[0], found[1]


def error(got: Array, truth: Array) -> float:
    """Give the relative error; infinite where there is something else than numbers."""
    if not np.isfinite(got).all():
        return float("inf")
    return float(np.linalg.norm(got - truth) / np.linalg.norm(truth))


def main() -> None:
    """Print a row for each model."""
    logging.disable(logging.WARNING)
    print("| model | half | float | NL501 | overflows at | before | in islands | as operators |")
    print("|---|---|---|---|---|---|---|---|")
    for path in map(Path, sys.argv[1:]):
        half, wide, found = counts(path)
        row = [path.stem, str(half), str(wide), str(found)]
        try:
            islands, operators = errors(path, 0), errors(path, 23)
        except (RuntimeError, TypeError, ValueError) as fault:
            row += [f"not evaluated: {str(fault).splitlines()[0][:60]}", "", "", ""]
        else:
            row += ["never", "", "", ""] if islands is None or operators is None else []
            if islands is not None and operators is not None:
                row += [f"2^{islands[0]}", f"{islands[1]:.3g}", f"{islands[2]:.3g}"]
                row.append(f"{operators[2]:.3g}")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
