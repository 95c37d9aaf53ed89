"""NL604."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.rule import Applicability, NotFixed, Reason, Rewrite, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic

_PER_CHANNEL = 21
"""The opset from which on GroupNormalization has a scale for each channel, not for each group."""


class GroupNormSemantics(Rule):
    """The scale of a GroupNormalization does not fit the declared opset.

    ## What it does

    Reports a GroupNormalization of opset 18 to 20 with a scale for each channel, or of opset 21 and
    later with a scale for each group. And one whose channels make no groups of equal size: its
    shapes fit at no opset.

    ## Why is this bad?

    At 18 the operator had a scale for each group, which no framework has; at 21 it got one for each
    channel under the same name. Exporters wrote the latter with the former's opset, and onnx's
    version converter raises the opset and leaves the scale as it is. Runtimes refuse both, or
    compute nonsense.

    ## Example

    Opset 21, two groups, four channels: the scale [a, b] becomes [a, a, b, b]. Opset 18 with a
    scale for each channel: the model should declare opset 21 (`--target-opset 21`).

    ## Fix safety

    Safe: the scale can mean only this. Groups of unequal size are not repaired.

    ## When not to follow it

    There is no such case.

    ## References

    - [The change of meaning](https://github.com/onnx/onnx/issues/5466)
    - [The version converter](https://github.com/onnx/onnx/issues/5808)
    """

    code = "NL604"
    severity = Severity.ERROR
    applicability = Applicability.SAFE

    bad = (
        """
        <ir_version: 10, opset_import: ["" : 21]>
        for_each_group (float[1,4,2,2] x) => (float[1,4,2,2] y)
        <float[2] scale = {1,2}, float[2] bias = {0,1}> {
            y = GroupNormalization<num_groups = 2>(x, scale, bias)
        }
        """,
        """
        <ir_version: 8, opset_import: ["" : 18]>
        for_each_channel (float[1,4,2,2] x) => (float[1,4,2,2] y)
        <float[4] scale = {1,2,3,4}, float[4] bias = {0,1,2,3}> {
            y = GroupNormalization<num_groups = 2>(x, scale, bias)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 21]>
        groups_of_unequal_size (float[1,6,2,2] x) => (float[1,6,2,2] y)
        <float[6] scale = {1,2,3,4,5,6}, float[6] bias = {0,1,2,3,4,5}> {
            y = GroupNormalization<num_groups = 4>(x, scale, bias)
        }
        """,
    )
    good = (
        """
        <ir_version: 8, opset_import: ["" : 18]>
        for_each_group (float[1,4,2,2] x) => (float[1,4,2,2] y)
        <float[2] scale = {1,2}, float[2] bias = {0,1}> {
            y = GroupNormalization<num_groups = 2>(x, scale, bias)
        }
        """,
        """
        <ir_version: 10, opset_import: ["" : 21]>
        for_each_channel (float[1,4,2,2] x) => (float[1,4,2,2] y)
        <float[4] scale = {1,2,3,4}, float[4] bias = {0,1,2,3}> {
            y = GroupNormalization<num_groups = 2>(x, scale, bias)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each GroupNormalization whose scale has the other opset's length."""
        for norm in (*context.norms, *context.constant_norms):
            if norm.op_type != "GroupNormalization":
                continue
            channels, groups = _channels(norm), norm.groups or 0
            if groups and channels is not None and channels % groups:
                message = f"{channels} channels make no {groups} groups of equal size"
                detail = "what num_groups or the number of channels should be is not known"
                yield diagnose(norm, message, NotFixed(Reason.BROADCAST, norm.anchor, detail))
                continue
            length = _length(norm)
            per_group = context.opset < _PER_CHANNEL
            if length is None or length == (groups if per_group else channels):
                continue
            unit, other = ("group", "channel") if per_group else ("channel", "group")
            message = (
                f"GroupNormalization has a scale for each {unit} at opset {context.opset}, and "
                f"this one has {length} values, one for each {other}"
            )
            yield diagnose(norm, message, _rewrite(context, norm), length=length)


def _rewrite(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    if context.opset < _PER_CHANNEL:
        return rewrite.standard.at_newer_opset(context, norm, _PER_CHANNEL)
    return rewrite.group_scale.repeated_scale(norm)


def _channels(norm: Normalization) -> int | None:
    shape = norm.x.shape
    extent = shape[1] if shape is not None and len(shape) > 1 else None
    return extent if isinstance(extent, int) else None


def _length(norm: Normalization) -> int | None:
    """Give the number of values of the scale, where it is that of the groups or the channels."""
    scale = norm.anchor.input(1)
    shape = None if scale is None else scale.shape
    extent = shape[0] if shape is not None and len(shape) == 1 else None
    channels = _channels(norm)
    if not isinstance(extent, int) or channels is None or channels == norm.groups:
        return None
    return extent if extent in {channels, norm.groups} else None
