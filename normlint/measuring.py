"""`normlint measure`: what the norms of a model see on the user's own data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlint.report import stream
from normlint.report.look import Look
from normlint.report.measure import measure_json, measure_text
from normlint.run import preflight
from normlint.usage import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from normlint.context import Context, Settings
    from normlint.measure import Measured, NormStatistics
    from normlint.normalization import Normalization

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def measure(path: Path, data: Path, settings: Settings, *, as_json: bool, color: str) -> int:
    """Measure a model and print it; give the exit code. Raises UsageError."""
    from normlint.context import Context
    from normlint.discover import Target
    from normlint.graph import build_graph
    from normlint.measure import measure_norms, read_samples
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


def document(name: str, context: Context, measured: Measured) -> dict[str, Any]:
    """Give what was measured as plain values."""
    rows = []
    for norm in context.norms:
        found = measured.of(norm)
        if found is not None:
            rows.append(_row(norm, found))
    return {"path": name, "samples": measured.samples, "norms": rows}


def _row(norm: Normalization, found: NormStatistics) -> dict[str, Any]:
    deviation = found.deviation.quantile(0.5)
    return {
        "kind": norm.kind.value,
        "node": norm.anchor.name,
        "input": norm.x.name,
        "output": norm.y.name,
        "rows": found.rows,
        "range": [_short(found.low), _short(found.high)],
        "mean_over_deviation": {
            **{name: _short(found.ratio.quantile(part)) for name, part in QUANTILES.items()},
            "max": _short(found.ratio.most),
        },
        "deviation": {
            "min": _short(found.deviation.least),
            "p50": _short(deviation),
            "max": _short(found.deviation.most),
        },
        "range_over_deviation": _short(found.range / deviation) if deviation else None,
        "best_constant": _short(found.best_constant),
        "outlier_channels": found.outliers,
        "histogram": [int(count) for count in found.ratio.counts],
    }


def _short(number: float) -> float:
    return float(f"{number:.6g}")
