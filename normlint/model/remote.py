"""A model behind a URL, read in ranges through fsspec.

https://filesystem-spec.readthedocs.io . Only what is asked for is fetched, in whole blocks, and
small reads are kept: a walk over the skeleton reads the same neighbourhood again and again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

from normlint.model.source import ObjectSource
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.model.source import Source

Result = TypeVar("Result")

BLOCK = 1 << 16
"""Bytes of a block: less costs more requests, more costs more bytes around each weight."""
_KEPT_READ = 1 << 20
"""Bytes of a read up to which its blocks are kept; larger ones are values, asked for once."""
_KEPT_BLOCKS = 1 << 10


def is_url(argument: str) -> bool:
    """Say whether a path on the command line is a URL: a scheme and two slashes."""
    scheme, found, _ = argument.partition("://")
    return bool(found) and scheme.replace("+", "").replace("-", "").isalnum()


def shown(url: str) -> str:
    """Give a URL without user, password and query, which may be secrets, for reports."""
    scheme, _, rest = url.partition("://")
    rest = rest.partition("?")[0].partition("#")[0]
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def file_name(url: str) -> str:
    """Give the last part of a URL, which its repaired model is called in a folder."""
    name = shown(url.partition("::")[0]).rstrip("/").rpartition("/")[2]
    return "model.onnx" if name in {"", ".", ".."} else name


def require_reader(url: str) -> None:
    """Raise `UsageError` where what reads this kind of URL is not installed or not known."""
    try:
        import fsspec
    except ImportError as error:
        raise UsageError(
            f"{shown(url)} is a URL, and what reads those is not installed: "
            'pip install "normlint[remote]"'
        ) from error
    try:
        fsspec.get_filesystem_class(url.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise UsageError(f"{shown(url)} cannot be read: {error}") from error


class RemoteSource:
    """What lies behind a URL, opened at the first read, in whichever process that is.

    Raises `OSError` where it cannot be had, whatever the file system behind it raises.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._file: Source | None = None
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def __reduce__(self) -> tuple[type[RemoteSource], tuple[str]]:
        """Travel to another process as the URL."""
        return type(self), (self.url,)

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._opened().size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; `EOFError` where there are fewer."""
        if offset + length > self.size:
            raise EOFError(f"the file ended {offset + length - self.size} bytes early")
        if not length:
            return b""
        first, last = offset // BLOCK, (offset + length - 1) // BLOCK
        blocks = self._known(first, last)
        missing = [number for number in range(first, last + 1) if number not in blocks]
        for start, stop in _runs(missing):
            blocks.update(self._fetched(start, stop))
        if length <= _KEPT_READ:
            self._keep(blocks)
        whole = b"".join(blocks[number] for number in range(first, last + 1))
        return whole[offset - first * BLOCK :][:length]

    def _known(self, first: int, last: int) -> dict[int, bytes]:
        return {n: self._blocks[n] for n in range(first, last + 1) if n in self._blocks}

    def _fetched(self, start: int, stop: int) -> dict[int, bytes]:
        """Fetch the blocks `start` to `stop` (exclusive) in one request."""
        file = self._opened()
        offset = start * BLOCK
        length = min(stop * BLOCK, file.size) - offset
        data = self._done(lambda: file.read(offset, length))
        return {n: data[(n - start) * BLOCK :][:BLOCK] for n in range(start, stop)}

    def _keep(self, blocks: dict[int, bytes]) -> None:
        for number, block in blocks.items():
            self._blocks[number] = block
            self._blocks.move_to_end(number)
        while len(self._blocks) > _KEPT_BLOCKS:
            self._blocks.popitem(last=False)

    def _opened(self) -> Source:
        if self._file is None:
            self._file = self._done(self._open)
        return self._file

    def _open(self) -> Source:
        import fsspec

        files, path = fsspec.url_to_fs(self.url)
        return ObjectSource(files.open(path, "rb", block_size=BLOCK, cache_type="none"))

    def _done(self, action: Callable[[], Result]) -> Result:
        """Do what may fail. File systems have errors of their own, which may tell a secret."""
        try:
            return action()
        except EOFError:
            raise
        except (TypeError, ValueError) as error:
            # A stream of unknown length, one that cannot be sought in, or an answer with the whole.
            raise OSError("the server hands out no parts of files, so fetch it first") from error
        except Exception as error:
            raise OSError(self._said(error)) from error

    def _said(self, error: Exception) -> str:
        """Say why in words that do not repeat the URL."""
        reason = error.__cause__ or error
        if isinstance(reason, FileNotFoundError) or getattr(reason, "status", None) == 404:
            return "there is no such file"
        text = str(reason).replace(self.url, shown(self.url))
        is_telling = "://" in text.replace(shown(self.url), "")
        return type(reason).__name__ if is_telling or not text else text


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Give neighbouring numbers as ranges, from and up to."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs
