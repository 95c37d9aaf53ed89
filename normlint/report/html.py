"""A report as one page: no other file, no network, light and dark, with search."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from normlint import __version__
from normlint.report.documents import plain
from normlint.report.excerpt import excerpt
from normlint.report.full import place_text
from normlint.report.groups import Group, grouped
from normlint.report.look import visible
from normlint.report.measure_picture import measured_table
from normlint.report.norm_map import norm_map
from normlint.report.summary import summary
from normlint.report.svg import STYLE, svg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.report.view import View
    from normlint.results import Finding, ModelReport, Report, Step

_MAX_PICTURES = 1000
_LEVELS = ("error", "warning", "info", "fixed")


def html(report: Report, view: View) -> str:
    """Render the page."""
    room = files("normlint.report")
    style = room.joinpath("page.css").read_text(encoding="utf-8")
    script = room.joinpath("page.js").read_text(encoding="utf-8")
    budget = iter(range(_MAX_PICTURES))
    parts = [
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
            f"<title>normlint report</title>\n<style>\n{style}{STYLE}</style>\n</head>\n<body>\n"
        ),
        "<h1>normlint report</h1>\n",
        *(f"<p>{text(line)}</p>\n" for line in summary(report, view)),
        _tools(),
        *(
            part
            for number, model in enumerate(report.models)
            for part in _model(model, number, budget)
        ),
        f'<p class="soft">normlint {__version__}</p>\n',
        f"<script>\n{script}</script>\n</body>\n</html>\n",
    ]
    return "".join(parts)


def text(words: str) -> str:
    """Write text so that HTML shows it as it is."""
    return escape(visible(words))


def _tools() -> str:
    boxes = "".join(
        f'<label><input type="checkbox" value="{level}" checked> {level}</label>'
        for level in _LEVELS
    )
    return (
        '<div class="tools"><input type="search" id="search" placeholder="Search rules, nodes, '
        f'modules, messages" aria-label="Search">{boxes}'
        '<span id="shown" class="soft" role="status"></span></div>\n'
    )


def _model(model: ModelReport, number: int, budget: Iterator[int]) -> Iterator[str]:
    yield f"<section>\n<h2>{text(model.path)}</h2>\n"
    yield f'<p class="soft">{text(_facts(model))}</p>\n'
    shown = [finding for finding in model.findings if finding.suppressed is None]
    cards = [(f"f{number}-{k}", group) for k, group in enumerate(grouped(model, shown))]
    if model.inventory:
        yield norm_map(model, _cards_of_nodes(cards))
    if model.measured:
        yield measured_table(model.measured)
    if not shown:
        yield "<p>No findings.</p>\n"
    for name, group in cards:
        yield from _card(name, group, budget)
    yield "</section>\n"


def _cards_of_nodes(cards: Sequence[tuple[str, Group]]) -> dict[str, str]:
    """Give for each node the card of the worst that was found there."""
    ordered = sorted(cards, key=lambda card: card[1].first.severity.rank)
    return {
        node: name
        for name, group in ordered
        for finding in group.findings
        for node in (finding.node, *finding.nodes)
    }


def _facts(model: ModelReport) -> str:
    if not model.readable:
        return "could not be read"
    opsets = ", ".join(f"{domain} {version}" for domain, version in model.opset.items())
    norms = ", ".join(f"{count} {kind}" for kind, count in model.norms.items())
    facts = (model.producer, f"opset {opsets}", f"{model.nodes} nodes", norms)
    return " · ".join(fact for fact in facts if fact)


def _card(name: str, group: Group, budget: Iterator[int]) -> Iterator[str]:
    finding = group.first
    fixed = finding.fix is not None and finding.fix.applied
    level = "fixed" if fixed else finding.severity.value
    times = f" · {len(group)} times" if len(group) > 1 else ""
    yield f'<article class="card {level}" id="{name}" data-level="{level}">\n'
    yield f"<h3>{text(f'{finding.code} {finding.rule}')} "
    yield f'<span class="badge">{level}</span><span class="soft">{times}</span></h3>\n'
    yield f"<p>{text(finding.message)}</p>\n"
    yield from _repair(finding)
    yield from _places(group)
    yield from _evidence(finding)
    yield from _pictures(finding, budget)
    yield "</article>\n"


def _repair(finding: Finding) -> Iterator[str]:
    fix, missed = finding.fix, finding.not_fixed
    if fix is not None:
        state = "Repaired" if fix.applied else "Repair"
        proof = ""
        if fix.verification is not None:
            proof = f"; max |Δ| {fix.verification.max_abs:.2g}"
        yield f"<p>{state}: {text(fix.title)} ({fix.applicability}{proof})</p>\n"
    if missed is not None:
        detail = f"{missed.reason}: {missed.detail} {missed.at}"
        yield f"<p>Not repaired, {text(detail)}</p>\n"


def _places(group: Group) -> Iterator[str]:
    places = [
        " · ".join(part for part in (place_text(f), f.module, f.source, _own(f, group)) if part)
        for f in group.findings
    ]
    if any(places):
        yield f"<details{' open' if len(places) == 1 else ''}><summary>Places</summary><ul>"
        yield "".join(f"<li>{text(place)}</li>" for place in places)
        yield "</ul></details>\n"


def _own(finding: Finding, group: Group) -> str:
    """Give the message of a place where it is not that of the group."""
    return "" if finding.message == group.first.message else finding.message


def _evidence(finding: Finding) -> Iterator[str]:
    if finding.evidence:
        rows = (
            f"<tr><th>{text(str(key))}</th><td><code>{text(str(value))}</code></td></tr>"
            for key, value in plain(finding.evidence).items()
        )
        yield f"<details><summary>Evidence</summary><table>{''.join(rows)}</table></details>\n"


def _pictures(finding: Finding, budget: Iterator[int]) -> Iterator[str]:
    """Draw a finding before and after, as long as the page stays of a size that browsers like."""
    drawn = excerpt(finding)
    if not drawn.before:
        return
    if next(budget, None) is None:
        yield f'<p class="soft">Not drawn: this page draws {_MAX_PICTURES} findings.</p>\n'
        return
    yield '<div class="pictures">'
    yield _figure(drawn.before, drawn.caption)
    if drawn.after:
        yield _figure(drawn.after, "repaired")
    yield "</div>\n"


def _figure(steps: Sequence[Step], caption: str) -> str:
    return f"<figure>{svg(steps, title=caption)}<figcaption>{caption}</figcaption></figure>"
