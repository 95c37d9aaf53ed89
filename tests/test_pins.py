"""What CI installs is pinned, with hashes, and follows from pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.compile(r"(?P<requirement>[A-Za-z0-9].*?) \\\n(?P<hashes>(    --hash=.*\n)+)")


def pins(name: str) -> dict[str, list[Requirement]]:
    """Give the requirements of a file by name; some have one for each of several Pythons."""
    text = (ROOT / ".ci" / name).read_text()
    found = [Requirement(match["requirement"]) for match in PINNED.finditer(text)]
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    assert len(found) == len(lines), "each has a version and hashes"
    by_name: dict[str, list[Requirement]] = {}
    for requirement in found:
        by_name.setdefault(canonical(requirement.name), []).append(requirement)
    return by_name


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def group(name: str) -> list[Requirement]:
    wanted: list[Requirement] = []
    entries: list[Any] = PROJECT["dependency-groups"][name]
    for entry in entries:
        wanted += group(entry["include-group"]) if isinstance(entry, dict) else [Requirement(entry)]
    return wanted


def direct() -> list[Requirement]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    texts = [*PROJECT["project"]["dependencies"], *(text for extra in extras for text in extra)]
    return [Requirement(text) for text in texts]


def version_here(pinned: list[Requirement]) -> str:
    environment = {**default_environment(), "python_full_version": "3.11.9"}
    (fitting,) = (r for r in pinned if r.marker is None or r.marker.evaluate(environment))
    (version,) = fitting.specifier
    return version.version


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("newest.txt", [*direct(), *group("dev")]), ("oldest.txt", [*direct(), *group("unit")])],
)
def test_every_dependency_is_pinned_within_what_is_allowed(
    name: str, wanted: list[Requirement]
) -> None:
    pinned = pins(name)

    for requirement in wanted:
        version = version_here(pinned[canonical(requirement.name)])
        assert requirement.specifier.contains(version), f".ci/lock was not run: {requirement}"


def test_the_oldest_are_the_lower_bounds() -> None:
    pinned = pins("oldest.txt")

    for requirement in direct():
        bound = next(s.version for s in requirement.specifier if s.operator == ">=")
        version = version_here(pinned[canonical(requirement.name)])
        assert version.startswith(bound.removesuffix(".0")), f"{requirement}: {version} is tested"


@pytest.mark.parametrize("name", ["newest.txt", "oldest.txt"])
def test_no_place_is_named_that_packages_come_from(name: str) -> None:
    assert not re.search(r"://|@ |--(index|find-links|extra)", (ROOT / ".ci" / name).read_text())


def test_changes_are_kept() -> None:
    from normlint import __version__

    changes = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## \[(.+?)\]", changes, re.MULTILINE)

    assert heads[0] == "Unreleased" or heads[0] == __version__
    assert re.search(r"^## \[.+?\]\n\n### \w+\n\n- \S", changes, re.MULTILINE)
