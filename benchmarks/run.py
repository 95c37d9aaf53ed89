"""Measure normlint and other tools side by side on the same files; write docs/benchmarks.md.

    python benchmarks/run.py [--runs N] [--quick] [--output FILE]

Each command runs in a process of its own, in turn with the others; time and peak memory are those
of the whole process, start-up and imports with it. Tools that are not installed are left out. What
is measured by CPU time can be compared on a busy machine, wall time cannot.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from process import Measured, measure, once
from tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SAMPLES = ("resnet_batch_norm", "vit_opset_13")
STACKS = (1200, 12_000, 100_000)
EMBEDDED, GIGABYTES = 400, 10
QUICK_LARGEST = 12_000
PACKAGES = {"ONNX Runtime": "onnxruntime"} | {
    name: name for name in TOOLS if name != "ONNX Runtime"
}
LOAD = "onnx.load"
CHECK, REPAIR = "normlint check", "normlint check --apply"
TIME_LIMIT = 300
"""Seconds after which a command is given up."""


@dataclass(frozen=True)
class Case:
    """A file to measure on, and which tools to run: all, or those that do not read the weights."""

    name: str
    path: Path
    skeleton_only: bool = False


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="no more than 12 000 nodes")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        # Bytecode as an installation has it, for all alike.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        page = _introduction(given.runs)
        for section in _sections(folder, given.runs, quick=given.quick):
            print(section, flush=True)
            page += section
            given.output.write_text(page, encoding="utf-8")


def _sections(folder: Path, runs: int, *, quick: bool) -> Iterator[str]:
    for case in _cases(folder, quick=quick):
        yield _section(case, folder, runs)
    yield _external_repair(folder)


def make(kind: str, path: Path, size: int) -> None:
    """Write one made-up model; in a process of its own, for a child inherits its parent's peak."""
    import models  # noqa: PLC0415 - it imports onnx and numpy, which the parent must not hold

    if kind == "external":
        models.external(path.parent, size)
    elif kind == "embedded":
        path.write_bytes(models.with_weights(STACKS[0], size).SerializeToString())
    else:
        path.write_bytes(models.decomposed_stack(size).SerializeToString())


