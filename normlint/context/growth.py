"""How large the result of a constant node will be, before anybody computes it.

A few bytes can ask for petabytes: ConstantOfShape, Expand, Tile, Range, Pad and others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import onnx

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from onnx import ModelProto

    Array = np.ndarray[Any, Any]

MOST_ELEMENTS = 1 << 24
"""Elements of a result that is computed; weights that are written in the file may be larger."""
_MOST_OF_SMALL = 1 << 20
_LARGEST_SHOWN = 1024
"""Elements of operands whose values shape inference is told: extents, repeats, paddings."""
_GROWS_BY_VALUE = frozenset(("Resize", "Upsample", "Range", "OneHot"))
"""Operators whose operands that say how large the result is may be floats."""
_GROWS_BY_ATTRIBUTE = frozenset(("pads", "output_shape", "output_padding", "strides", "scales"))


class TooLargeError(ValueError):
    """A result has more elements than are computed."""


def require_bounded(model: ModelProto, feeds: Mapping[str, Array]) -> None:
    """Raise TooLargeError where the result of the one node of a model is too large, or unknown."""
    (node,) = model.graph.node
    if _is_small(node, feeds):
        return
    told = onnx.ModelProto()
    told.CopyFrom(model)
    for value in told.graph.input:
        shape = feeds[value.name].shape
        value.CopyFrom(
            onnx.helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape)
        )
    told.graph.initializer.extend(
        onnx.numpy_helper.from_array(values, name)
        for name, values in feeds.items()
        if values.size <= _LARGEST_SHOWN
    )
    allowed = max([MOST_ELEMENTS, *(values.size for values in feeds.values())])
    for value in onnx.shape_inference.infer_shapes(told, data_prop=True).graph.output:
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            raise TooLargeError("the size of its result is not known")
        if math.prod(dim.dim_value for dim in tensor.shape.dim) > allowed:
            raise TooLargeError("its result is too large")


def _is_small(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> bool:
    """Whether no result can be large: it grows with the product of the operands at the most."""
    if any(attribute.name in _GROWS_BY_ATTRIBUTE for attribute in node.attribute):
        return False
    if node.op_type in _GROWS_BY_VALUE or any(
        values.dtype.kind in "iu" for values in feeds.values()
    ):
        return False
    return math.prod(max(values.size, 1) for values in feeds.values()) <= _MOST_OF_SMALL
