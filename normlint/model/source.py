"""Where bytes come from: anything with a size and reads at an offset."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

PIECE = 1 << 22
"""Bytes moved at once where a whole would be large."""
REPLACES_OPEN = os.name != "nt"
"""Whether the system lets a file be replaced while it is open: Windows does not."""
_seeking = threading.Lock()


class NotRegularError(OSError):
    """A folder, a pipe, a device or a socket stands where a file should; the message names it."""


def file_kind(mode: int) -> str:
    """Name what is not a regular file, from its `st_mode`."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


class Source(Protocol):
    """Bytes at random access. A remote file is one class with these two members."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; `EOFError` where there are fewer."""


@runtime_checkable
class SeekableFile(Protocol):
    """What is asked of an open binary file."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to `offset`."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes."""


class BytesSource:
    """Bytes that are in memory already."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        piece = self.data[offset : offset + length]
        return _whole(piece, length)


class ObjectSource:
    """An open binary file, of fsspec for example, that can be read at any place."""

    def __init__(self, file: SeekableFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._size = file.seek(0, os.SEEK_END)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        with self._lock:
            self._file.seek(offset)
            return _whole(self._file.read(length), length)


class FileSource:
    """A regular file, held open, so that what is read stays one file even if it is replaced.

    Reads are `pread`s: a mapping would count the pages around each access as memory of ours.
    Raises `OSError` if the file cannot be opened or is not a regular file.
    """

    def __init__(self, path: Path | str, *, follow_symlinks: bool = True) -> None:
        # Without O_NONBLOCK the opening of a FIFO would wait for a writer.
        self._flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | opened_plainly()
        if not follow_symlinks:
            self._flags |= getattr(os, "O_NOFOLLOW", 0)
        self._open(path)
        self.stat = os.fstat(self.fd)
        if not stat.S_ISREG(self.stat.st_mode):
            self.close()
            raise NotRegularError(file_kind(self.stat.st_mode))

    def _open(self, path: Path | str) -> None:
        self.fd = os.open(path, self._flags)
        self.close = weakref.finalize(self, os.close, self.fd)

    @property
    def size(self) -> int:
        """Bytes in all, when it was opened."""
        return self.stat.st_size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        piece = read_at(self.fd, length, offset)
        if len(piece) == length:
            return piece
        # One call reads at most 2 GiB.
        pieces = [piece]
        while piece and (missing := length - sum(map(len, pieces))):
            piece = read_at(self.fd, missing, offset + length - missing)
            pieces.append(piece)
        return _whole(b"".join(pieces), length)

    @contextmanager
    def let_go(self, path: Path) -> Iterator[None]:
        """Let the file at `path` be replaced within the block, where a system wants it closed.

        If it is this file, nothing can be read from it afterwards, unless the block failed.
        """
        if REPLACES_OPEN or not self._is_at(path):
            yield
            return
        self.close()
        self.fd = -1
        try:
            yield
        except OSError:
            self._open(path)
            raise

    def _is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(self.stat, path.stat())
        except OSError:
            return False


def opened_plainly() -> int:
    """Give the flags of every file: bytes as they are, and not for the processes that we start."""
    return getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def read_at(fd: int, length: int, offset: int) -> bytes:
    """Read up to `length` bytes at a place, also where the system has no call for that."""
    if hasattr(os, "pread"):
        piece: bytes = os.pread(fd, length, offset)
        return piece
    with _seeking:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)


def fill(source: Source, offset: int, array: np.ndarray) -> None:
    """Read the bytes of a contiguous `array` from `offset`, without a second copy of the whole."""
    import numpy as np

    view = array.reshape(-1).view(np.uint8)
    for start in range(0, view.size, PIECE):
        length = min(PIECE, view.size - start)
        view[start : start + length] = np.frombuffer(source.read(offset + start, length), np.uint8)


def _whole(piece: bytes, length: int) -> bytes:
    if len(piece) != length:
        message = f"the file ended {length - len(piece)} bytes early"
        raise EOFError(message)
    return piece
