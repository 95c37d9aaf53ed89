"""Repairing a random model, and everything that must hold of the result."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.inliner
import onnx.reference
import onnxruntime
from folding import ops
from google.protobuf.message import DecodeError
from onnx import TensorProto

from normlint.context import Settings
from normlint.engine import Options, check_model
from normlint.plugins import load_rules
from normlint.verify.runner import lifted

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.random_graphs import Example, Feed

    from normlint.results import ModelReport

    Array = np.ndarray[Any, Any]
    Run = Callable[[Feed], list[Array]]

TOLERANCES = {
    TensorProto.DOUBLE: 1e-7,
    TensorProto.FLOAT: 1e-4,
    TensorProto.FLOAT16: 1e-2,
    TensorProto.BFLOAT16: 5e-2,
}
_ROUNDED = 0.2
"""Tolerance where a value that is rounded to 8 bits may fall to the other side."""
_ROUNDINGS = 50.0
_TRIALS = 4
_DEFECT = "InsertedPrecisionFreeCast"
"""ONNX Runtime loses an input that it casts itself, in a subgraph and in half precision."""
_HONEST = ("large mean", "may never occur", "not even the rank")
"""What a proof may fail at: an operator that cancels by its own definition, a rank not known."""


@dataclass
class Verdict:
    """What became of one model."""

    runs: bool = True
    """Whether an engine runs the model as it was."""
    problems: list[str] = field(default_factory=list)
    fixed: Counter[str] = field(default_factory=Counter)
    """How many rewrites each rule made."""


def judge(example: Example, model: onnx.ModelProto | None = None) -> Verdict:
    """Repair a model and hold the result to everything that was promised."""
    model = example.model if model is None else model
    before = runner(model)
    if before is None or not _runs(before, example, model):
        return Verdict(runs=False)
    settings = Settings(target_opset=(None, 23, 23, 24)[example.seed % 4])
    verdict = Verdict()
    report, after = repaired(model, settings, "none")
    verdict.fixed.update(f.code for f in report.findings if f.fix is not None and f.fix.applied)
    if verdict.fixed:
        _hold(example, model, after, before, verdict)
        again, _ = repaired(after, settings, "none")
        verdict.problems += [f"not idempotent: {f.code}" for f in again.findings if made(f)]
        if not verdict.problems:
            _hold_verification(model, settings, verdict)
    elif report.written is not None:
        verdict.problems.append("written without a rewrite")
    return verdict


def repaired(
    model: onnx.ModelProto, settings: Settings, verify: str
) -> tuple[ModelReport, onnx.ModelProto]:
    """Apply the safe rules to their fixed point."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "repaired.onnx")
        report = check_model(
            None,
            data=model.SerializeToString(),
            name="model",
            rules=load_rules(),
            settings=settings,
            options=Options(apply=True, output=output, verify=verify),
        )
        return report, onnx.load(output) if report.written is not None else model


def made(finding: Any) -> bool:
    """Whether a finding was repaired."""
    return finding.fix is not None and finding.fix.applied


def _hold_verification(model: onnx.ModelProto, settings: Settings, verdict: Verdict) -> None:
    """Complain of a rewrite that is right and that the verification refuses."""
    report, _ = repaired(model, settings, "region")
    for finding in report.findings:
        if finding.code == "NL990":
            verdict.problems.append(f"a right rewrite was refused: {finding.message}")
        elif finding.not_fixed is not None and finding.not_fixed.reason == "verification":
            detail = f"{finding.code} {finding.not_fixed.detail}"
            if not any(words in detail for words in _HONEST):
                verdict.problems.append(f"a right rewrite was not proved: {detail}")


