"""Run the rules about streams on a model, and compare what it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from centring.evaluate import run

from normlint.context import Settings
from normlint.model import open_model
from normlint.plugins import load_rules
from normlint.repair import Repair, Repaired

if TYPE_CHECKING:
    from centring.random_streams import Example
    from onnx import ModelProto

_NOISE = 1e-3
"""Outputs below this are what rounding leaves of zero."""

CODES = ("NL203", "NL204")


@dataclass(frozen=True)
class Outcome:
    """What became of a model."""

    model: ModelProto
    made: int
    """Number of RMSNorms more than before."""
    error: float
    """Largest error relative to the scale of an output."""
    again: int
    """Rewrites of a second run."""


def repaired(model: ModelProto, settings: Settings | None = None) -> Repaired:
    """Repair a model without verification: it is what is tested that must be right."""
    rules = [rule for rule in load_rules() if rule.code in CODES]
    settings = settings or Settings(target_opset=23, rms_norm_policy="always")
    repair = Repair(open_model(model.SerializeToString()), rules, settings, verify=False)
    return repair.run()


def outcome(example: Example, settings: Settings | None = None) -> Outcome:
    """Repair a random model and compare."""
    first = repaired(example.model, settings)
    second = repaired(first.proto, settings)
    error = 0.0
    for feeds in example.feeds:
        before, after = run(example.model, feeds), run(first.proto, feeds)
        error = max(error, *(distance(a, b) for a, b in zip(before, after, strict=True)))
    return Outcome(first.proto, count(first.proto) - count(example.model), error, len(second.fixed))


def count(model: ModelProto) -> int:
    """Count the operators that compute an RMSNorm."""
    ops = {"RMSNormalization", "SkipSimplifiedLayerNormalization"}
    return sum(node.op_type in ops for node in model.graph.node)


def distance(before: np.ndarray, after: np.ndarray) -> float:  # type: ignore[type-arg]
    """Give the error relative to the scale; NaN must stay where it was."""
    if before.shape != after.shape:
        return np.inf
    if before.size == 0:
        return 0.0
    usable = np.isfinite(before)
    if not np.isfinite(after[usable]).all():
        return np.inf
    scale = max(np.abs(before[usable]).max(initial=0.0), _NOISE)
    return float(np.abs(before[usable] - after[usable]).max(initial=0.0) / scale)
