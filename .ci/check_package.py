"""Say what is wrong with a wheel and an sdist that were built.

    python .ci/check_package.py WHEEL SDIST

exits with 1 if anything is.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCES = {"normlint": "normlint", "rules": "normlint_rules"}
"""Folders of the repository, and the packages that they are installed as."""
METADATA = re.compile(r"normlint-[^/]+\.dist-info/")
ENTRIES = ("normlint = normlint.__main__:main", "normlint = normlint_rules")
SHIPPED = ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py")


def tracked(folder: str) -> set[PurePosixPath]:
    """Give the files of a folder that git knows."""
    command = ["git", "ls-files", "-z", folder]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {PurePosixPath(name) for name in listed.split("\0") if name}


def wrong_in_wheel(wheel: zipfile.ZipFile) -> list[str]:
    """Compare what a wheel holds with the sources."""
    held = {name for name in wheel.namelist() if not METADATA.match(name)}
    wanted = {
        str(PurePosixPath(package, path.relative_to(folder)))
        for folder, package in SOURCES.items()
        for path in tracked(folder)
    }
    problems = [f"the wheel lacks {name}" for name in sorted(wanted - held)]
    problems += [f"the wheel should not hold {name}" for name in sorted(held - wanted)]
    if "normlint/py.typed" not in held:
        problems.append("the wheel says nothing of its types: no py.typed")
    return [*problems, *wrong_in_metadata(wheel)]


def wrong_in_metadata(wheel: zipfile.ZipFile) -> list[str]:
    """Look at the names, the version and the entry points."""
    texts = {
        name.rpartition("/")[2]: wheel.read(name).decode()
        for name in wheel.namelist()
        if METADATA.match(name)
    }
    problems = []
    version = HeaderParser().parsestr(texts["METADATA"])["Version"]
    changes = (ROOT / "CHANGELOG.md").read_text()
    if f"## [{version}]" not in changes and "## [Unreleased]" not in changes:
        problems.append(f"CHANGELOG.md says nothing of {version}")
    problems += [f"no entry point {e!r}" for e in ENTRIES if e not in texts["entry_points.txt"]]
    if "LICENSE" not in texts:
        problems.append("the wheel has no licence")
    return problems


def wrong_in_sdist(sdist: tarfile.TarFile) -> list[str]:
    """Look for what whoever packages or tests it needs."""
    held = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {*SHIPPED, *map(str, tracked("normlint") | tracked("rules") | tracked("tests"))}
    return [f"the sdist lacks {name}" for name in sorted(wanted - held)]


def main() -> int:
    """Check both."""
    with zipfile.ZipFile(sys.argv[1]) as wheel, tarfile.open(sys.argv[2]) as sdist:
        problems = [*wrong_in_wheel(wheel), *wrong_in_sdist(sdist)]
    print("\n".join(problems) or "the wheel and the sdist hold what they should")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
