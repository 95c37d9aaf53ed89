"""Which configuration holds for a model: the nearest file above it, then the command line."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from normlint.config.config import Config, build
from normlint.config.tables import EXTEND, validate
from normlint.usage import UsageError

NAMES = ("normlint.toml", ".normlint.toml", "pyproject.toml")
_MAX_EXTENDS = 16


class Resolver:
    """Finds configurations and remembers them.

    `file` is the one that holds for all models (`--config FILE`), `isolated` ignores all files,
    `over` are values by field name that win over any file.
    """

    def __init__(
        self,
        over: dict[str, Any] | None = None,
        *,
        file: Path | None = None,
        isolated: bool = False,
    ) -> None:
        self._over = over or {}
        self._file = file
        self._isolated = isolated
        self._nearest: dict[Path, Path | None] = {}
        self._read: dict[Path | None, Config] = {}

    def for_folder(self, folder: Path) -> Config:
        """Give the configuration of what lies in a folder.

        Raises `UsageError` for a file that cannot be read or says what is not understood.
        """
        file = self._file
        if file is None and not self._isolated:
            file = self._find(folder.absolute())
        if file not in self._read:
            self._read[file] = self._build(file)
        return self._read[file]

    def _find(self, folder: Path) -> Path | None:
        if folder not in self._nearest:
            here = next((path for name in NAMES if _speaks(path := folder / name)), None)
            if here is None and folder.parent != folder:
                here = self._find(folder.parent)
            self._nearest[folder] = here
        return self._nearest[folder]

    def _build(self, file: Path | None) -> Config:
        values = {} if file is None else _values(file)
        root = None
        if file is not None:
            # A file named on the command line speaks of the folder that it is named from.
            root = Path.cwd() if self._file is not None else file.parent.absolute()
        return build(values | self._over, root, file)


def _speaks(path: Path) -> bool:
    """Say whether a file is a configuration; a pyproject.toml without our table is none."""
    if not path.is_file():
        return False
    return path.name != "pyproject.toml" or "normlint" in _toml(path).get("tool", {})


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no valid TOML: {error}") from error


def _values(file: Path) -> dict[str, Any]:
    """Give the values of a file over those of the files that it extends."""
    layers: list[dict[str, Any]] = []
    seen: list[Path] = []
    following: Path | None = file
    while following is not None:
        if following.resolve() in seen or len(seen) > _MAX_EXTENDS:
            raise UsageError(f"{following} extends itself")
        seen.append(following.resolve())
        table = _table(following)
        extended = table.pop(EXTEND, None)
        if not isinstance(extended, str | None) or "\0" in (extended or ""):
            raise UsageError(f"{following}: {EXTEND} is a path, not {extended!r}")
        layers.append(_anchored(validate(table, partial(_place, following)), following.parent))
        following = None if extended is None else following.parent / extended
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged |= layer
    return merged


def _place(file: Path, key: str) -> str:
    """Name a file with the line that a key stands in."""
    header = re.compile(r"\s*\[+\s*(tool\s*\.\s*normlint\b\s*\.?)?\s*([^\]]*)")
    wanted = re.compile(rf"""["']?{re.escape(key)}["']?\s*([.=]|$)""")
    ours = file.name != "pyproject.toml"
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        found = header.match(line)
        if found and line.lstrip().startswith("["):
            ours = bool(found[1]) or file.name != "pyproject.toml"
        if ours and wanted.match(found[2].strip() if found else line.strip()):
            return f"{file}:{number}"
    return str(file)


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make the paths in a file relative to where the file lies."""
    if values.get("baseline"):
        values["baseline"] = str(folder / values["baseline"])
    if values.get("data"):
        values["data"] = folder / values["data"]
    return values


def _table(file: Path) -> dict[str, Any]:
    table = _toml(file)
    if file.name == "pyproject.toml":
        table = table.get("tool", {}).get("normlint", {})
    if not isinstance(table, dict):
        raise UsageError(f"{file}: [tool.normlint] is a table")
    return dict(table)