def _made(kind: str, path: Path, size: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    maker = multiprocessing.get_context("spawn").Process(target=make, args=(kind, path, size))
    maker.start()
    maker.join()
    return path


def _cases(folder: Path, *, quick: bool) -> Iterator[Case]:
    external = _made("external", folder / "external" / "large.onnx", GIGABYTES)
    yield Case(f"{GIGABYTES} GB of external data", external, skeleton_only=True)
    for name in SAMPLES:
        yield Case(f"sample {name}", ROOT / "sample_models" / f"{name}.onnx")
    embedded = _made("embedded", folder / "embedded.onnx", EMBEDDED)
    yield Case(f"{EMBEDDED} MB of embedded weights, {STACKS[0]:,} nodes", embedded)
    for nodes in STACKS:
        if not quick or nodes <= QUICK_LARGEST:
            made = _made("stack", folder / f"{nodes}.onnx", nodes)
            yield Case(f"{nodes:,} nodes, LayerNorms spelled out", made)


def _section(case: Case, folder: Path, runs: int) -> str:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    commands = _commands(case, out)
    results = measure([["timeout", str(TIME_LIMIT), *line] for line, _ in commands.values()], runs)
    before = _operators(case.path)
    lines = [
        f"\n## {case.name}\n",
        "| command | CPU | wall | spread | peak memory | CPU ratio | result |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, (_, made)), row in zip(commands.items(), results, strict=True):
        lines.append(_row(name, row, results[0], _told(made, before)))
    return "\n".join([*lines, ""])


def _row(name: str, row: Measured, base: Measured, told: str) -> str:
    if row.status not in {0, 1}:
        told = "given up" if row.status == 124 else "failed"
    return (
        f"| {name} | {row.cpu:.2f} s | {row.wall:.2f} s | {row.spread:.1f} | "
        f"{row.memory:.0f} MiB | {row.cpu / base.cpu:.1f} | {told} |"
    )


def _commands(case: Case, out: Path) -> dict[str, tuple[list[str], Path | None]]:
    """Give what to run by its name, with the file that it writes."""
    load = ", load_external_data=False" if case.skeleton_only else ""
    python = [sys.executable, "-c"]
    check = [sys.executable, "-m", "normlint", "check", "--isolated", "--exit-zero", "-q"]
    report, repaired = out / "report.json", out / "normlint.onnx"
    path = str(case.path)
    commands: dict[str, tuple[list[str], Path | None]] = {
        LOAD: ([*python, f"import onnx; onnx.load({path!r}{load})"], None),
        CHECK: ([*check, "--output-format", f"json={report}", path], report),
    }
    if case.skeleton_only:
        # Other tools read all of it, and --output would copy its side file.
        return commands
    wishes = ["--apply", "--target-opset", "17", "-o", str(repaired)]
    commands[REPAIR] = ([*check, *wishes, path], repaired)
    for name, script in TOOLS.items():
        if _version(PACKAGES[name]):
            target = out / f"{PACKAGES[name]}.onnx"
            header = f"source, target = {path!r}, {str(target)!r}\n"
            commands[name] = ([*python, header + script], target)
    return commands


def _told(made: Path | None, before: dict[str, int]) -> str:
    """Say what a command found or folded, from the file that it wrote."""
    if made is None or not made.exists():
        return ""
    if made.suffix == ".json":
        findings = json.loads(made.read_text(encoding="utf-8"))["summary"]["findings"]
        return f"findings: {sum(findings.values()):,}"
    after = _operators(made)
    total = f"{sum(before.values()):,} to {sum(after.values()):,} nodes"
    norms = {op: count for op, count in after.items() if "Normalization" in op}
    return f"{total}; {', '.join(f'{n:,} {op}' for op, n in norms.items()) or 'no norm operator'}"


def _operators(path: Path) -> dict[str, int]:
    """Count the operators of a model, in a process of its own."""
    script = (
        "import collections, json, onnx\n"
        f"model = onnx.load({str(path)!r}, load_external_data=False)\n"
        "print(json.dumps(collections.Counter(node.op_type for node in model.graph.node)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    counted: dict[str, int] = json.loads(done.stdout)
    return counted


def _external_repair(folder: Path) -> str:
    """Fold one BatchNorm of the model with external data, in place, and count what is written."""
    model = _made("external", folder / "external" / "large.onnx", GIGABYTES)
    side = model.with_name("large.data")
    before = side.stat()
    command = [sys.executable, "-m", "normlint", "check", "--isolated", "--apply", "-q", str(model)]
    _, cpu, memory, _ = once(command)
    after = side.stat()
    untouched = (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    written = sum(path.stat().st_size for path in model.parent.iterdir() if path != side)
    norms = _operators(model).get("BatchNormalization", 0)
    return (
        f"\n## Repair of {GIGABYTES} GB of external data, in place\n\n"
        "| CPU | peak memory | bytes written | side file | BatchNormalization left |\n"
        "|---|---|---|---|---|\n"
        f"| {cpu:.2f} s | {memory:.0f} MiB | {written:,} | "
        f"{'untouched' if untouched else 'written'} | {norms} |\n"
    )


def _introduction(runs: int) -> str:
    tools = [f"{name} {found}" for name in ("normlint", "onnx") if (found := _version(name))]
    tools += [f"{name} {found}" for name in TOOLS if (found := _version(PACKAGES[name]))]
    load = os.getloadavg()[0]
    return (
        "# Benchmarks\n\n"
        f"Written by `python benchmarks/run.py --runs {runs}`: medians, after a run that does not "
        "count, all tools in turn on the same files. Spread is the longest wall time over the "
        "shortest. Time and peak memory are of the whole process, with its start-up and "
        f"imports; the CPU ratio is to `import onnx; onnx.load(file)`. `{REPAIR}` may raise the "
        "opset to 17 and proves every repair by running it before and after.\n\n"
        f"Machine: {_processor()}, {os.cpu_count()} processors, {_memory()} GiB, "
        f"Python {platform.python_version()}, {platform.system()}; load average {load:.0f} when "
        "it began"
        + (", so wall times are those of a busy machine.\n" if load > 1 else ".\n")
        + f"\nTools: {', '.join(tools)}.\n"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory() -> int:
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    if shutil.which("timeout") is None:
        sys.exit("this needs the command timeout")
    main()
