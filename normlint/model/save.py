"""Write a model: everything that did not change byte for byte, the whole at once or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from normlint.model.atomic import Litter, sync_folder, take_over
from normlint.model.carry import carry_side_files
from normlint.model.emit import copy, emit, encode
from normlint.model.fault import FileFault, SaveError, ValuesUnavailable
from normlint.model.file import ModelFile
from normlint.model.needle import outside_tensors
from normlint.model.placeholder import location
from normlint.model.segment import Computed, Stored
from normlint.model.skeleton import PROTOBUF_LIMIT
from normlint.model.source import FileSource, file_kind
from normlint.model.splice import Plan, plan, plan_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    import onnx

_LONGEST_NAME = 200
"""Bytes of a target's name that its side file's name may repeat; systems allow 255."""
_ANY_WRITE = 0o222


@dataclass(frozen=True, slots=True)
class Written:
    """What was written where. The hashes are SHA-256 of the model files, in hexadecimal."""

    path: Path
    sha256_before: str
    sha256_after: str
    bytes: int
    """Size of the model file."""
    side_files: tuple[Path, ...] = ()
    """Side files that came into being with it."""
    backup: Path | None = None


def save_model(
    model: ModelFile,
    proto: onnx.ModelProto,
    target: Path,
    *,
    new_values: Sequence[Callable[[], np.ndarray]] = (),
    backup: bool = False,
) -> Written:
    """Write `proto`, an edited skeleton of `model`, to `target`.

    A tensor with a `SELF` placeholder is copied from the model's file, one with a `NEW` placeholder
    gets what `new_values` returns for its index, evaluated while it is written. `backup` keeps the
    old file of that name as `NAME.orig`, or `NAME.orig.1` and so on. A link stays a link. Raises
    `SaveError`, and then every file is as it was. `model` goes on reading its old version: to go on
    from the new one, open it.
    """
    data = proto.SerializeToString()
    locations = {location(tensor) or "" for tensor in outside_tensors(data)}
    side_path = _free_side_path(target, locations)
    prepared = plan(data, side_path.name, has_side_files=bool(locations))
    return _write(_Order(model, target, prepared, side_path, locations, new_values, backup))


def copy_model(model: ModelFile, target: Path) -> Written:
    """Write the unchanged `model` to `target` in the same manner; its own file is left alone."""
    if _is_own(model, target):
        digest = model.sha256()
        return Written(target, digest, digest, model.size)
    locations = {
        location(tensor) or "" for tensor in outside_tensors(model.proto.SerializeToString())
    }
    prepared = Plan([Stored(0, model.size)])
    return _write(_Order(model, target, prepared, target, locations, (), backup=False))


def save_bytes(
    model: ModelFile, proto: onnx.ModelProto, new_values: Sequence[Callable[[], np.ndarray]] = ()
) -> bytes:
    """Return the file as bytes, with all that has a placeholder inside. Raises `SaveError`."""
    segments = plan_inside(proto.SerializeToString()).segments
    if sum(map(len, segments)) > PROTOBUF_LIMIT:
        message = "the model passes 2 GiB, which only a file with a side file can: write to a file"
        raise SaveError(message)
    pieces = []
    for segment in segments:
        if isinstance(segment, Stored):
            pieces.append(model.source.read(segment.offset, segment.length))
        elif isinstance(segment, Computed):
            pieces.append(bytes(encode(segment, new_values[segment.index]())))
        else:
            pieces.append(segment)
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be written."""

    model: ModelFile
    target: Path
    plan: Plan
    side_path: Path
    locations: set[str]
    new_values: Sequence[Callable[[], np.ndarray]]
    backup: bool


def _write(order: _Order) -> Written:
    try:
        with Litter() as litter:
            return _write_or_litter(order, _resolved(order.target), litter)
    except (OSError, EOFError, FileFault, ValuesUnavailable) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        message = f"{order.target} was not written: {reason}. What was there is untouched."
        raise SaveError(message) from error


def _resolved(target: Path) -> Path:
    try:
        return target.resolve()
    except RuntimeError as error:
        # What Python up to 3.12 makes of a loop of links.
        raise SaveError(str(error)) from error


