"""Side files: where tensors with external data lie, and which of those places are safe to read.

https://onnx.ai/onnx/repo-docs/ExternalData.html . Nothing is opened here; only `lstat` is called.
"""

from __future__ import annotations

import re
import stat
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from normlint.model.fault import FileFault
from normlint.model.placeholder import reference
from normlint.model.source import file_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx

_NUMBER = re.compile(r"\+?\d{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a tensor says of its external data: a location, and bytes of that file."""

    location: str
    offset: int
    length: int | None
    """None: all to the end of the file."""


@dataclass(frozen=True, slots=True)
class SideFile:
    """A regular file in the model's folder."""

    path: Path
    """With all links resolved."""
    size: int


class SideFiles:
    """Finds the side files of one model, and keeps what it found.

    `folder` is where the references start; None for a model that came without a place. A link may
    lead into the folder itself or into that of the resolved model file: download caches keep a
    model and its side file as links to one store.
    """

    def __init__(self, model: Path | None, folder: Path | None) -> None:
        self.folder = folder
        self._roots: tuple[Path, ...] = ()
        if folder is not None:
            self._roots = (folder.resolve(),)
        if model is not None:
            self._roots += (model.resolve().parent,)
        self._found: dict[str, SideFile | FileFault] = {}

    def find(self, location: str) -> SideFile:
        """Return the side file at `location`. Raises `FileFault` (NL906, NL907)."""
        if location not in self._found:
            self._found[location] = self._look(location)
        found = self._found[location]
        if isinstance(found, FileFault):
            raise found
        return found

    def _look(self, location: str) -> SideFile | FileFault:
        if reason := unsafe(location):
            return _refused(location, reason)
        if self.folder is None or not location:
            why = "which is not read for a model that is no local file"
            where = f"{location!r}, {why}" if location else "a side file without a name"
            return FileFault("NL906", where)
        try:
            path = (self.folder / location).resolve(strict=True)
            status = path.lstat()
        except (OSError, RuntimeError) as error:
            return self._absent(location, error)
        if not any(path.is_relative_to(root) for root in self._roots):
            return _refused(location, "is a link that leads out of the model's folder")
        if not stat.S_ISREG(status.st_mode):
            return _refused(location, f"is {file_kind(status.st_mode)}, not a file")
        return SideFile(path, status.st_size)

    def _absent(self, location: str, error: Exception) -> FileFault:
        if isinstance(error, FileNotFoundError):
            return FileFault("NL906", f"{location!r}, which is missing")
        why = error.strerror if isinstance(error, OSError) else str(error)
        return FileFault("NL906", f"{location!r}, which cannot be reached: {why}")


def _refused(location: str, reason: str) -> FileFault:
    return FileFault("NL907", f"side file {location!r} {reason}; it was not opened")


def unsafe(location: str) -> str | None:
    """Return why a location must not be followed, whatever the system; None if it may be."""
    windows = PureWindowsPath(location)
    if "\0" in location:
        return "has a name that no file can have"
    if PurePosixPath(location).is_absolute() or windows.drive or windows.root:
        return "has an absolute path"
    if ".." in windows.parts:
        return "lies outside the model's folder"
    return None


def parse(tensor: onnx.TensorProto) -> Reference:
    """Return what the tensor says of its side file. Raises `ValueError` on a bad number."""
    entries = reference(tensor)
    offset, length = entries.get("offset"), entries.get("length")
    return Reference(
        entries.get("location", ""),
        0 if offset is None else _natural("offset", offset),
        None if length is None else _natural("length", length),
    )


def side_file_faults(
    side_files: SideFiles, tensors: Iterable[onnx.TensorProto], total: int
) -> tuple[FileFault, ...]:
    """Return one fault for each side file that is missing, too short or unsafe.

    `tensors` are those with external data, `total` says how many tensors the model has.
    """
    groups: defaultdict[str, list[onnx.TensorProto]] = defaultdict(list)
    for tensor in tensors:
        groups[reference(tensor).get("location", "")].append(tensor)
    found = (_fault(side_files, *item, total) for item in groups.items())
    return tuple(fault for fault in found if fault)


def _fault(
    side_files: SideFiles, location: str, group: list[onnx.TensorProto], total: int
) -> FileFault | None:
    try:
        size = side_files.find(location).size
    except FileFault as fault:
        names = tuple(tensor.name for tensor in group)
        if fault.code == "NL907":
            return FileFault("NL907", fault.message, names)
        return _lost(names, total, f"live in {fault.message}")
    lost = []
    needed = 0
    for tensor in group:
        try:
            wanted = parse(tensor)
        except ValueError:
            lost.append(tensor.name)
            continue
        stop = wanted.offset + (wanted.length or 0)
        if stop > size:
            needed = max(needed, stop)
            lost.append(tensor.name)
    if not lost:
        return None
    short = f"which is too short ({size} bytes, {needed} needed)"
    why = short if needed else "at a place that is no number"
    return _lost(tuple(lost), total, f"live in {location!r}, {why}")


def _lost(names: tuple[str, ...], total: int, where: str) -> FileFault:
    count = len(names)
    verb = where.replace("live", "lives", 1) if count == 1 else where
    message = (
        f"{count} of {total} tensors {verb}; structure rules ran, value rules were skipped for "
        f"{'it' if count == 1 else 'those'}"
    )
    return FileFault("NL906", message, names)


def _natural(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text.strip()):
        message = f"its {name} is no number of bytes: {text[:40]!r}"
        raise ValueError(message)
    return int(text)
