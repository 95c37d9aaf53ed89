"""What INT8 costs a transformer with outlier channels, and what repairs give back.

Run: python benchmarks/quantised.py
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import version_converter
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
from outliers import sequences, transformer

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, Any]
    Feeds = list[dict[str, Array]]

_NORMLINT = str(Path(sysconfig.get_path("scripts")) / "normlint")
_STATIC: dict[str, Any] = {
    "quant_format": QuantFormat.QDQ,
    "activation_type": QuantType.QInt8,
    "weight_type": QuantType.QInt8,
    "per_channel": True,
}
_FORMS: dict[str, dict[str, Any]] = {
    f"{form.name} per {'channel' if channel else 'tensor'}": {
        "quant_format": form,
        "per_channel": channel,
    }
    for form in (QuantFormat.QDQ, QuantFormat.QOperator)
    for channel in (False, True)
}
_ALL = "… norms and residual additions (NL401-NL403)"
_REPAIRS = {"… norms lifted (NL401, NL402)": "NL401,NL402", _ALL: "NL401,NL402,NL403"}
_LINEAR = ["MatMul", "Gemm", "Conv", "ConvTranspose"]
_COMMON = 10
_MOVES = {"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Gather", "Concat", "Slice"}
_PER_CHANNEL = 13
"""The opset from which on DequantizeLinear has an axis."""
_LIMIT_REPAIRED, _LIMIT_PREPARED = 0.07, 0.05


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # it has no types
    def __init__(self, feeds: Feeds) -> None:
        self.rest = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self.rest, None)


def _prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make initializers of Constant nodes, for QOperator, and raise the opset to 13, for QDQ."""
    kept = []
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    raised = model.opset_import[0].version < _PER_CHANNEL
    return version_converter.convert_version(model, _PER_CHANNEL) if raised else model


class Bench:
    """One float model with inputs to calibrate with, and others to judge with."""

    def __init__(self, folder: Path, model: onnx.ModelProto, feeds: Feeds, unseen: Feeds) -> None:
        self.folder = folder
        self.float = folder / "float.onnx"
        onnx.save(_prepared(model), self.float)
        self.feeds, self.unseen = feeds, unseen
        self.data = folder / "data.npz"
        arrays = {name: np.stack([feed[name] for feed in feeds]) for name in feeds[0]}
        np.savez(self.data, **arrays)
        self.truth = self.run(self.float)

    def run(self, path: Path) -> Array:
        """Give all float outputs on the inputs to judge with, as one vector."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        found = [value for feed in self.unseen for value in session.run(None, feed)]
        return np.concatenate([value.astype(np.float64).reshape(-1) for value in found])

    def error(self, path: Path) -> float:
        """Give the relative error of a model's outputs against the float model's."""
        difference = self.run(path) - self.truth
        return float(np.linalg.norm(difference) / np.linalg.norm(self.truth))

    def quantised(self, name: str, source: Path | None = None, **options: Any) -> Path:
        """Quantise a model with `quantize_static`."""
        target = self.folder / f"{name}.onnx"
        reader = _Reader(self.feeds)
        quantization.quantize_static(source or self.float, target, reader, **_STATIC | options)
        return target

    def repaired(self, source: Path, name: str, *flags: str) -> Path:
        """Repair a model with normlint."""
        target = self.folder / f"{name}.onnx"
        command = [_NORMLINT, "check", str(source), "--apply", "-o", str(target), "--exit-zero"]
        subprocess.run([*command, *flags], check=True, capture_output=True)
        return target

    def in_float(self, source: Path) -> list[str]:
        """Give the nodes that normlint says must stay in float."""
        command = [_NORMLINT, "norms", str(source), "--list", "nodes-to-exclude"]
        names: list[str] = json.loads(
            subprocess.run(command, check=True, capture_output=True).stdout
        )
        return names

    def forms(self) -> Iterator[tuple[str, list[float]]]:
        """Give what was done, and the errors that it leaves in each form of quantisation."""
        made = [self.quantised(f"form{at}", **form) for at, form in enumerate(_FORMS.values())]
        yield "`quantize_static`, its defaults", [self.error(path) for path in made]
        for what, codes in _REPAIRS.items():
            flags = ("--unsafe-fixes", "--select", codes)
            repaired = [self.repaired(path, f"{path.stem}-{codes}", *flags) for path in made]
            yield what, [self.error(path) for path in repaired]

    def preparations(self, opset: int) -> Iterator[tuple[str, float]]:
        """Give what was done before quantisation, QDQ per channel, and the error that it leaves."""
        excluded = self.quantised("excluded", nodes_to_exclude=self.in_float(self.float))
        yield "what `norms --list nodes-to-exclude` names left out", self.error(excluded)
        linear = {"op_types_to_quantize": _LINEAR}
        yield "linear operators only", self.error(self.quantised("linear", **linear))
        prepared = self.repaired(
            *(self.float, "prepared", "--before-quantization", "--data", str(self.data)),
            *("--target-opset", str(opset)),
        )
        yield "`--before-quantization`, in float", self.error(prepared)
        smooth = self.quantised("smooth", prepared)
        yield "… then the defaults", self.error(smooth)
        repaired = self.repaired(smooth, "end", "--unsafe-fixes", "--select", "NL4")
        yield "… then the defaults, then NL401-NL405", self.error(repaired)
        ready = self.quantised("ready", prepared, **linear)
        yield "… then linear operators only", self.error(ready)

    def alone(self) -> Iterator[tuple[str, float]]:
        """Give common kinds of operators, and the error that each leaves, quantised alone."""
        kinds = Counter(node.op_type for node in onnx.load(self.float).graph.node)
        quantises = set(QLinearOpsRegistry) | set(QDQRegistry)
        computing = {kind for kind, count in kinds.items() if count >= _COMMON} - _MOVES
        for kind in sorted(computing & quantises):
            path = self.quantised(f"only-{kind}", op_types_to_quantize=[kind])
            yield f"{kind} alone", self.error(path)


def report(title: str, bench: Bench, opset: int) -> tuple[dict[str, float], dict[str, float]]:
    """Print the tables of one model; give the errors of QDQ per channel."""
    print(f"\n| {title} | {' | '.join(_FORMS)} |\n|---|{'---|' * len(_FORMS)}")
    after, before = {}, {}
    for name, errors in bench.forms():
        after[name] = errors[list(_FORMS).index("QDQ per channel")]
        print(f"| {name} | {' | '.join(f'{error:.4f}' for error in errors)} |", flush=True)
    print(f"\n| {title}, QDQ per channel | relative error |\n|---|---|")
    for name, error in bench.preparations(opset):
        before[name] = error
        print(f"| {name} | {error:.4f} |", flush=True)
    return after, before


def main() -> None:
    """Print the tables; fail where the promised errors are not reached."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), transformer(), sequences(32, 1), sequences(16, 2))
        after, before = report("4 layers, outlier channels", bench, 23)
    if after[_ALL] > _LIMIT_REPAIRED:
        sys.exit(f"the repair leaves more than {_LIMIT_REPAIRED}")
    if before["… then linear operators only"] > _LIMIT_PREPARED:
        sys.exit(f"the preparation leaves more than {_LIMIT_PREPARED}")


if __name__ == "__main__":
    main()
