"""What was measured at every norm, as a table of HTML with a histogram in SVG for each."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from normlint.report.look import visible
from normlint.report.measure import bars

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _HEIGHT = 6, 24
_HEAD = (
    "norm",
    "|mean|/σ p50",
    "p99.9",
    "σ p50",
    "range/σ",
    "outlier channels",
    "|mean|/σ of rows",
)


def measured_table(norms: Sequence[dict[str, Any]]) -> str:
    """Render a table, closed at first."""
    head = "".join(f"<th>{escape(name)}</th>" for name in _HEAD)
    rows = "".join(_row(norm) for norm in norms)
    return (
        "<details><summary>What the norms saw on the data</summary>"
        f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div></details>\n'
    )


def _row(norm: dict[str, Any]) -> str:
    ratio, width = norm["mean_over_deviation"], norm["range_over_deviation"]
    cells = (
        escape(visible(f"{norm['kind']} {norm['node'] or norm['output']}")),
        f"{ratio['p50']:.3g}",
        f"{ratio['p99.9']:.3g}",
        f"{norm['deviation']['p50']:.3g}",
        "–" if width is None else f"{width:.3g}",
        ", ".join(map(str, norm["outlier_channels"][:8])) or "–",
        histogram(norm["histogram"]),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def histogram(counts: Sequence[int]) -> str:
    """Draw a histogram of binary logarithms, from 2^-14 on the left to 2^10."""
    heights = bars(counts)
    most = max(heights) or 1
    drawn = "".join(
        f'<rect x="{at * _WIDTH}" y="{_HEIGHT - high * _HEIGHT / most:.1f}" '
        f'width="{_WIDTH - 1}" height="{high * _HEIGHT / most:.1f}"/>'
        for at, high in enumerate(heights)
        if high
    )
    width = len(heights) * _WIDTH
    label = "Rows by |mean|/σ, on a logarithmic scale"
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}" fill="currentColor">{drawn}</svg>'
    )
