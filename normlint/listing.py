"""`normlint norms`: every normalisation of every model."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from normlint.checking import first_folder
from normlint.discover import discover
from normlint.model.fault import FileFault
from normlint.report import stream
from normlint.report.look import Look
from normlint.report.norms import norms_json, norms_text
from normlint.run import preflight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.config import Resolver
    from normlint.discover import Target


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


def _entry(target: Target, settings: Any) -> dict[str, Any]:
    data = sys.stdin.buffer.read() if target.path is None else None
    try:
        fault = preflight(target, data)
        if fault is not None:
            raise fault
        from normlint import engine

        return engine.norms_of(target.path, data=data, name=target.name, settings=settings)
    except FileFault as fault:
        error = {"code": fault.code, "message": fault.message}
        empty: dict[str, Any] = {"norms": [], "near_norms": [], "constant_norms": [], "streams": []}
        return {"path": target.name, **empty, "error": error}
