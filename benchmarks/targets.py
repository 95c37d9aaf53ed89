"""What is promised of time and memory, held against what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases import CHECK, LOAD, MEGABYTES, NODES, REPAIR, STACKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from folders import Folder
    from repair import Repair
    from tables import Section

OWN = {LOAD, CHECK, REPAIR}


def targets_text(sections: list[Section], repair: Repair, folder: Folder) -> str:
    """Write the table of what is promised and what was measured, both as ratios or sizes."""
    lines = ["## Promised and measured\n", "| | at most | measured |", "|---|---|---|"]
    for name, limit, value in [*_checks(sections), *_rest(repair, folder)]:
        lines.append(f"| {name} | {limit} | {value} |")
    return "\n".join([*lines, ""])


def _find(sections: list[Section], kind: str, size: int) -> Section:
    return next(s for s in sections if (s.case.kind, s.case.size) == (kind, size))


def _checks(sections: list[Section]) -> Iterator[tuple[str, str, str]]:
    large, small = _find(sections, "weights", MEGABYTES[-1]), _find(sections, "nodes", NODES)
    check, skeleton = large.result(CHECK), small.result(CHECK)
    if check and skeleton:
        what = f"check with {MEGABYTES[-1]} MB of weights, to that of the same graph without"
        yield f"{what}: time", "1.1", f"{check.wall / skeleton.wall:.2f}"
        yield f"{what}: memory", "1.2", f"{check.memory / skeleton.memory:.2f}"
        rest = [row.result for row in large.rows if row.name not in OWN and row.ended]
        others = [result for result in rest if result]
        if others:
            what = "the same check, to the best of the other tools"
            fastest, smallest = (min(o.wall for o in others), min(o.memory for o in others))
            yield f"{what}: time", "0.2", f"{check.wall / fastest:.2f}"
            yield f"{what}: memory", "0.2", f"{check.memory / smallest:.2f}"
    yield from _by_nodes(sections)


def _by_nodes(sections: list[Section]) -> Iterator[tuple[str, str, str]]:
    middle, most = (_find(sections, "nodes", size) for size in STACKS[1:])
    check, load, largest = middle.result(CHECK), middle.result(LOAD), most.result(CHECK)
    if not check or not load:
        return
    yield (
        f"check of {STACKS[1]:,} nodes, to onnx.load: time",
        "3.5",
        f"{check.wall / load.wall:.2f}",
    )
    if largest:
        start = _find(sections, "sample", 0).result(CHECK)
        base = start.wall if start else 0
        a_node = [(r.wall - base) / n for r, n in zip((check, largest), STACKS[1:], strict=True)]
        what = f"time a node without start-up, {STACKS[2]:,} to {STACKS[1]:,} nodes"
        yield what, "1.2", f"{a_node[1] / a_node[0]:.2f}"


def _rest(repair: Repair, folder: Folder) -> Iterator[tuple[str, str, str]]:
    what = f"repair of {repair.gigabytes} GB {repair.where}"
    yield f"{what}: peak memory", "1 GB", f"{repair.took.memory:.0f} MiB"
    yield f"{what}: bytes written", "1 %", f"{100 * repair.share:.6f} %"
    yield (
        f"a folder with {folder.workers} processes, to one: time",
        "0.59",
        f"{1 / folder.gain:.2f}",
    )
