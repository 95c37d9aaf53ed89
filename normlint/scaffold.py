"""`normlint rules --new NAME`: a first rule, with its test, to be changed into a real one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from normlint.plugins import load_cards
from normlint.usage import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_RULE = '''"""ACME101."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import Diagnostic, Kind, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint import Context


class {title}(Rule):
    """An L2 normalisation stands in the model.

    ## Why is this bad?

    Say what it costs, and whom.

    ## When not to follow it

    Say when it is right to leave it.
    """

    code = "ACME101"
    severity = Severity.INFO
    bad = (
        """
        unit_length (float[2,8] x) => (float[2,8] y) {{
            y = LpNormalization<axis = -1, p = 2>(x)
        }}
        """,
    )
    good = (
        """
        layer_norm (float[2,8] x, float[8] scale) => (float[2,8] y) {{
            y = LayerNormalization<axis = -1>(x, scale)
        }}
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each L2 normalisation."""
        for norm in context.norms:
            if norm.kind is Kind.L2:
                yield Diagnostic("an L2 normalisation stands here", norm.anchor)
'''
_TEST = """from {module} import {title}

from normlint.testing import check_examples


def test_examples() -> None:
    check_examples({title}())
"""


def new_rule(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a rule and its test into a folder; give both paths. Raises `UsageError`."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"a rule's name is words with dashes, like decomposed-norm; not {name!r}")
    if any(card.name == name for card in load_cards()):
        raise UsageError(f"there is a rule {name} already")
    module = name.replace("-", "_")
    title = "".join(word.capitalize() for word in name.split("-"))
    rule, test = folder / f"{module}.py", folder / f"test_{module}.py"
    for path, text in ((rule, _RULE), (test, _TEST)):
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text.format(module=module, title=title))
        except FileExistsError as error:
            raise UsageError(f"{path} exists already") from error
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return rule, test
