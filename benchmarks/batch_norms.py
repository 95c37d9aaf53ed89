"""Count the BatchNormalization nodes that tools leave in models, and the models they get wrong.

    python benchmarks/batch_norms.py FOLDER...

Every `*.onnx` of the folders is given to every tool that is installed (ONNX Runtime, onnxsim,
onnxslim, onnxoptimizer, onnxscript), each in a process of its own, and to `normlint check
--apply`. Only models that hold a BatchNormalization and run in ONNX Runtime, the same each time,
count. A model is wrong where an output differs from the original's by more than a thousandth (a
fiftieth in half precision) of its scale, or where it no longer runs. Then the reasons that normlint
gives for those that stay are counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from tools import TOOLS

NORMLINT = "normlint"
SECONDS = 120


def main(folders: list[str]) -> None:
    """Print the table."""
    models = [path for folder in folders for path in sorted(Path(folder).glob("*.onnx"))]
    models = [path for path in models if batch_norms(path) and is_same(path, path)]
    total = sum(batch_norms(path) for path in models)
    print(f"{total} BatchNormalization nodes in {len(models)} models\n")
    print("| tool | left | models wrong | models refused |\n|---|---|---|---|")
    reasons: Counter[str] = Counter()
    for tool in [NORMLINT, *TOOLS]:
        left, wrong, refused = judge(tool, models, reasons)
        print(f"| {tool} | {left} | {wrong} | {refused} |")
    print("\n| why normlint leaves them | BatchNorms |\n|---|---|")
    for reason, count in reasons.most_common():
        print(f"| {reason} | {count} |")


def judge(tool: str, models: list[Path], reasons: Counter[str]) -> tuple[int, int, int]:
    """Run one tool on all models; what it cannot write is left as it was.

    Add the reasons that normlint gives.
    """
    left = wrong = refused = 0
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "out.onnx")
            run(tool, model, target)
            if not target.exists():
                refused += 1
                left += batch_norms(model)
                continue
            left += batch_norms(target)
            if tool == NORMLINT:
                reasons.update(reasons_of(target))
            wrong += not is_same(model, target)
    return left, wrong, refused


def run(tool: str, source: Path, target: Path) -> None:
    """Run a tool in a process of its own."""
    if tool == NORMLINT:
        command = [
            NORMLINT,
            "check",
            "--apply",
            "--exit-zero",
            "-q",
            str(source),
            "-o",
            str(target),
        ]
    else:
        script = f"source, target = {str(source)!r}, {str(target)!r}\n{TOOLS[tool]}"
        command = [sys.executable, "-c", script]
    try:
        subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        target.unlink(missing_ok=True)


def reasons_of(path: Path) -> list[str]:
    """Give the reason of each BatchNormalization that stays, `none` for one without any."""
    command = [NORMLINT, "check", str(path), "--select", "NL106,NL111", "--exit-zero"]
    command += ["--output-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    found: dict[str, str] = {}
    for finding in json.loads(done.stdout)["models"][0]["findings"]:
        missed = finding["not_fixed"]
        found[finding["output"]] = missed["reason"] if missed else "batch-statistics"
    return [*found.values(), *["none"] * (batch_norms(path) - len(found))]


def batch_norms(path: Path) -> int:
    """Count the BatchNormalization nodes of a model with its subgraphs and functions."""
    model = onnx.load(path, load_external_data=False)
    pending = [list(model.graph.node), *(list(function.node) for function in model.functions)]
    count = 0
    while pending:
        for node in pending.pop():
            count += node.op_type == "BatchNormalization"
            pending.extend(list(a.g.node) for a in node.attribute if a.HasField("g"))
    return count


def outputs(path: Path) -> list[np.ndarray] | None:
    """Run a model without optimisation on fixed inputs; None where it does not run."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, {i.name: values(i) for i in session.get_inputs()}))
    except Exception:  # noqa: BLE001 - the runtime has no common class of its errors
        return None


def values(argument: onnxruntime.NodeArg) -> np.ndarray:
    """Draw the values of an input."""
    shape = [extent if isinstance(extent, int) else 2 for extent in argument.shape]
    kinds = {"float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_}
    name = argument.type.removeprefix("tensor(").removesuffix(")")
    random = np.random.default_rng(0)
    if name.startswith(("int", "uint")):
        return random.integers(0, 2, shape).astype(name)
    return random.standard_normal(shape).astype(kinds.get(name, np.float32))


def is_same(before: Path, after: Path) -> bool:
    """Whether two models compute the same."""
    old, new = outputs(before), outputs(after)
    if old is None or new is None or len(old) != len(new):
        return False
    return all(close(a, b) for a, b in zip(old, new, strict=True))


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two outputs are the same up to rounding."""
    if a.shape != b.shape:
        return False
    limit = (0.02 if a.dtype == np.float16 else 1e-3) * max(np.abs(a).max(initial=0), 1e-6)
    return bool(np.allclose(a, b, rtol=0, atol=limit, equal_nan=True))


if __name__ == "__main__":
    main(sys.argv[1:])
