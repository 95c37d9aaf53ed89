"""Other tools, each as a script; this imports none of them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

TOOLS = {
    "ONNX Runtime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
options.optimized_model_filepath = target
onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
""",
    "onnxsim": """
import onnx, onnxsim
onnx.save(onnxsim.simplify(onnx.load(source))[0], target)
""",
    "onnxslim": """
import onnx, onnxslim
onnx.save(onnxslim.slim(onnx.load(source)), target)
""",
    "onnxoptimizer": """
import onnx, onnxoptimizer
passes = onnxoptimizer.get_fuse_and_elimination_passes()
onnx.save(onnxoptimizer.optimize(onnx.load(source), passes), target)
""",
    "onnxscript": """
import onnx, onnxscript.optimizer, onnxscript.rewriter
model = onnxscript.optimizer.optimize(onnx.load(source))
onnx.save(onnxscript.rewriter.rewrite(model), target)
""",
    "polygraphy": """
import onnx
from polygraphy.backend.onnx import fold_constants
onnx.save(fold_constants(onnx.load(source)), target)
""",
}
"""Tools that simplify models: Python that reads `source` and writes `target`."""

CHECKERS = {
    "onnx-doctor": """
import contextlib, pathlib, runpy, sys
sys.argv = ["onnx-doctor", "check", "--output-format", "json", source]
with pathlib.Path(target).open("w") as out, contextlib.redirect_stdout(out):
    runpy.run_module("onnx_doctor", run_name="__main__")
""",
}
"""Tools that find problems: Python that reads `source` and writes a JSON list to `target`."""

PACKAGES = {name: name for name in (*TOOLS, *CHECKERS)} | {"ONNX Runtime": "onnxruntime"}
"""What each tool is called on PyPI."""


def installed(package: str) -> str | None:
    """Return the version of a package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
