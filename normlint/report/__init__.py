"""The only room that prints: every output format is one function from a report to its text."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normlint.report.view import View
    from normlint.results import Report

FORMATS = {
    "full": "full:full",
    "concise": "concise:concise",
    "grouped": "concise:by_model",
    "json": "documents:as_json",
    "jsonl": "documents:as_json_lines",
    "sarif": "sarif:sarif",
    "github": "github:github",
    "gitlab": "gitlab:gitlab",
    "junit": "junit:junit",
    "markdown": "markdown:markdown",
    "html": "html:html",
}
"""Name of a format → module and function; a module is imported when its format is asked for."""

TEXT = frozenset(("full", "concise", "grouped"))
"""Formats for people: they bear colours and end with the summary."""

ANNOTATIONS = frozenset(("github",))
"""Formats that a CI server reads from the log, beside the text for people."""

TELLS_MEASUREMENTS = frozenset(("html", "json", "markdown"))
"""Formats that want what every norm saw on the user's data, where there is any."""

DRAWS_NORMS = frozenset(("html",))
"""Formats that want every normalisation of a model."""


def render(name: str, report: Report, view: View) -> str:
    """Render a report in a format."""
    module, _, function = FORMATS[name].partition(":")
    rendered: str = getattr(importlib.import_module(f"normlint.report.{module}"), function)(
        report, view
    )
    return rendered
