"""Whether a question is ill-conditioned: whether rounding what is asked moves the answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from normlint.verify.runner import double, lifted

if TYPE_CHECKING:
    from onnx import ModelProto

    from normlint.verify.cut import Cut
    from normlint.verify.region import Engines
    from normlint.verify.runner import Feed

    Array = np.ndarray[Any, Any]

_UNITS: dict[int, float] = {
    TensorProto.DOUBLE: 2.0**-53,
    TensorProto.FLOAT: 2.0**-24,
    TensorProto.FLOAT16: 2.0**-11,
    TensorProto.BFLOAT16: 2.0**-8,
}
_ROUNDINGS = 8
"""Roundings of the inputs that an output may be off by."""
_TRIALS = 4
"""How often they are rounded at random: one way may happen to move nothing."""


def is_ill_conditioned(engines: Engines, cut: Cut, feed: Feed, index: int, new: Array) -> bool:
    """Whether one rounding of the inputs or weights moves an exact output as far as it is off.

    No arithmetic in the region's types can be asked for more: the variance of a few values that lie
    close together and far from zero loses as many digits, in the old nodes as in the new ones.
    """
    if engines.exact is None:
        return False
    unit = _UNITS[engines.dtype]
    shifts = []
    try:
        truth = engines.exact(feed)[index]
        for seed in range(_TRIALS):
            generator = np.random.default_rng(seed)
            near = {name: _rounded(values, unit, generator) for name, values in feed.items()}
            moved = engines.exact(near)[index]
            weighed = double(_with_rounded_weights(cut.before, unit, generator))
            other = engines.compared(weighed)(feed)[index]
            shifts += [np.abs(moved - truth), np.abs(other - truth)]
    except Exception:  # noqa: BLE001 - no engine for this operator in double
        return False
    if truth.shape != new.shape or truth.dtype.kind not in "fV":
        return False
    shift = np.max(shifts, axis=0)
    usable = np.isfinite(truth) & np.isfinite(shift)
    error = np.abs(new.astype(np.float64) - truth)[usable]
    return bool(usable.any()) and float(error.max()) <= _ROUNDINGS * float(shift[usable].max())


def _rounded(values: Array, unit: float, generator: np.random.Generator) -> Array:
    """Move floats by one rounding each; they are doubles then."""
    if values.dtype.kind not in "fV":
        return values
    return np.asarray(
        values.astype(np.float64) * (1 + unit * generator.choice([-1, 1], values.shape))
    )


def _with_rounded_weights(
    model: ModelProto, unit: float, generator: np.random.Generator
) -> ModelProto:
    """Move every weight of a model by one rounding; single numbers stay, for they are exact."""
    wide = lifted(model, TensorProto.DOUBLE)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.DOUBLE and math.prod(tensor.dims) > 1:
            values = _rounded(onnx.numpy_helper.to_array(tensor), unit, generator)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return wide
