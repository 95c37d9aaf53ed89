"""Repairing models with the rules about BatchNorms alone, and comparing what they compute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
from onnx import parser

from normlint import engine
from normlint.context import Settings
from normlint.plugins import rule_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.results import Finding, ModelReport

FOLDS = ("NL101", "NL102", "NL103", "NL104", "NL111")
HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
NORM = "float[2] s = {1.5,-2}, float[2] b = {0.5,1}, float[2] m = {0.1,-0.3}, float[2] v = {0.5,2}"
"""Parameters of a BatchNorm of two channels, in ONNX text."""
CONV = "float[2,2,2,2] w = {1,2,3,4,-1,0.5,2,1,0.25,-2,1,1,3,-1,2,0.5}"
"""Weight of a convolution of two channels to two."""


def model_of(text: str) -> onnx.ModelProto:
    """Parse ONNX text; a graph alone gets opset 17."""
    text = text.strip()
    return parser.parse_model(text if text.startswith("<") else f"{HEADER}\n{text}")


def repaired(
    model: onnx.ModelProto,
    *,
    rules: tuple[str, ...] = FOLDS,
    verify: str = "none",
    **settings: object,
) -> tuple[ModelReport, onnx.ModelProto]:
    """Apply rules to a model. Verification is off, so that it cannot hide a wrong fold."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "repaired.onnx")
        report = engine.check_model(
            None,
            data=model.SerializeToString(),
            name="model",
            rules=tuple(rule for code in rules if (rule := rule_of(code)) is not None),
            settings=Settings(**settings),  # type: ignore[arg-type]
            options=engine.Options(apply=True, output=output, verify=verify),
        )
        return report, onnx.load(output) if output.exists() else model


def ops(model: onnx.ModelProto) -> list[str]:
    """Give the operators of a graph and its subgraphs, without constants."""
    found = []
    pending = [model.graph]
    while pending:
        for node in pending.pop().node:
            if node.op_type != "Constant":
                found.append(node.op_type)
            pending.extend(a.g for a in node.attribute if a.HasField("g"))
    return found


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def feeds(
    model: onnx.ModelProto, shapes: dict[str, tuple[int, ...]] | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Give inputs with several spreads and means."""
    own = {tensor.name for tensor in model.graph.initializer}
    for deviation, mean in ((1.0, 0.0), (0.02, 0.0), (1.0, 3.0)):
        random = np.random.default_rng(7)
        feed = {}
        for value in model.graph.input:
            if value.name in own:
                continue
            tensor = value.type.tensor_type
            shape = (shapes or {}).get(value.name)
            if shape is None:
                shape = tuple(extent.dim_value or 3 for extent in tensor.shape.dim)
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            if kind == np.bool_:
                feed[value.name] = np.array(deviation == 1.0).reshape(shape)
                continue
            feed[value.name] = (random.standard_normal(shape) * deviation + mean).astype(kind)
        yield feed


def assert_same(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    *,
    tolerance: float = 2e-4,
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> None:
    """Hold two models to the same outputs, relative to the scale of each."""
    onnx.checker.check_model(after)
    old, new = session(before), session(after)
    for feed in feeds(before, shapes):
        for expected, got in zip(old.run(None, feed), new.run(None, feed), strict=True):
            assert got.shape == expected.shape
            assert got.dtype == expected.dtype
            wanted, given = expected.astype(np.float64), got.astype(np.float64)
            usable = np.isfinite(wanted)
            scale = max(float(np.abs(wanted[usable]).max(initial=0)), 1e-6)
            error = float(np.abs(wanted - given)[usable].max(initial=0))
            assert error <= tolerance * scale, f"{error:.3g} at a scale of {scale:.3g}"


def folded(text: str, **settings: object) -> onnx.ModelProto:
    """Repair a model given as text, hold it to the same numbers, and give it."""
    before = model_of(text)
    _, after = repaired(before, **settings)  # type: ignore[arg-type]
    assert_same(before, after)
    return after


def reasons(text: str, **settings: object) -> list[str]:
    """Give why the BatchNorms of a model stay, and hold it to the same numbers."""
    before = model_of(text)
    report, after = repaired(before, **settings)  # type: ignore[arg-type]
    assert_same(before, after)
    return [reason_of(finding) for finding in report.findings if finding.code == "NL111"]


def reason_of(finding: Finding) -> str:
    return "" if finding.not_fixed is None else finding.not_fixed.reason