def _write_or_litter(order: _Order, real: Path, litter: Litter) -> Written:
    """Make the new files under names of their own, check them, then put them in place."""
    model = order.model
    old = _old_status(order.target, real)
    _require_unchanged(order, real, old)
    litter.folder(real.parent)
    made = _write_side_file(order, litter)
    hidden, fd = litter.hidden(real.parent)
    with os.fdopen(fd, "r+b", buffering=0):
        emit(fd, order.plan.segments, model.source, order.new_values)
        if old:
            take_over(fd, old)
        os.fsync(fd)
    made += carry_side_files(model.side_files, order.locations, order.target.parent, litter)
    for folder in {path.parent for path in made}:
        sync_folder(folder)
    digest = _check(order, hidden)
    backup = _keep_old(real, litter) if order.backup and old else None
    written = Written(order.target, model.sha256(), digest, order.plan.size, made, backup)
    _require_unchanged(order, real, old)
    litter.replace(hidden, real, model.source)
    sync_folder(real.parent)
    return written


def _write_side_file(order: _Order, litter: Litter) -> tuple[Path, ...]:
    if not order.plan.side:
        return ()
    litter.folder(order.side_path.parent)
    fd = litter.create(order.side_path)
    with os.fdopen(fd, "r+b", buffering=0):
        emit(fd, order.plan.side, order.model.source, order.new_values)
        os.fsync(fd)
    return (order.side_path,)


def _free_side_path(target: Path, taken: set[str]) -> Path:
    """Return a path beside `target` where nothing is and to which no tensor refers."""
    stem = target.name
    if len(os.fsencode(stem)) > _LONGEST_NAME or not _is_text(stem):
        stem = "normlint"
    names = (f"{stem}{number}.data" for number in chain([""], map(".{}".format, count(1))))
    return next(
        path
        for name in names
        if name not in taken and not os.path.lexists(path := target.parent / name)
    )


def _is_text(name: str) -> bool:
    """Say whether protobuf can hold a file's name: it knows Unicode only, a system knows bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _old_status(target: Path, real: Path) -> os.stat_result | None:
    """Return the status of the file to be replaced, None if there is none. Raises `SaveError`.

    `real` is the target with its links resolved.
    """
    try:
        status = real.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise SaveError(f"{target} is {file_kind(status.st_mode)}, so no model was written there")
    if not status.st_mode & _ANY_WRITE or not os.access(real, os.W_OK):
        raise SaveError(
            f"{target} is read-only: make it writable, or write elsewhere with --output"
        )
    return status


def _require_unchanged(order: _Order, real: Path, old: os.stat_result | None) -> None:
    """Raise `SaveError` if another process wrote the model, or the target, since it was opened."""
    source = order.model.source
    if isinstance(source, FileSource):
        if not _same(os.fstat(source.fd), source.stat):
            raise SaveError(
                f"{order.model.name} was changed while it was being worked on: run again"
            )
        own_path = order.model.path
        if own_path and own_path.resolve() == real:
            old = source.stat
    try:
        now = real.stat()
    except FileNotFoundError:
        now = None
    if (now is None) != (old is None) or (now and old and not _same(now, old)):
        raise SaveError(f"{order.target} was changed by another process meanwhile: run again")


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return os.path.samestat(one, other) and (one.st_size, one.st_mtime_ns) == (
        other.st_size,
        other.st_mtime_ns,
    )


def _is_own(model: ModelFile, target: Path) -> bool:
    source = model.source
    try:
        return isinstance(source, FileSource) and os.path.samestat(source.stat, target.stat())
    except OSError:
        return False


def _check(order: _Order, hidden: Path) -> str:
    """Open what was written; return its SHA-256. Raises `SaveError` if it is not as planned."""
    source = FileSource(hidden)
    with closing(source):
        written = ModelFile(source, order.model.name, hidden, order.target.parent)
        known = {fault.code for fault in order.model.faults}
        new = [fault for fault in written.faults if fault.code not in known]
        if source.size != order.plan.size or new:
            reason = new[0] if new else f"{source.size} of {order.plan.size} bytes"
            raise SaveError(
                f"{order.target} was not written: a look at the new file found {reason}"
            )
        return written.sha256()


def _keep_old(real: Path, litter: Litter) -> Path:
    """Keep the old file under a name that was free; return it."""
    suffixes = chain([".orig"], map(".orig.{}".format, count(1)))
    paths = (real.with_name(real.name + suffix) for suffix in suffixes)
    path = next(path for path in paths if not os.path.lexists(path))
    try:
        litter.link(real, path)
    except OSError:
        # A file system without links.
        fd = litter.create(path)
        with os.fdopen(fd, "r+b", buffering=0), closing(FileSource(real)) as source:
            copy(source, 0, source.size, fd)
            take_over(fd, source.stat)
            os.fsync(fd)
    return path
