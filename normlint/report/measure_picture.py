"""What was measured at every norm, as a table of HTML with histograms in SVG for each."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from normlint.report.measure import MEASURED_HEAD, bars, measured_cells, relative

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH, _HEIGHT = 4, 24
_PICTURES = ("|mean|/σ of rows", "σ of rows", "largest magnitudes of channels")


def measured_table(norms: Sequence[dict[str, Any]]) -> str:
    """Render a table, closed at first."""
    head = "".join(f"<th>{escape(name)}</th>" for name in (*MEASURED_HEAD, *_PICTURES))
    rows = "".join(_row(norm) for norm in norms)
    return (
        "<details><summary>What the norms saw on the data</summary>"
        f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div></details>\n'
    )


def _row(norm: dict[str, Any]) -> str:
    cells = (
        *map(escape, measured_cells(norm)),
        histogram(norm["histogram"], "Rows by |mean|/σ"),
        histogram(norm["deviation_histogram"], "Rows by σ"),
        drawn(relative(norm["channel_peaks"]), "Largest magnitude along the channels"),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def histogram(counts: Sequence[int], what: str) -> str:
    """Draw a histogram of binary logarithms, from 2^-14 on the left to 2^10."""
    heights = bars(counts)
    most = max(heights) or 1
    return drawn([high / most for high in heights], f"{what}, on a logarithmic scale")


def drawn(heights: Sequence[float], label: str) -> str:
    """Draw bars of heights from 0 to 1."""
    bars_of = "".join(
        f'<rect x="{at * _WIDTH}" y="{_HEIGHT - high * _HEIGHT:.1f}" '
        f'width="{_WIDTH - 1}" height="{high * _HEIGHT:.1f}"/>'
        for at, high in enumerate(heights)
        if high
    )
    width = len(heights) * _WIDTH
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{_HEIGHT}" '
        f'viewBox="0 0 {width} {_HEIGHT}" fill="currentColor">{bars_of}</svg>'
    )
