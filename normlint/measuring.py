"""`normlint measure`: what the norms of a model see on the user's own data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.report import stream
from normlint.report.look import Look
from normlint.report.measure import measure_json, measure_text
from normlint.run import preflight
from normlint.usage import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from normlint.context import Settings


def measure(path: Path, data: Path, settings: Settings, *, as_json: bool, color: str) -> int:
    """Measure a model and print it; give the exit code. Raises UsageError."""
    from normlint.context import Context
    from normlint.discover import Target
    from normlint.graph import build_graph
    from normlint.measure import measure_norms, read_samples
    from normlint.measure.document import document
    from normlint.model import FileFault, open_model
    from normlint.report.progress import Progress

    name = path.as_posix()
    if not path.is_file():
        raise UsageError(f"{name} does not exist")
    fault = preflight(Target(name, path), None)
    if fault is not None:
        raise UsageError(f"{name}: {fault.message}")
    try:
        model = open_model(path, name=name)
    except FileFault as found:
        raise UsageError(f"{name}: {found.message}") from found
    context = Context(build_graph(model.proto, model.values), settings)
    samples = read_samples(data)
    with Progress(samples.count, wanted=True) as progress:
        measured = measure_norms(model, context, samples, progress.done)
    entry = document(name, context, measured)
    if as_json:
        stream.emit_document(measure_json([entry]))
    else:
        stream.emit(measure_text(entry, Look(stream.colour_of_stdout(color))))
    return 0