def _hold(
    example: Example, model: onnx.ModelProto, after: onnx.ModelProto, before: Run, verdict: Verdict
) -> None:
    problems = verdict.problems
    if is_valid(model) and not is_valid(after):
        problems.append("onnx.checker refuses it now")
    if session(model) is not None and session(after) is None:
        problems.append("ONNX Runtime refuses it now")
    problems += lost(model, after)
    new = runner(after)
    if new is None:
        problems.append("nothing runs it now")
        return
    # Not all operators have an engine in double; float is the truth about half precision, too.
    inlined = onnx.inliner.inline_local_functions(model)
    wide = (runner(lifted(inlined, to)) for to in (TensorProto.DOUBLE, TensorProto.FLOAT))
    truth = next(filter(None, wide), None)
    for turn, feed in enumerate(example.feeds(model)):
        old = before(feed)
        try:
            got = new(feed)
        except Exception as fault:  # noqa: BLE001 - the engine's own exceptions
            if _DEFECT in str(fault):
                return
            problems.append(f"it does not run now: {str(fault).splitlines()[0]}")
            return
        exact = _exactly(truth, feed, old)
        for index, (a, b, c) in enumerate(zip(old, got, exact, strict=True)):
            moved = _moved(a, b, c, _tolerance(example))
            if moved and not _is_ill_conditioned(truth, feed, index, model=model, new=b, exact=c):
                name = model.graph.output[index].name
                problems.append(f"{name} moved on inputs {turn}: {moved}")


def _tolerance(example: Example) -> float:
    return _ROUNDED if example.rounds else TOLERANCES[example.dtype]


def _moved(old: Array, new: Array, exact: Array, tolerance: float) -> str:
    if old.shape != new.shape or old.dtype != new.dtype:
        return f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
    if old.dtype.kind not in "fV":
        return "" if bool((old == new).all()) else "integers differ"
    before, after, truth = (a.astype(np.float64) for a in (old, new, exact))
    usable = np.isfinite(before) & np.isfinite(truth)
    if not usable.any():
        return ""
    if not np.isfinite(after[usable]).all():
        return "no longer finite"
    scale = max(float(np.abs(truth[usable]).max()), 1e-6)
    old_error = float(np.abs(before - truth)[usable].max())
    error = float(np.abs(after - truth)[usable].max())
    if error <= max(2 * old_error, tolerance * scale):
        return ""
    return f"by {error:.3g} at a scale of {scale:.3g}, the old error was {old_error:.3g}"


def _is_ill_conditioned(
    truth: Run | None, feed: Feed, index: int, *, model: onnx.ModelProto, new: Array, exact: Array
) -> bool:
    """Whether roundings of the inputs and weights move an output as far as it is off."""
    error = _distance(new, exact)
    for seed in range(_TRIALS):
        random = np.random.default_rng(seed)
        other = _with_nudged_weights(model, random)
        nudged = {name: _nudged(values, random) for name, values in feed.items()}
        for run, given in ((runner(other), feed), (runner(model), nudged), (truth, nudged)):
            if run is None:
                continue
            with contextlib.suppress(Exception):
                moved = run(given)[index]
                if moved.shape == exact.shape and error <= _ROUNDINGS * _distance(moved, exact):
                    return True
    return False


def _with_nudged_weights(model: onnx.ModelProto, random: np.random.Generator) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for tensor in other.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype.kind in "fV" and values.size > 1:
            tensor.CopyFrom(onnx.numpy_helper.from_array(_nudged(values, random), tensor.name))
    return other


def _distance(a: Array, b: Array) -> float:
    return float(np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0))


def _nudged(values: Array, random: np.random.Generator) -> Array:
    """Move every float by one rounding."""
    if values.dtype.kind not in "fV" or values.dtype.itemsize == 1:  # which are integers of 4 bits
        return values
    signs = random.choice([-1, 1], values.shape)
    return np.asarray(values.astype(np.float64) * (1 + _unit(values) * signs), values.dtype)


def _unit(values: Array) -> float:
    return {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-23}[values.dtype.itemsize]


