"""How long the commands take to start, against importing onnx: the best of several runs, in ms.

Run it where normlint is installed from a wheel: from an editable checkout without bytecode, or on a
busy machine, the numbers say nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

RUNS = 15
SAMPLES = Path(__file__).parent.parent / "sample_models"
COMMANDS = {
    "--version": ["--version"],
    "--help": ["--help"],
    "rules": ["rules"],
    "explain": ["explain", "NL903"],
    "check a pointer": ["check", str(SAMPLES / "broken" / "lfs_pointer.onnx")],
    "check a clean model": ["check", str(SAMPLES / "resnet_folded.onnx")],
    "check a model with findings": ["check", str(SAMPLES / "vit_opset_13.onnx")],
}


def best(command: list[str]) -> float:
    """Give the shortest time of a command in seconds."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(command, check=False, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print a line for each command, with its share of `import onnx`."""
    onnx = best([sys.executable, "-c", "import onnx"])
    print(f"{onnx * 1000:7.0f}  1.00  import onnx")
    for name, arguments in COMMANDS.items():
        took = best([sys.executable, "-m", "normlint", *arguments])
        print(f"{took * 1000:7.0f}  {took / onnx:4.2f}  {name}")


if __name__ == "__main__":
    main()
