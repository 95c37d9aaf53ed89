"""What rounding does to the steps of a normalisation, in the numbers of the case at hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.context.quantized import QuantizedNorm, Rounding

SERIOUS = 0.10
"""Relative error of a normalised value from which on it is an error."""
HARMLESS = 0.02
"""Relative error below which it is worth knowing only."""
_PEAKS = (12, 52, 91)
"""Peaks over deviations for which the error is shown where the deviation is not known."""
_LARGEST_VECTOR = 1 << 16


def grid_facts(rounding: Rounding) -> dict[str, Any]:
    """Give the grid of a rounding as plain values."""
    facts: dict[str, Any] = {"by": rounding.by.op}
    step = rounding.step
    if step is not None:
        facts |= {"type": step.type_name, "bits": step.bits}
        facts |= {"step": _short(step.size), "range": _short(step.range)}
        if step.axis is not None:
            facts["axis"] = step.axis
    return facts


def loudest_deviation(found: QuantizedNorm, constants: Constants) -> float | None:
    """Estimate the deviation of the token with the largest one, from ranges in the file.

    The range of a rounded variance or root says it; else the range of the norm's rounded result
    over the largest scale, which is the range of (x - mean) / deviation, does for the token that
    fills the range of x. Other tokens have smaller deviations, hence larger errors.
    """
    for name, rounding in found.inside:
        if rounding.step is not None and name in {"variance", "epsilon"}:
            return math.sqrt(rounding.step.range)
        if rounding.step is not None and name == "root":
            return rounding.step.range
    if found.before is None or found.before.step is None or not found.after:
        return None
    result = found.after[0].step
    if result is None:
        return None
    gain = _largest_scale(found, constants)
    return found.before.step.range * gain / result.range if gain else None


def _largest_scale(found: QuantizedNorm, constants: Constants) -> float:
    scale = found.norm.scale
    if scale is None:
        return 1.0
    for tensor in scale.tensors:
        values = constants.known(tensor, _LARGEST_VECTOR)
        if values is None:
            return 0.0
        return float(np.max(np.abs(values.astype(np.float64))))
    return 1.0


def expected_error(found: QuantizedNorm, constants: Constants) -> float | None:
    """Estimate the least relative error of the normalised values: step / (√12 · deviation)."""
    before = found.before
    deviation = loudest_deviation(found, constants)
    if before is None or before.step is None or not deviation:
        return None
    return before.step.relative_error(deviation)


def error_by_peak(rounding: Rounding) -> dict[str, float]:
    """Give the error for some heights of half the range, in deviations of one token."""
    step = rounding.step
    if step is None:
        return {}
    return {str(w): _short(step.relative_error(step.range / 2 / w)) for w in _PEAKS}


def steps_at_risk(found: QuantizedNorm) -> list[dict[str, Any]]:
    """Name each step that rounding harms, with the grid that it works on and what goes wrong."""
    rows: list[dict[str, Any]] = []
    before = found.before
    if before is not None and before.step is not None:
        step = before.step
        rows += _of_input(step.size, step.range)
    for name, rounding in found.inside:
        size = rounding.step.size if rounding.step is not None else 0.0
        rows.append({"step": name, **grid_facts(rounding), "risk": _risk(name, size)})
    return rows


def _of_input(size: float, span: float) -> list[dict[str, Any]]:
    grid = {"step_size": _short(size), "range": _short(span)}
    quiet = size / (math.sqrt(12.0) * SERIOUS)
    return [
        {
            "step": "difference",
            **grid,
            "risk": f"values closer than {size:.3g} differ by nothing or by a whole step",
        },
        {
            "step": "squares and their sum",
            **grid,
            "risk": f"each square is off by up to {size:.3g} times the value",
        },
        {
            "step": "variance",
            **grid,
            "risk": f"the rounding adds {size * size / 12:.3g} to the variance of every token",
        },
        {
            "step": "range over tokens",
            **grid,
            "risk": f"one range of {span:.3g} serves all tokens: one whose deviation is below "
            f"{quiet:.3g} is off by more than {SERIOUS:.0%}",
        },
    ]


def _risk(name: str, size: float) -> str:
    if name in {"variance", "epsilon"}:
        return f"a variance below {size / 2:.3g} becomes 0, and epsilon with it"
    if name == "root":
        return f"a root below {size / 2:.3g} becomes 0 and is divided by"
    return {
        "square": "squares of small differences become 0 beside those of large ones",
        "mean": f"the mean is off by up to {size / 2:.3g}",
        "difference": f"differences below {size / 2:.3g} become 0",
        "quotient": f"the result is off by up to {size / 2:.3g} deviations",
    }.get(name, f"the result is off by up to {size / 2:.3g}")


def _short(number: float) -> float:
    return float(f"{number:.6g}")