def _exactly(truth: Run | None, feed: Feed, old: list[Array]) -> list[Array]:
    """Compute in double; where no engine can, or gives other extents, the old values stand."""
    try:
        exact = truth(feed) if truth is not None else old
    except Exception:  # noqa: BLE001 - no engine for an operator in double
        return old
    return [e if e.shape == o.shape else o for e, o in zip(exact, old, strict=True)]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession | None:
    """Load a model without optimisation; None where the runtime refuses it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception:  # noqa: BLE001 - a model that the runtime has no kernel for
        return None


def runner(model: onnx.ModelProto) -> Run | None:
    """Give what runs a model: ONNX Runtime, or onnx's reference evaluator where that is right."""
    model = _unnamed(model)
    wanted = {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
    # The runtime's door takes no bfloat16 from numpy.
    loaded = None if TensorProto.BFLOAT16 in wanted.values() else session(model)
    if loaded is not None:
        return lambda feed: [np.asarray(r) for r in loaded.run(None, _typed(feed, wanted))]
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    called = [node.op_type for function in model.functions for node in function.node]
    found = {*ops(model), *called}
    if "Loop" in found:
        return None  # what is collected it concatenates, where it should stack
    if "ConvTranspose" in found or ("BatchNormalization" in found and opset < 14):
        return None  # groups with a bias; it takes the statistics of the batch
    try:
        evaluator = onnx.reference.ReferenceEvaluator(model)
    except Exception:  # noqa: BLE001 - it has gaps, and fails in many ways
        return None

    def run(feed: Feed) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in evaluator.run(None, _typed(feed, wanted))]

    return run


def _unnamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Take the names of the nodes away: the runtime refuses two of one name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    pending = [copy.graph.node, *(function.node for function in copy.functions)]
    while pending:
        for node in pending.pop():
            node.name = ""
            pending.extend(a.g.node for a in node.attribute if a.HasField("g"))
    return copy


def _typed(feed: Feed, wanted: dict[str, int]) -> Feed:
    return {
        name: np.asarray(values, onnx.helper.tensor_dtype_to_np_dtype(wanted[name]))
        for name, values in feed.items()
    }


def _runs(run: Run, example: Example, model: onnx.ModelProto) -> bool:
    try:
        for feed in example.feeds(model):
            run(feed)
    except Exception:  # noqa: BLE001 - the engine's own exceptions
        return False
    return True


def is_valid(model: onnx.ModelProto) -> bool:
    """Whether onnx's checker passes a model, inference included."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, DecodeError):
        return False
    return True


def lost(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    """Say what a model lost that no rewrite has to do with."""
    problems = [
        f"{name} changed"
        for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string")
        if getattr(before, name) != getattr(after, name)
    ]
    if list(before.metadata_props) != list(after.metadata_props):
        problems.append("metadata_props changed")
    if list(before.graph.output) != list(after.graph.output):
        problems.append("outputs changed")
    own = {tensor.name for tensor in before.graph.initializer}
    if before.ir_version >= 4:
        own = set()
    given = [value for value in before.graph.input if value.name not in own]
    if [value for value in after.graph.input if value.name not in own] != given:
        problems.append("inputs changed")
    kept = {tensor.name: tensor.SerializeToString() for tensor in before.graph.initializer}
    problems += [
        f"weight {tensor.name} changed in place"
        for tensor in after.graph.initializer
        if kept.get(tensor.name, tensor.SerializeToString()) != tensor.SerializeToString()
    ]
    old = {node.output[0]: node for node in before.graph.node if node.output}
    for node in after.graph.node:
        twin = old.get(node.output[0]) if node.output else None
        if twin is None or list(twin.input) != list(node.input) or twin.op_type != node.op_type:
            continue
        same = node.name == twin.name and node.doc_string == twin.doc_string
        if not same or list(node.metadata_props) != list(twin.metadata_props):
            problems.append(f"node {node.output[0]} lost its name or metadata")
    return problems
