"""Tests that any rule pack can run: a rule's own examples hold it to its word."""

from __future__ import annotations

import atexit
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normlint.context.settings import Settings
from normlint.deferred import dataclass
from normlint.runtime import session_of

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto, ValueInfoProto

    from normlint.results import Finding, ModelReport
    from normlint.rule import Rule

_OPSET = 17
_HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>'
_UNKNOWN_EXTENT = 3
_TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2}


@dataclass(frozen=True)
class Example:
    """A graph in ONNX text: a whole model, or a graph alone, which gets opset 17.

    `settings` are the settings under which the rule sees it.
    """

    rule: Rule
    text: str
    settings: Settings
    good: bool

    def __str__(self) -> str:
        """Name it in the words of a test's id."""
        words = self.text.partition("(")[0].split()
        return f"{self.rule.code}-{'good' if self.good else 'bad'}-{words[-1] if words else ''}"

    def model(self) -> ModelProto:
        """Parse the text."""
        from onnx import parser

        text = self.text.strip()
        if not text.startswith("<"):
            text = f"{_HEADER.format(opset=_OPSET)}\n{text}"
        return parser.parse_model(text)


def examples(rule: Rule) -> tuple[Example, ...]:
    """Give the examples of a rule, the bad ones first.

    An example is ONNX text, or a tuple of ONNX text and a dict of fields of `Settings`. `data` may
    be a dict of inputs by name there, instead of a file.
    """
    given = [(item, False) for item in rule.bad] + [(item, True) for item in rule.good]
    return tuple(_example(rule, item, good=good) for item, good in given)


def _example(rule: Rule, item: Any, *, good: bool) -> Example:
    text, chosen = (item, {}) if isinstance(item, str) else item
    if isinstance(chosen.get("data"), dict):
        chosen = {**chosen, "data": _file_of(chosen["data"])}
    return Example(rule, text, Settings(**chosen), good)


def _file_of(arrays: dict[str, Any]) -> Path:
    """Write calibration inputs where `Settings.data` finds them, until the process ends."""
    import numpy as np

    file, name = tempfile.mkstemp(suffix=".npz")
    os.close(file)
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    held: Any = {key: np.asarray(values, np.float32) for key, values in arrays.items()}
    np.savez(path, **held)
    return path


def check_example(example: Example) -> None:
    """Hold a rule to one example; raise `AssertionError` with what is wrong.

    A `good` one is not reported. A `bad` one is reported once; where it is repaired, a safe repair
    computes the same numbers, and the repaired model is not reported for a repair again.
    """
    found = _check(example, example.model()).findings
    if example.good:
        _demand(not found, f"{example} is good and reported: {[f.message for f in found]}")
        return
    _demand(len(found) == 1, f"{example} is reported {len(found)} times")
    _demand(not found[0].message.endswith("."), f"{example}: no full stop ends a message")
    if found[0].fix is None:
        return
    _check_repair(example, found[0])


def check_examples(rule: Rule) -> None:
    """Hold a rule to all its examples; raise `AssertionError` with what is wrong."""
    for example in examples(rule):
        check_example(example)


def repaired_text(example: Example) -> str:
    """Give an example in ONNX text after the rule's repair; empty where there is none."""
    from onnx import printer

    repaired = _repaired(example)
    # The printer writes the empty name of a node as `[""]`.
    return "" if repaired is None else printer.to_text(repaired.graph).strip().replace('[""] ', "")


def _check_repair(example: Example, finding: Finding) -> None:
    before, after = example.model(), _repaired(example)
    if after is None:
        raise AssertionError(f"{example} offers a repair that is not made")
    again = [f for f in _check(example, after).findings if f.fix is not None]
    _demand(not again, f"{example} is reported after its repair")
    if finding.fix is not None and finding.fix.applicability == "safe":
        _check_numbers(example, before, after)


def _demand(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)


def _check(example: Example, model: ModelProto, **options: Any) -> ModelReport:
    from normlint import engine

    report = engine.check_model(
        None,
        data=model.SerializeToString(),
        name=str(example),
        rules=(example.rule,),
        settings=example.settings,
        options=engine.Options(**options),
    )
    _demand(report.readable, f"{example} is no model")
    return report


@cache
def _repaired(example: Example) -> ModelProto | None:
    import dataclasses

    import onnx

    unsafe = dataclasses.replace(example.settings, unsafe_fixes=True)
    eager = dataclasses.replace(example, settings=unsafe)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "repaired.onnx")
        report = _check(eager, example.model(), apply=True, output=output)
        if report.written is None:
            return None
        return onnx.load(output)


def _check_numbers(example: Example, before: ModelProto, after: ModelProto) -> None:
    import numpy as np

    for seed in range(3):
        inputs = _inputs(before, np.random.default_rng(seed))
        results = _run(after, inputs)
        try:
            wanted = _run(before, inputs)
        except Exception:  # noqa: BLE001, S112 - nothing ran it: that it runs now is the repair
            continue
        for expected, got in zip(wanted, results, strict=True):
            _demand(expected.shape == got.shape, f"{example}: the repair changes a shape")
            tolerance = _TOLERANCES.get(expected.dtype.name, 2e-2)
            limit = tolerance * max(1.0, float(np.max(np.abs(expected), initial=0)))
            same = np.allclose(expected, got, rtol=0, atol=limit, equal_nan=True)
            _demand(same, f"{example}: the repair moves the numbers")


def _inputs(model: ModelProto, random: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    given = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: _values(value, random) for value in model.graph.input if value.name not in given
    }


def _values(value: ValueInfoProto, random: np.random.Generator) -> np.ndarray[Any, Any]:
    import numpy as np
    from onnx import helper

    tensor = value.type.tensor_type
    shape = [extent.dim_value or _UNKNOWN_EXTENT for extent in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return random.integers(0, 2, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)


def _run(model: ModelProto, inputs: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Run a model without optimisation; by the reference where the runtime has no kernel."""
    try:
        return list(session_of(model.SerializeToString()).run(None, inputs))
    except Exception:  # noqa: BLE001 - the runtime has no common class of its errors
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(model).run(None, inputs))
