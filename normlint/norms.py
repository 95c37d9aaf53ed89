"""Every normalisation of a model, as plain data: the document of `normlint norms`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from normlint.context.neighbours import remark
from normlint.graph import Addresses, graph_path, module
from normlint.model import ValuesUnavailable

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.normalization import NearNorm, Normalization, Parameter

_LARGEST_READ = 1 << 20
"""Elements above which a scale is taken to be one without being read."""
_TYPE_NAMES = {
    TensorProto.FLOAT: "float32",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.DOUBLE: "float64",
}


def norms_document(path: str, context: Context) -> dict[str, Any]:
    """Give what is known about every normalisation of a model, as JSON can hold it."""
    address = Addresses(context.graph)
    return {
        "path": path,
        "norms": [_norm(norm, context, address) for norm in context.norms],
        "near_norms": [_near(near, address) for near in context.near_norms],
        "constant_norms": [_norm(norm, context, address) for norm in context.constant_norms],
        "streams": [
            {
                "depth": stream.depth,
                "blocks": stream.blocks,
                "placement": stream.placement,
                "norms": len(stream.norms),
            }
            for stream in context.streams
        ],
    }


def type_name(dtype: int) -> str | None:
    """Give the name of a float type as numpy writes it; None where it is unknown."""
    return _TYPE_NAMES.get(dtype)  # type: ignore[call-overload,no-any-return] # an int enum


def _acts(parameter: Parameter | None, neutral: float) -> bool:
    """Whether a parameter changes anything: exporters write ones and zeros for a norm without."""
    return parameter is not None and not parameter.is_always(neutral)


def acts(parameter: Parameter | None, neutral: float) -> bool:
    """Whether a scale or bias does anything: operators want ones where a layer has none."""
    if parameter is None:
        return False
    if parameter.compute is None or math.prod(parameter.shape or ()) > _LARGEST_READ:
        return True
    try:
        return not bool((parameter.compute() == neutral).all())
    except ValuesUnavailable:
        return True


def _norm(norm: Normalization, context: Context, address: Addresses) -> dict[str, Any]:
    placement = context.placement(norm)
    entry: dict[str, Any] = {
        "kind": norm.kind.value,
        "form": norm.form.value,
        "op_type": norm.op_type,
        "graph": graph_path(norm.anchor),
        "nodes": [address(node) for node in norm.nodes],
        "input": norm.x.name,
        "output": norm.y.name,
        "axes": list(norm.axes) if norm.axes is not None else None,
        "epsilon": norm.epsilon,
        "scale": _acts(norm.scale, 1.0),
        "bias": _acts(norm.bias, 0.0),
        "type": type_name(norm.dtype),
        "statistics_type": type_name(norm.statistics_dtype),
        "placement": placement.word,
        "depth": placement.depth,
        "stream": placement.stream,
        "quantized": norm.quantized,
        "module": module(norm.anchor),
        "follows": placement.follows,
    }
    if norm.groups is not None:
        entry["groups"] = norm.groups
    if said := remark(norm, context):
        entry["remark"] = said
    return entry


def _near(near: NearNorm, address: Addresses) -> dict[str, Any]:
    return {
        "reason": near.reason,
        "like": near.like.value,
        "nodes": [address(node) for node in near.nodes],
        "input": near.x.name,
        "output": near.y.name,
        "detail": near.detail,
    }
