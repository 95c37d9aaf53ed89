"""What is measured: files, each made in a process of its own, and what each tool does with them."""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import CHECKERS, PACKAGES, TOOLS, installed

ROOT = Path(__file__).parent.parent
SAMPLES = ("resnet_batch_norm", "vit_opset_13")
NODES = 1200
"""Nodes of the models whose weights differ."""
MEGABYTES = (100, 400)
STACKS = (NODES, 12_000, 100_000)
GIGABYTES = 10
LOAD, CHECK, REPAIR = "onnx.load", "normlint check", "normlint check --apply"
NORMLINT = [sys.executable, "-m", "normlint", "check", "--isolated", "--exit-zero", "-q"]


@dataclass(frozen=True)
class Case:
    """A file to measure on, made when it is its turn."""

    title: str
    kind: str
    """sample, nodes, weights, external or embedded."""
    size: int = 0
    """Nodes, megabytes of weights, or gigabytes of external or embedded data."""
    sample: str = ""

    def file(self, folder: Path) -> Path:
        """Return where the file lies, and make it if it is not there."""
        if self.kind == "sample":
            return ROOT / "sample_models" / f"{self.sample}.onnx"
        path = folder / f"{self.kind}_{self.size}" / "model.onnx"
        if not path.exists():
            path.parent.mkdir()
            # A child inherits its parent's peak of memory, so the parent must not make models.
            maker = multiprocessing.get_context("spawn").Process(
                target=make, args=(self.kind, path, self.size)
            )
            maker.start()
            maker.join()
        return path


CASES = (
    Case(f"{GIGABYTES} GB of external data", "external", GIGABYTES),
    *(Case(f"Sample {name}", "sample", sample=name) for name in SAMPLES),
    Case(f"{NODES:,} nodes, LayerNorms spelled out", "nodes", NODES),
    *(
        Case(f"{NODES:,} nodes, {size} MB of embedded weights", "weights", size)
        for size in MEGABYTES
    ),
    *(Case(f"{nodes:,} nodes, LayerNorms spelled out", "nodes", nodes) for nodes in STACKS[1:]),
)


def make(kind: str, path: Path, size: int) -> None:
    """Write a made-up model."""
    import models  # noqa: PLC0415 - it imports onnx and numpy, which the parent must not hold

    if kind == "external":
        models.external(path, size)
    elif kind == "embedded":
        models.embedded(path, size)
    elif kind == "weights":
        path.write_bytes(models.with_weights(NODES, size).SerializeToString())
    else:
        path.write_bytes(models.decomposed_stack(size).SerializeToString())


@dataclass(frozen=True)
class Command:
    """What is run on a file, and the file that tells what came of it."""

    name: str
    line: list[str]
    result: Path | None = None


def commands(case: Case, path: Path, out: Path) -> list[Command]:
    """Return what to run on a file, with the tools that are installed.

    Those that write models copy the external data, so only what reads does without.
    """
    python = [sys.executable, "-c"]
    is_external = case.kind == "external"
    load = f"import onnx; onnx.load({str(path)!r}, load_external_data={not is_external})"
    report, repaired = out / "normlint.json", out / "normlint.onnx"
    found = [
        Command(LOAD, [*python, load]),
        Command(CHECK, [*NORMLINT, "--output-format", f"json={report}", str(path)], report),
    ]
    scripts = {name: (script, ".json") for name, script in CHECKERS.items()}
    if not is_external:
        wishes = ["--apply", "--target-opset", "17", "-o", str(repaired)]
        found.append(Command(REPAIR, [*NORMLINT, *wishes, str(path)], repaired))
        scripts |= {name: (script, ".onnx") for name, script in TOOLS.items()}
    for name, (script, suffix) in scripts.items():
        if installed(PACKAGES[name]):
            target = out / f"{PACKAGES[name]}{suffix}"
            header = f"source, target = {str(path)!r}, {str(target)!r}\n"
            found.append(Command(name, [*python, header + script], target))
    return found
