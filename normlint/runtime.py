"""ONNX Runtime, which is asked to compute and for nothing else."""

from __future__ import annotations

import os
from typing import Any

_NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"


def session_of(model: bytes, *, threads: int = 0, folder: str = "") -> Any:
    """Load a model into ONNX Runtime on the CPU, as it stands: nothing in it is optimised.

    `threads` is how many it may use (0: as many as it likes), `folder` where the side files of the
    model lie. Raises what the runtime raises, which has no class of its own.
    """
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = threads
    if folder:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _runtime() -> Any:
    """Import the runtime with its telemetry off.

    From 1.32 on, importing it writes an identifier of the machine into the user's cache and may
    call its maker. It looks at the variable while it is imported only.
    """
    before = os.environ.get(_NO_TELEMETRY)
    os.environ[_NO_TELEMETRY] = "1"
    try:
        import onnxruntime
    finally:
        if before is None:
            del os.environ[_NO_TELEMETRY]
        else:
            os.environ[_NO_TELEMETRY] = before
    return onnxruntime
