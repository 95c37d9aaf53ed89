"""Scale and bias of a norm that are stored as integers, stored in float."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from normlint.rewrite.unquantize import replaced
from normlint.rule import Applicability, Computed, NotFixed, Reason, Rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context import Context
    from normlint.context.quantized import QuantizedParameter
    from normlint.graph import Tensor

    Array = np.ndarray[Any, Any]


def parameters_in_float(
    context: Context, found: Sequence[QuantizedParameter]
) -> Rewrite | NotFixed:
    """Store scale and bias of one norm as the floats that their integers stand for."""
    constants: dict[Tensor, Computed] = {}
    for parameter in found:
        tensor = parameter.dequantize.y
        values = context.constants.known(tensor)
        if values is None:
            return NotFixed(Reason.WEIGHTS_NOT_CONSTANT, tensor, "its values cannot be read")
        constants[tensor] = _constant(parameter, np.asarray(values, np.float64))
    readers = dict.fromkeys(node for parameter in found for node in parameter.readers)
    edits = [
        replaced(node, {i: constants[t] for i, t in enumerate(node.inputs) if t in constants})
        for node in readers
    ]
    names = " and ".join(parameter.name for parameter in found)
    region = (*readers, *(parameter.dequantize for parameter in found))
    return Rewrite(f"store {names} in float", Applicability.UNSAFE, tuple(edits), region)


def _constant(parameter: QuantizedParameter, values: Array) -> Computed:
    stored = parameter.dequantize
    name = stored.inputs[0].name.removesuffix("_quantized")
    return Computed(values.shape, stored.y.dtype or TensorProto.FLOAT, lambda: values, name)
