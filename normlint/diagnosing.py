"""Diagnostics about a normalisation, all with the same evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto

from normlint.normalization import Kind
from normlint.rule import Diagnostic, NotFixed

if TYPE_CHECKING:
    from normlint.normalization import Normalization
    from normlint.rule import Rewrite, Severity


def diagnose(
    norm: Normalization,
    message: str,
    outcome: Rewrite | NotFixed | None = None,
    *,
    severity: Severity | None = None,
    **evidence: Any,
) -> Diagnostic:
    """Say something of a normalisation, with its rewrite or the reason why there is none."""
    return Diagnostic(
        message,
        norm.anchor,
        norm.nodes,
        {**evidence_of(norm), **evidence},
        rewrite=None if isinstance(outcome, NotFixed) else outcome,
        not_fixed=outcome if isinstance(outcome, NotFixed) else None,
        severity=severity,
        output=norm.y,
    )


def evidence_of(norm: Normalization) -> dict[str, Any]:
    """Give the facts of a normalisation as plain values."""
    facts: dict[str, Any] = {
        "kind": norm.kind.value,
        "axes": None if norm.axes is None else list(norm.axes),
        "epsilon": norm.epsilon,
        "type": type_name(norm.dtype),
        "statistics_type": type_name(norm.statistics_dtype),
        "nodes": len(norm.nodes),
    }
    if norm.groups is not None:
        facts["groups"] = norm.groups
    return facts


def type_name(dtype: int) -> str:
    """Give the name of an element type as numpy writes it; empty where it is not known."""
    if dtype not in TensorProto.DataType.values() or not dtype:
        return ""
    name: str = TensorProto.DataType.Name(dtype).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def named(norm: Normalization) -> str:
    """Name its kind with an article."""
    return with_article(norm.kind)


def with_article(kind: Kind) -> str:
    """Name a kind with an article."""
    word = "norm" if kind is Kind.OTHER else kind.value
    return f"{'an' if kind in {Kind.INSTANCE, Kind.L2, Kind.RMS} else 'a'} {word}"


def over(norm: Normalization) -> str:
    """Say over which axes the statistics are taken."""
    if not norm.axes:
        return "its axes"
    if norm.axes == (-1,):
        return "the last axis"
    if norm.axes == tuple(range(-len(norm.axes), 0)):
        return f"the last {len(norm.axes)} axes"
    return f"axis {norm.axes[0]}" if len(norm.axes) == 1 else f"axes {list(norm.axes)}"
