"""A model as it lies in its file: the skeleton now, the values when they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from normlint.model import values
from normlint.model.external import SideFiles, side_file_faults
from normlint.model.fault import FileFault
from normlint.model.needle import outside_tensors
from normlint.model.skeleton import read_skeleton
from normlint.model.sniff import HEAD, sniff
from normlint.model.source import (
    PIECE,
    BytesSource,
    FileSource,
    NotRegularError,
    ObjectSource,
    SeekableFile,
)
from normlint.suppress import METADATA_KEY

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from normlint.model.source import Source


class ModelFile:
    """An opened model.

    `proto` is the ModelProto with placeholders for its large tensors, `path` None for a model that
    is no local file, `name` what to call it, `size` its bytes, `faults` what is wrong with its side
    files (NL906, NL907), `carries_ignores` whether there may be ignores in its metadata. It keeps
    the file open, so that what it reads stays one version.
    """

    def __init__(
        self, source: Source, name: str, path: Path | None = None, folder: Path | None = None
    ) -> None:
        self.source = source
        self.name = name
        self.path = path
        self.size = source.size
        self.side_files = SideFiles(path, folder)
        skeleton = read_skeleton(source)
        self.proto = skeleton.proto
        self.carries_ignores = METADATA_KEY.encode() in skeleton.data
        outside = outside_tensors(skeleton.data)
        total = max(len(self.proto.graph.initializer), len(outside))
        self.faults = side_file_faults(self.side_files, outside, total)

    def values(self, tensor: onnx.TensorProto) -> np.ndarray:
        """Return the values of a tensor of this model in a fresh array, shaped as its dims.

        Raises `ValuesUnavailable` with the reason.
        """
        return values.read_values(tensor, self.source, self.side_files)

    def nbytes(self, tensor: onnx.TensorProto) -> int:
        """Return the bytes that its values take, unread. Raises `ValuesUnavailable`."""
        return values.nbytes(tensor)

    def has_values(self, tensor: onnx.TensorProto) -> bool:
        """Say whether the values are there to be read, by a look at the sizes only."""
        return values.available(tensor, self.source, self.side_files)

    def sha256(self) -> str:
        """Return the SHA-256 of the file as it was opened, in hexadecimal."""
        import hashlib

        digest = hashlib.sha256()
        for start in range(0, self.size, PIECE):
            digest.update(self.source.read(start, min(PIECE, self.size - start)))
        return digest.hexdigest()

    def close(self) -> None:
        """Let the file go. Its values cannot be read any more."""
        if isinstance(self.source, FileSource):
            self.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_model(
    source: Path | str | bytes | SeekableFile | Source,
    *,
    name: str | None = None,
    max_size: int | None = None,
) -> ModelFile:
    """Open a model: a local file, bytes, an open binary file, or anything that is a `Source`.

    `max_size` bounds the bytes of the file. Raises `FileFault` (NL902 to NL905, NL907).
    """
    path = Path(source) if isinstance(source, (str, Path)) else None
    name = name or (str(path) if path else "-")
    opened = _source(source)
    head = _head(opened)
    if max_size is not None and opened.size > max_size:
        message = f"the file has {opened.size} bytes, more than the limit of {max_size}"
        raise FileFault("NL905", message)
    if fault := sniff(head, opened.size, name):
        raise fault
    return ModelFile(opened, name, path, path.parent if path else None)


def _source(source: Path | str | bytes | SeekableFile | Source) -> Source:
    if isinstance(source, bytes):
        return BytesSource(source)
    if isinstance(source, (str, Path)):
        try:
            return FileSource(source)
        except NotRegularError as error:
            raise FileFault("NL904", f"this is not a regular file but {error}") from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise FileFault("NL905", f"the file cannot be opened: {reason}") from error
    return ObjectSource(source) if isinstance(source, SeekableFile) else source


def _head(source: Source) -> bytes:
    try:
        return source.read(0, min(HEAD, source.size))
    except (EOFError, OSError) as error:
        raise FileFault("NL905", f"the file cannot be read: {error}") from error
