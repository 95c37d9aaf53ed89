"""Hooks of the site's generator: the pages of the rules come from the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

from normlint.plugins import load_cards, load_rules
from normlint.report.rules import markdown_page, table

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add a page for each rule, and the table of them."""
    load_rules()
    ours = [card for card in load_cards() if card.code.startswith("NL")]
    links = table(tuple(ours), "markdown")
    for card in ours:
        links = links.replace(f"| {card.code} |", f"| [{card.code}]({card.code}.md) |")
        page = File.generated(config, f"rules/{card.code}.md", content=markdown_page(card))
        files.append(page)
    files.append(File.generated(config, "rules/index.md", content=f"# The rules\n\n{links}"))
    return files
