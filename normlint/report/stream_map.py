"""A compact picture of residual streams in the terminal: a line a layer, a mark a norm."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from normlint.report.look import visible
from normlint.report.summary import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.stream_picture import BranchPicture, NormMark, StreamPicture

MARKS = {
    "LayerNorm": "L",
    "RMSNorm": "R",
    "BatchNorm": "B",
    "GroupNorm": "G",
    "InstanceNorm": "I",
    "L2Norm": "2",
    "other": "o",
}


def stream_map(streams: Sequence[StreamPicture]) -> list[str]:
    """Give the lines of a picture of all streams of a model.

    In front of a branch stands what it reads the stream through, in brackets what is within, behind
    it what its output passes; `+` is the sum, and what follows it stands on the sum.
    """
    if not streams:
        return ["no residual stream"]
    lines = [line for stream in streams for line in _stream(stream)]
    return [*lines, _legend(streams)]


def _stream(stream: StreamPicture) -> Iterator[str]:
    place = "" if stream.graph == "graph" else f" in {visible(stream.graph)}"
    yield (
        f"stream {stream.index}{place}: {plural(stream.depth, 'layer')}, "
        f"{plural(stream.blocks, 'residual addition')}, {stream.placement}"
    )
    rows = [
        (layer, [_branch(branch) for branch in branches])
        for layer, branches in groupby(stream.branches, key=lambda branch: branch.layer)
    ]
    columns = max(len(cells) for _, cells in rows)
    widths = [
        max(len(cells[column]) for _, cells in rows if column < len(cells))
        for column in range(columns)
    ]
    number = max(len(str(stream.depth - 1)), 5)
    if stream.start:
        yield f"  {'start':>{number}}  {_marks(stream.start)}"
    for layer, cells in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False))
        yield f"  {layer:>{number}}  {line}".rstrip()
    if stream.end:
        yield f"  {'end':>{number}}  {_marks(stream.end)}"


def _branch(branch: BranchPicture) -> str:
    inside = f"({_marks(branch.inside)})" if branch.inside else ""
    parts = [
        _marks(branch.before),
        f"{branch.name}{inside}",
        _marks(branch.behind),
        "scaled +" if branch.scaled else "+",
        _marks(branch.on_sum),
    ]
    return " ".join(part for part in parts if part)


def _marks(norms: Sequence[NormMark]) -> str:
    return "".join(MARKS[norm.kind] for norm in norms)


def _legend(streams: Sequence[StreamPicture]) -> str:
    used = {
        norm.kind
        for stream in streams
        for norms in (
            stream.start,
            stream.end,
            *(
                norms
                for branch in stream.branches
                for norms in (branch.before, branch.inside, branch.behind, branch.on_sum)
            ),
        )
        for norm in norms
    }
    return ", ".join(f"{mark} {kind}" for kind, mark in MARKS.items() if kind in used)
