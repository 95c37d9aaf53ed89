"""What was measured, as Markdown."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cases import CHECK, LOAD, REPAIR, Case, Command
from process import GIVEN_UP, Measured
from tools import CHECKERS, PACKAGES, TOOLS, installed

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Row:
    """One command on one file; `result` is None where it was not run."""

    name: str
    result: Measured | None
    told: str

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return self.result is not None and self.result.status in {0, 1}


@dataclass(frozen=True)
class Section:
    """All commands on one file."""

    case: Case
    rows: list[Row]

    def result(self, name: str) -> Measured | None:
        """Return what a command took; None where it did not come to its end."""
        return next((row.result for row in self.rows if row.name == name and row.ended), None)


def section_text(section: Section) -> str:
    """Write the table of a file."""
    lines = [
        f"\n## {section.case.title}\n",
        "| command | wall | spread | runs | CPU | peak memory | to onnx.load | to check | result |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    bases = section.result(LOAD), section.result(CHECK)
    return "\n".join([*lines, *(_line(row, *bases) for row in section.rows), ""])


def _line(row: Row, load: Measured | None, check: Measured | None) -> str:
    result = row.result
    if result is None:
        return f"| {row.name} | | | | | | | | {row.told} |"
    figures = (
        f"{result.wall:.2f} s | {result.spread:.2f} | {result.runs} | {result.cpu:.2f} s | "
        f"{result.memory:.0f} MiB"
    )
    if not row.ended:
        return f"| {row.name} | {figures} | | | {row.told} |"
    ratios = f"{_ratio(result, load)} | {_ratio(result, check)}"
    return f"| {row.name} | {figures} | {ratios} | {row.told} |"


def _ratio(result: Measured, base: Measured | None) -> str:
    """Write how many times as long and as large it is."""
    if base is None:
        return ""
    return f"{result.wall / base.wall:.1f} × time, {result.memory / base.memory:.1f} × memory"


def told(command: Command, result: Measured, path: Path) -> str:
    """Say what a command found or folded, from the file that it wrote."""
    if result.status == GIVEN_UP:
        return "given up"
    if result.status not in {0, 1}:
        return f"failed ({result.status})"
    if command.result is None:
        return ""
    if not command.result.exists():
        return "wrote nothing"
    if command.result.suffix == ".json":
        return f"findings: {_findings(command.result):,}"
    return _made(path, command.result)


def _made(source: Path, target: Path) -> str:
    before, after = operators(source), operators(target)
    if not after:
        return "wrote what onnx does not read"
    total = f"{sum(before.values()):,} to {sum(after.values()):,} nodes"
    norms = {op: count for op, count in after.items() if "Normalization" in op}
    return f"{total}; {', '.join(f'{n:,} {op}' for op, n in norms.items()) or 'no norm operator'}"


def _findings(report: Path) -> int:
    found = json.loads(report.read_text(encoding="utf-8"))
    return sum(found["summary"]["findings"].values()) if isinstance(found, dict) else len(found)


def operators(path: Path) -> dict[str, int]:
    """Count the operators of a model, in a process of its own; none where it cannot be read."""
    script = (
        "import collections, json, onnx\n"
        f"model = onnx.load({str(path)!r}, load_external_data=False)\n"
        "print(json.dumps(collections.Counter(node.op_type for node in model.graph.node)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    counted: dict[str, int] = json.loads(done.stdout or "{}")
    return counted


def introduction(runs: int, patience: float, limit: float) -> str:
    """Say how it was measured, on what machine, with what versions, and how busy it was."""
    load = os.getloadavg()[0]
    busy = " It was busy: wall times and ratios of them say little." if load > 1 else ""
    return (
        "# Benchmarks\n\n"
        f"Written by `python benchmarks/run.py --runs {runs}`: medians, after a run that does not "
        "count, all tools in turn on the same files. A command that has taken "
        f"{patience:.0f} s by then is not run again; one of another tool that takes {limit:.0f} s "
        "is given up, and not tried on more nodes where it would be. Spread is the longest wall "
        "time over the shortest. Time and peak memory are of the whole process, with its start-up "
        f"and imports; the ratios are to `import onnx; onnx.load(file)` and to `{CHECK}`. "
        f"`{REPAIR}` may raise the opset to 17 and proves every repair by running it before and "
        f"after. {', '.join(CHECKERS)} only checks, as `{CHECK}` does; the others write a model.\n"
        f"\nMachine: {_processor()}, {os.cpu_count()} processors, {_memory()} GiB, "
        f"Python {platform.python_version()}, {platform.system()}; load average {load:.1f} when it "
        f"began.{busy}\n\nTools: {', '.join(_versions())}.\n\n"
    )


def _versions() -> Iterator[str]:
    names = {"normlint": "normlint", "onnx": "onnx"}
    names |= {name: PACKAGES[name] for name in (*TOOLS, *CHECKERS)}
    for name, package in names.items():
        yield f"{name} {installed(package) or 'not installed'}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory() -> int:
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30))
