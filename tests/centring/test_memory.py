"""Memory is bounded by the largest tensors, not by the model."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HIDDEN = 512, 2048
LAYER = 8 * WIDTH * HIDDEN
"""Bytes of the two large weights of a layer."""
BLOCK = np.random.default_rng(0).normal(0.02, 0.02, WIDTH * HIDDEN).astype(np.float32)


def written(folder: Path, layers: int) -> Path:
    """Write a Pre-LN stack whose weights are in a side file."""
    constants: list[TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    with (folder / "weights").open("wb") as file:

        def weight(*shape: int) -> str:
            length = int(np.prod(shape))
            name = f"w{len(constants)}"
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": "weights", "offset": file.tell(), "length": 4 * length}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(BLOCK[:length].tobytes())
            constants.append(tensor)
            return name

        def op(kind: str, *inputs: str) -> str:
            nodes.append(helper.make_node(kind, inputs, [f"t{len(nodes)}"]))
            return f"t{len(nodes) - 1}"

        t = op("Gather", weight(100, WIDTH), "tokens")
        for _ in range(layers):
            y = op("LayerNormalization", t, weight(WIDTH))
            y = op("Relu", op("MatMul", y, weight(WIDTH, HIDDEN)))
            t = op("Add", t, op("MatMul", y, weight(HIDDEN, WIDTH)))
        y = op("LayerNormalization", t, weight(WIDTH))
        y = op("MatMul", y, weight(WIDTH, 8))
    graph = helper.make_graph(
        nodes,
        "stack",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["B", "T"])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, ["B", "T", 8])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def peak(folder: Path, layers: int) -> int:
    """Convert a stack of so many layers; give the peak memory of the process in bytes."""
    folder.mkdir()
    target = folder / "out" / "model.onnx"
    command = [sys.executable, "-m", "normlint", "check", str(written(folder, layers))]
    command += ["--apply", "-o", str(target), "--select", "NL203", "-q", "--isolated"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    ops = [node.op_type for node in onnx.load(target, load_external_data=False).graph.node]
    assert running.returncode == 0
    assert ops.count("RMSNormalization") == layers + 1
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_a_stream_of_more_weights_takes_no_more_memory(tmp_path: Path) -> None:
    few, many = 9, 27
    assert (many - few) * LAYER > 1.4e8
    grown = peak(tmp_path / "many", many) - peak(tmp_path / "few", few)
    assert grown < 3 * LAYER
