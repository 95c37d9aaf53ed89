"""Measure normlint and other tools side by side on the same files; write the page and its plots.

    python benchmarks/run.py [--runs N] [--limit SECONDS] [--folder DOCS]

Each command runs in a process of its own, in turn with the others; time and peak memory are those
of the whole process, start-up and imports with it. Tools that are not installed are left out:
`pip install --group benchmarks` brings all of them, and what draws the plots.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import folders
import repair
from cases import CASES, CHECK, LOAD, REPAIR, ROOT, Case, Command, commands
from process import Measured, measure
from tables import Row, Section, introduction, section_text, told
from targets import targets_text

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 4.0
"""Seconds after which a command is not run again."""
LIMIT = 30.0
"""Seconds after which another tool is given up, which keeps the whole below ten minutes."""
OURS = {LOAD, CHECK, REPAIR}
LIMIT_OF_OURS = 300.0


def main() -> None:
    """Measure, and write the page and the plots."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=LIMIT, help="give up other tools after it")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs")
    given = parser.parse_args()
    page = introduction(given.runs, PATIENCE, given.limit)
    sections: list[Section] = []
    with tempfile.TemporaryDirectory() as place:
        # Bytecode as an installation has it, for all alike.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(place, "bytecode"))
        for case in CASES:
            sections.append(measured(case, Path(place), given.runs, given.limit, sections))
            print(section_text(sections[-1]), flush=True)
        repaired = repair.measured(Path(place))
        huge = repair.measured(Path(place), "embedded", repair.PAST_PROTOBUF)
        folder = folders.of_samples(Path(place))
    import plots  # noqa: PLC0415 - what it imports would count as memory of every command

    pictures = plots.draw(sections, given.folder)
    tables = [*map(section_text, sections), repair.text(repaired), repair.text(huge), folder.text]
    page += "\n".join([targets_text(sections, repaired, folder), *pictures, *tables])
    (given.folder / "benchmarks.md").write_text(page, encoding="utf-8")


def measured(case: Case, place: Path, runs: int, limit: float, before: list[Section]) -> Section:
    """Run every tool on the file of a case, but those that took too long for less."""
    out = place / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    path = case.file(place)
    hopeless = {name for section in before for name in too_slow(section, case, limit)}
    wanted = [c for c in commands(case, path, out) if c.name not in hopeless]
    limits = [LIMIT_OF_OURS if c.name in OURS else limit for c in wanted]
    results = measure([c.line for c in wanted], runs, patience=PATIENCE, limits=limits)
    rows = [row(c, result, path) for c, result in zip(wanted, results, strict=True)]
    return Section(case, [*rows, *(Row(name, None, "not run") for name in sorted(hopeless))])


def row(command: Command, result: Measured, path: Path) -> Row:
    """Say what a command took, and what came of it."""
    return Row(command.name, result, told(command, result, path))


def too_slow(section: Section, case: Case, limit: float) -> Iterator[str]:
    """Name the tools that took so long for fewer nodes that more would pass the limit."""
    if case.kind != "nodes" or section.case.kind != "nodes":
        return
    for known in section.rows:
        result = known.result
        if known.name in OURS:
            continue
        if result is None or result.wall * case.size > limit * section.case.size:
            yield known.name


if __name__ == "__main__":
    main()
