"""What is promised of time and memory, held against what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases import CHECK, LOAD, MEGABYTES, NODES, REPAIR, STACKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from folders import Folder
    from repair import Repair
    from tables import Section

OWN = {LOAD, CHECK, REPAIR}


@dataclass(frozen=True)
class Target:
    """What is promised and what was measured."""

    name: str
    limit: str
    measured: str
    by_cpu: str = ""
    """The same by processor time, which a busy machine does not change much."""


def targets_text(sections: list[Section], repair: Repair, folder: Folder) -> str:
    """Write the table of what is promised and what was measured, both as ratios or sizes."""
    lines = ["## Promised and measured\n", "| | at most | measured | by CPU time |"]
    lines.append("|---|---|---|---|")
    for target in (*_weights(sections), *_nodes(sections), *_rest(repair, folder)):
        figures = f"{target.limit} | {target.measured} | {target.by_cpu}"
        lines.append(f"| {target.name} | {figures} |")
    return "\n".join([*lines, ""])


def _find(sections: list[Section], kind: str, size: int) -> Section:
    return next(s for s in sections if (s.case.kind, s.case.size) == (kind, size))


def _weights(sections: list[Section]) -> Iterator[Target]:
    large, small = _find(sections, "weights", MEGABYTES[-1]), _find(sections, "nodes", NODES)
    check, skeleton = large.result(CHECK), small.result(CHECK)
    if not check or not skeleton:
        return
    what = f"check with {MEGABYTES[-1]} MB of weights, to that of the same graph without"
    wall, cpu = check.wall / skeleton.wall, check.cpu / skeleton.cpu
    yield Target(f"{what}: time", "1.1", f"{wall:.2f}", f"{cpu:.2f}")
    yield Target(f"{what}: memory", "1.2", f"{check.memory / skeleton.memory:.2f}")
    others = [row.result for row in large.rows if row.name not in OWN and row.ended and row.result]
    if others:
        what = "the same check, to the best of the other tools"
        wall = check.wall / min(other.wall for other in others)
        cpu = check.cpu / min(other.cpu for other in others)
        yield Target(f"{what}: time", "0.2", f"{wall:.2f}", f"{cpu:.2f}")
        memory = check.memory / min(other.memory for other in others)
        yield Target(f"{what}: memory", "0.2", f"{memory:.2f}")


def _nodes(sections: list[Section]) -> Iterator[Target]:
    middle, most = (_find(sections, "nodes", size) for size in STACKS[1:])
    check, load, largest = middle.result(CHECK), middle.result(LOAD), most.result(CHECK)
    start = sections[0].result(CHECK)
    if check and load:
        what = f"check of {STACKS[1]:,} nodes, to onnx.load: time"
        yield Target(what, "3.5", f"{check.wall / load.wall:.2f}", f"{check.cpu / load.cpu:.2f}")
    if check and largest and start:
        what = f"time a node, {STACKS[2]:,} to {STACKS[1]:,} nodes, less that of 3 nodes"
        more = STACKS[1] / STACKS[2]
        wall = more * (largest.wall - start.wall) / (check.wall - start.wall)
        cpu = more * (largest.cpu - start.cpu) / (check.cpu - start.cpu)
        yield Target(what, "1.2", f"{wall:.2f}", f"{cpu:.2f}")


def _rest(repair: Repair, folder: Folder) -> Iterator[Target]:
    what = f"repair of {repair.gigabytes} GB {repair.where}"
    yield Target(f"{what}: peak memory", "1 GB", f"{repair.took.memory:.0f} MiB")
    yield Target(f"{what}: bytes written", "1 %", f"{100 * repair.share:.6f} %")
    what = f"a folder with {folder.workers} processes, to one: time"
    yield Target(what, "0.59", f"{1 / folder.gain:.2f}")
