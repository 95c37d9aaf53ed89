"""What is said of the sample models, to be looked at whenever it changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from commandline import normlint

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("samples.check.txt", ["check", "--output-format", "concise", "--jobs", "1"]),
        ("samples.norms.txt", ["norms"]),
        ("samples.map.txt", ["norms", "--map"]),
    ],
)
def test_samples(
    name: str,
    arguments: list[str],
    golden: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)

    golden(name, normlint(*arguments, "sample_models", "--isolated").out)
