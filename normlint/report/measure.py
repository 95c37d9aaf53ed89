"""What was measured at every norm, for people and for programs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from normlint.report.documents import dumps
from normlint.report.look import visible
from normlint.report.summary import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.report.look import Look

SCHEMA = "normlint/measure/1"
_BARS = " ▁▂▃▄▅▆▇█"
_HEAD = (
    *("kind", "rows", "|mean|/σ p50", "p99.9", "σ p50", "range", "range/σ", "outliers"),
    *("|mean|/σ", "channels", "where"),
)
_LOWEST, _PER_OCTAVE = -24, 4
"""Of the histograms: their first binary logarithm and their resolution."""
_CHANNELS = 16
_SHOWN = (-14, 10)
"""Binary logarithms of |mean| / deviation that the picture spans."""


def measure_json(models: Sequence[dict[str, Any]]) -> str:
    """Render the document `normlint/measure/1`."""
    return dumps({"schema": SCHEMA, "models": list(models)}, indent=1)


def measure_text(model: dict[str, Any], look: Look) -> str:
    """Render a table of the norms of one model, with a picture of |mean| / deviation for each."""
    return "".join(f"{line}\n" for line in _lines(model, look))


def _lines(model: dict[str, Any], look: Look) -> Iterator[str]:
    count = plural(len(model["norms"]), "norm")
    path = look(visible(model["path"]), "bold")
    yield f"{path}: {count}, {plural(model['samples'], 'sample')}"
    rows = [_HEAD, *(_row(norm) for norm in model["norms"])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        yield "  " + (look(line, "dim") if number == 0 else line)
    if model["norms"]:
        yield (
            f"  pictures: rows by |mean|/σ, from 2^{_SHOWN[0]} on the left to 2^{_SHOWN[1]}, and "
            "the largest magnitudes along the channels; one range for all rows costs range/σ/883 "
            "of each value in INT8"
        )


def _row(norm: dict[str, Any]) -> tuple[str, ...]:
    ratio, outliers = norm["mean_over_deviation"], norm["outlier_channels"]
    return (
        norm["kind"],
        str(norm["rows"]),
        number(ratio["p50"]),
        number(ratio["p99.9"]),
        number(norm["deviation"]["p50"]),
        f"{number(norm['range'][0])} … {number(norm['range'][1])}",
        number(norm["range_over_deviation"]),
        str(len(outliers)) if outliers else "–",
        picture(norm["histogram"]),
        profile(norm["channel_peaks"]),
        visible(norm["node"] or norm["output"]),
    )


MEASURED_HEAD = (
    *("norm", "|mean|/σ p50", "p99.9", "σ p50"),
    *("range", "range/σ", "outlier channels"),
)
"""Heads of the columns that `measured_cells` fills."""


def measured_cells(norm: dict[str, Any]) -> tuple[str, ...]:
    """Give what one norm saw, as the tables of reports have it."""
    ratio = norm["mean_over_deviation"]
    return (
        visible(f"{norm['kind']} {norm['node'] or norm['output']}"),
        number(ratio["p50"]),
        number(ratio["p99.9"]),
        number(norm["deviation"]["p50"]),
        f"{number(norm['range'][0])} … {number(norm['range'][1])}",
        number(norm["range_over_deviation"]),
        ", ".join(map(str, norm["outlier_channels"][:8])) or "–",
    )


def number(value: float | None) -> str:
    """Write a number in three digits; a dash for one that is unknown or infinite."""
    return "–" if value is None else f"{value:.3g}"


def profile(peaks: Sequence[float | None]) -> str:
    """Draw the largest magnitudes along the channels in one line, infinite ones as full bars."""
    heights = relative(folded(peaks, _CHANNELS))
    return "".join(_BARS[max(1, round(high * (len(_BARS) - 1)))] for high in heights)


def folded(peaks: Sequence[float | None], most: int) -> list[float | None]:
    """Give at most so many magnitudes, each the largest of some neighbours."""
    count = min(len(peaks), most)
    edges = [at * len(peaks) // count for at in range(count + 1)] if count else [0]
    groups = [peaks[first:last] for first, last in pairwise(edges)]
    return [None if None in group else max(p for p in group if p is not None) for group in groups]


def relative(peaks: Sequence[float | None]) -> list[float]:
    """Give magnitudes over the largest of them; 1 for those that are infinite."""
    largest = max((peak for peak in peaks if peak is not None), default=0.0) or 1.0
    return [1.0 if peak is None else peak / largest for peak in peaks]


def picture(counts: Sequence[int]) -> str:
    """Draw a histogram in one line."""
    heights = bars(counts)
    most = max(heights) or 1
    return "".join(_BARS[-(-high * (len(_BARS) - 1) // most)] for high in heights)


def bars(counts: Sequence[int]) -> list[int]:
    """Give the heights of a histogram's bars, one for each octave of the picture."""
    first = (_SHOWN[0] - _LOWEST) * _PER_OCTAVE
    last = (_SHOWN[1] - _LOWEST) * _PER_OCTAVE
    inner = [*counts[first:last]]
    inner[0] += sum(counts[:first])
    inner[-1] += sum(counts[last:])
    return [sum(inner[at : at + _PER_OCTAVE]) for at in range(0, len(inner), _PER_OCTAVE)]
