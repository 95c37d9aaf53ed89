"""How text looks: colours where they are wanted, and a model's own text made harmless."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_HIDDEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs"))
_ASCII = str.maketrans(
    {
        "…": "...",
        "›": ">",
        "→": "->",
        "×": "x",
        "·": "-",
        "─": "-",
        "│": "|",
        "Δ": "d",
        "ε": "eps",
        "γ": "scale",
        "β": "bias",
        "–": "-",
        "—": "-",
        "≥": ">=",
        "≤": "<=",
        "√": "sqrt",
        "²": "^2",
        "μ": "mean",
        "σ": "sigma",
        "’": "'",
        **dict(zip("▁▂▃▄▅▆▇█", ".:-=+*%@", strict=True)),
    }
)
SEVERITY = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def visible(text: str) -> str:
    """Write out control characters, line breaks and marks that turn the direction of text.

    They would let a model's names forge lines, hide text or drive the terminal. So would what CI
    servers take for a command: `::` where a line begins, `##` anywhere.
    """
    if "##" in text:
        text = text.replace("##", r"#\x23")
    if text.lstrip().startswith("::"):
        text = text.replace("::", r"\x3a:", 1)
    if text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def fit(text: str, encoding: str) -> str:
    """Give text that an encoding can hold: simple signs instead of missing ones."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII)
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


@dataclass(frozen=True)
class Look:
    """Paints text, or leaves it plain."""

    colour: bool = False

    def __call__(self, text: str, style: str) -> str:
        """Give the text in a style, such as `bold red`."""
        if not self.colour or not text:
            return text
        return _style(style, text)


def _style(style: str, text: str) -> str:
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)


def wants_colour(choice: str, environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Decide on colour: the flag, then NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE, then the terminal."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR") or environment.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    return terminal and environment.get("TERM") != "dumb"
