"""Does a check cost more when the weights are large? Takes the megabytes; 400 by default."""

from __future__ import annotations

import multiprocessing
import sys
import sysconfig
import tempfile
from pathlib import Path

import onnx
from models import with_weights
from process import measure

NODES = 1200


def make(path: Path, megabytes: int) -> None:
    """Write a model with so many megabytes of weights."""
    onnx.save(with_weights(NODES, megabytes), path)


def main() -> None:
    """Print a check of a model with embedded weights beside one of the same graph without them."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    normlint = str(Path(sysconfig.get_path("scripts")) / "normlint")
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "large.onnx", Path(folder) / "small.onnx"]
        for path, size in zip(paths, (megabytes, 0), strict=True):
            # A process starts with its parent's peak of memory, so the parent makes no models.
            maker = multiprocessing.get_context("spawn").Process(target=make, args=(path, size))
            maker.start()
            maker.join()
        commands = [[normlint, "check", "--exit-zero", str(path)] for path in paths]
        large, small = measure(commands)
    print(f"| {NODES} nodes | wall | CPU | peak memory |")
    print("|---|---|---|---|")
    for name, row in ((f"{megabytes} MB of weights", large), ("the same graph without", small)):
        print(f"| {name} | {row.wall:.2f} s | {row.cpu:.2f} s | {row.memory:.0f} MiB |")
    print(
        f"| ratio | {large.wall / small.wall:.2f} | {large.cpu / small.cpu:.2f} "
        f"| {large.memory / small.memory:.2f} |"
    )
    if large.status or small.status:
        sys.exit(f"normlint ended with {large.status} and {small.status}")


if __name__ == "__main__":
    main()
