"""The norms of a model along its depth, as a strip of chips for a page."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from normlint.report.look import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from normlint.results import ModelReport


def norm_map(model: ModelReport, cards: Mapping[str, str]) -> str:
    """Draw each norm with its kind as its colour and its placement as its text.

    `cards` gives for the address of a node the id of the card that tells of a finding there.
    """
    parts = ['<div class="map" role="list" aria-label="The normalisations along the depth">']
    for stream, norms in groupby(model.inventory, key=lambda norm: norm["stream"]):
        name = "aside" if stream is None else f"stream {stream}"
        parts.append(f'<div class="stream"><span class="soft">{name}</span>')
        for depth, layer in groupby(norms, key=lambda norm: norm["depth"]):
            number = "" if depth is None else f"<b>{depth}</b>"
            parts.append(f'<span class="layer">{number}{"".join(_chips(layer, cards))}</span>')
        parts.append("</div>")
    return "".join((*parts, "</div>\n", _legend(model)))


def _chips(norms: Iterator[dict[str, Any]], cards: Mapping[str, str]) -> Iterator[str]:
    for norm in norms:
        where = norm["module"] or norm["nodes"][0]
        title = escape(visible(f"{norm['kind']}, {norm['form']}: {where}"))
        kind, placement = escape(norm["kind"]), escape(norm["placement"])
        card = next((cards[name] for name in norm["nodes"] if name in cards), None)
        if card is None:
            yield f'<span class="chip {kind}" role="listitem" title="{title}">{placement}</span>'
        else:
            yield (
                f'<a class="chip {kind} found" role="listitem" title="{title}" href="#{card}">'
                f"{placement}</a>"
            )


def _legend(model: ModelReport) -> str:
    kinds = dict.fromkeys(norm["kind"] for norm in model.inventory)
    shown = " ".join(f'<span class="chip {escape(k)}">{escape(k)}</span>' for k in kinds)
    return (
        f'<p class="map soft">{shown} <span class="chip found">with a finding</span> '
        "numbers are layers, words are placements</p>\n"
    )
