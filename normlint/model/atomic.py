"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from normlint.model.source import FileSource, opened_plainly

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from normlint.model.source import Source

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL


class Litter:
    """Files and folders that are removed again if the block that made them does not end well."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        self._folders: list[Path] = []
        self._replaced: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Once the renaming is done the new file is in place, whatever came after it.
        if kind is None or (self._replaced and not self._replaced.exists()):
            return
        for path in reversed(self._files):
            with suppress(OSError):
                path.unlink()
        for path in reversed(self._folders):
            with suppress(OSError):
                path.rmdir()

    def create(self, path: Path) -> int:
        """Create a new file and return its descriptor. Raises `FileExistsError`."""
        # Noted before it exists: an interrupt between the two would leave it behind.
        self._files.append(path)
        try:
            return os.open(path, _CREATE | opened_plainly(), 0o666)
        except OSError:
            self._files.remove(path)
            raise

    def hidden(self, folder: Path) -> tuple[Path, int]:
        """Create a new file with a hidden name in `folder`."""
        path = folder / f".normlint-{secrets.token_hex(8)}.tmp"
        return path, self.create(path)

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name. Raises `FileExistsError`."""
        os.link(old, new)
        self._files.append(new)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file that was created here another name."""
        self._files.append(new)
        old.rename(new)

    def folder(self, path: Path) -> None:
        """Create a folder and those above it."""
        for missing in reversed([path, *path.parents]):
            if not missing.exists():
                self._folders.append(missing)
                missing.mkdir()

    def replace(self, old: Path, new: Path, source: Source) -> None:
        """Put a new file in place of another; from then on all that was made stays.

        `source` is open and may be what is replaced.
        """
        self._replaced = old
        if not isinstance(source, FileSource):
            old.replace(new)
            return
        with source.let_go(new):
            old.replace(new)


def take_over(fd: int, status: os.stat_result) -> None:
    """Give a file the mode of another, and its owner, where a system knows them and allows it."""
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid) and hasattr(os, "fchown"):
        with suppress(OSError):
            os.fchown(fd, status.st_uid, status.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(fd, stat.S_IMODE(status.st_mode))


def sync_folder(folder: Path) -> None:
    """Make a rename last. Not every file system can, and the rename is done all the same."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
