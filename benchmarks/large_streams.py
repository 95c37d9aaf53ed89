"""Convert streams of models of several sizes, and measure the memory that it takes.

    python benchmarks/large_streams.py --gigabytes 0.5 4

Each model is a Pre-LN stack of feed-forward blocks with its weights in a side file. They differ in
the number of blocks; the largest tensor, the embedding table, is the same. Peak memory is that of
`normlint check --apply --select NL203,NL204`, start-up, proof and writing included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

WIDTH, HIDDEN, TOKENS = 2048, 8192, 16_000
BLOCK = np.random.default_rng(0).normal(0.02, 0.02, 1 << 20).astype(np.float32)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.5, 4.0])
    print("| weights | largest tensor | LayerNorms | converted | peak memory | CPU | wall |")
    print("|---|---|---|---|---|---|---|")
    for gigabytes in parser.parse_args().gigabytes:
        with tempfile.TemporaryDirectory() as folder:
            print(row(Path(folder), round(gigabytes * 1e9)), flush=True)


def row(folder: Path, size: int) -> str:
    """Measure one model of about so many bytes."""
    table, block = 4 * TOKENS * WIDTH, 8 * WIDTH * HIDDEN
    layers = max(1, round((size - table) / block))
    path = write(folder / "model.onnx", layers, WIDTH, HIDDEN, TOKENS)
    target = folder / "out" / "model.onnx"
    arguments = ["check", str(path), "--apply", "-o", str(target), "-q", "--exit-zero"]
    start = time.perf_counter()
    with (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "normlint", *arguments, "--select", "NL203,NL204"]
        running = subprocess.Popen(command, stdout=log, stderr=log)
        _, _, used = os.wait4(running.pid, 0)
    wall = time.perf_counter() - start
    ops = [node.op_type for node in onnx.load(target, load_external_data=False).graph.node]
    written = path.with_suffix(".data").stat().st_size
    return (
        f"| {written / 1e9:.2f} GB | {table / 1e6:.0f} MB | {layers + 1} "
        f"| {ops.count('RMSNormalization')} | {used.ru_maxrss / 1024:.0f} MiB "
        f"| {used.ru_utime + used.ru_stime:.0f} s | {wall:.0f} s |"
    )


def write(path: Path, layers: int, width: int, hidden: int, tokens: int) -> Path:
    """Write a Pre-LN stack whose weights are in a side file."""
    constants: list[TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    side = path.with_suffix(".data")
    with side.open("wb") as file:

        def weight(name: str, *shape: int) -> str:
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            left = int(np.prod(shape))
            for key, value in (("location", side.name), ("offset", file.tell())):
                tensor.external_data.add(key=key, value=str(value))
            tensor.external_data.add(key="length", value=str(4 * left))
            while left:
                part = BLOCK[:left]
                file.write(part.tobytes())
                left -= part.size
            constants.append(tensor)
            return name

        def op(kind: str, *inputs: str) -> str:
            made = f"t{len(nodes)}"
            nodes.append(helper.make_node(kind, inputs, [made], name=f"n{len(nodes)}"))
            return made

        t = op("Gather", weight("table", tokens, width), "tokens")
        for layer in range(layers):
            scale, bias = weight(f"scale{layer}", width), weight(f"bias{layer}", width)
            y = op(
                "MatMul",
                op("LayerNormalization", t, scale, bias),
                weight(f"up{layer}", width, hidden),
            )
            y = op("Relu", op("Add", y, weight(f"up_bias{layer}", hidden)))
            y = op("MatMul", y, weight(f"down{layer}", hidden, width))
            t = op("Add", t, op("Add", y, weight(f"down_bias{layer}", width)))
        y = op("LayerNormalization", t, weight("scale", width), weight("bias", width))
        y = op("Add", op("MatMul", y, weight("head", width, 8)), weight("head_bias", 8))
    given = [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["B", "T"])]
    result = [helper.make_tensor_value_info(y, TensorProto.FLOAT, ["B", "T", 8])]
    graph = helper.make_graph(nodes, "stack", given, result, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    onnx.save(model, path)
    return path


if __name__ == "__main__":
    main()
