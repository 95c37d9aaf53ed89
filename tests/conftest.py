from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[str, str], None]:
    """Compare text with a file of tests/golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update_golden:
            path.write_bytes(text.encode())
        assert path.exists(), f"{path} is missing: pytest --update-golden writes it"

        assert path.read_bytes().decode() == text

    return compare
