"""Other tools that simplify models, each as a script; this imports none of them."""

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
}
"""Python that reads `source` and writes `target`."""
