"""What was measured at every norm, for people and for programs."""

from __future__ import annotations

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
    *("kind", "rows", "|mean|/σ p50", "p99.9", "σ p50", "range/σ", "outliers", "|mean|/σ"),
    "where",
)
_LOWEST, _PER_OCTAVE = -24, 4
"""Of the histograms: their first binary logarithm and their resolution."""
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
            f"  pictures: rows by |mean|/σ, from 2^{_SHOWN[0]} on the left to 2^{_SHOWN[1]}; "
            "one range for all rows costs range/σ/883 of each value in INT8"
        )


def _row(norm: dict[str, Any]) -> tuple[str, ...]:
    ratio, width = norm["mean_over_deviation"], norm["range_over_deviation"]
    outliers = norm["outlier_channels"]
    return (
        norm["kind"],
        str(norm["rows"]),
        f"{ratio['p50']:.3g}",
        f"{ratio['p99.9']:.3g}",
        f"{norm['deviation']['p50']:.3g}",
        "–" if width is None else f"{width:.3g}",
        str(len(outliers)) if outliers else "–",
        picture(norm["histogram"]),
        visible(norm["node"] or norm["output"]),
    )


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
