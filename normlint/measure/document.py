"""What was measured, as plain values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.graph import graph_path

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.measure.running import Measured
    from normlint.measure.statistics import NormStatistics
    from normlint.normalization import Normalization

    Array = np.ndarray[Any, Any]

MOST_PEAKS = 48
"""Of the picture of a norm's channels."""
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


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
        "graph": graph_path(norm.anchor),
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
        "channel_peaks": peaks(found.channels),
        "histogram": [int(count) for count in found.ratio.counts],
        "deviation_histogram": [int(count) for count in found.deviation.counts],
    }


def peaks(channels: Array | None) -> list[float | None]:
    """Give the largest magnitudes along the channels, of so many neighbours together that fit."""
    if channels is None:
        return []
    parts = np.array_split(channels, min(len(channels), MOST_PEAKS))
    return [_short(float(part.max())) for part in parts]


def _short(number: float) -> float | None:
    """Give a number in a few digits; None for one that JSON does not hold."""
    return float(f"{number:.6g}") if math.isfinite(number) else None
