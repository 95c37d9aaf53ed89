"""`normlint norms`: every normalisation of every model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from normlint.checking import first_folder
from normlint.discover import content_of, discover
from normlint.model.fault import FileFault
from normlint.report import stream
from normlint.report.look import Look, visible
from normlint.report.norms import norms_json, norms_text
from normlint.report.stream_map import stream_map
from normlint.run import preflight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.config import Resolver
    from normlint.context import Settings
    from normlint.discover import Target

Entry = TypeVar("Entry")


def list_norms(
    paths: Sequence[str], resolver: Resolver, *, as_json: bool, allow_empty: bool, color: str
) -> int:
    """List the normalisations and give the exit code: 1 where a model could not be read."""
    targets = discover(paths, resolver.for_folder, allow_empty=allow_empty)
    config = resolver.for_folder(first_folder(paths))
    models = [_entry(target, config.settings) for target in targets]
    if as_json:
        stream.emit_document(norms_json(models))
    else:
        stream.emit(norms_text(models, Look(stream.colour_of_stdout(color))))
    return int(any("error" in model for model in models))


def map_norms(paths: Sequence[str], resolver: Resolver, *, allow_empty: bool, color: str) -> int:
    """Draw the residual streams, a line a layer; give 1 where a model could not be read."""
    from normlint import engine

    targets = discover(paths, resolver.for_folder, allow_empty=allow_empty)
    settings = resolver.for_folder(first_folder(paths)).settings
    look = Look(stream.colour_of_stdout(color))
    failed = False
    for target in targets:
        try:
            lines = stream_map(_read(target, settings, engine.streams_of))
        except FileFault as fault:
            failed = True
            lines = [f"{fault.code} {visible(fault.message)}"]
        text = [f"{look(visible(target.name), 'bold')}:", *(f"  {line}" for line in lines)]
        stream.emit("".join(f"{line}\n" for line in text))
    return int(failed)


def excluded_nodes(
    paths: Sequence[str], resolver: Resolver, form: str, *, allow_empty: bool
) -> int:
    """List what a quantiser must leave in float, in the form that it takes."""
    from normlint.excluding import list_excluded

    targets = discover(paths, resolver.for_folder, allow_empty=allow_empty)
    return list_excluded(targets, resolver.for_folder(first_folder(paths)).settings, form)


def _read(target: Target, settings: Settings, read: Callable[..., Entry]) -> Entry:
    data = content_of(target)
    fault = preflight(target, data)
    if fault is not None:
        raise fault
    return read(target.path, data=data, name=target.name, settings=settings)


def _entry(target: Target, settings: Settings) -> dict[str, Any]:
    from normlint import engine

    try:
        return _read(target, settings, engine.norms_of)
    except FileFault as fault:
        error = {"code": fault.code, "message": fault.message}
        empty: dict[str, Any] = {"norms": [], "near_norms": [], "constant_norms": [], "streams": []}
        return {"path": target.name, **empty, "error": error}
