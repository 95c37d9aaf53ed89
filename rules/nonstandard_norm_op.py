"""NL603."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from normlint import rewrite
from normlint.diagnosing import diagnose
from normlint.rule import Applicability, NotFixed, Rewrite, Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.graph import Node
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic

_MICROSOFT = "com.microsoft"
_NOWHERE = "com.microsoft::SimplifiedLayerNormalization"
"""An operator in a domain where no runtime has it."""


class NonstandardNormOp(Rule):
    """A normalisation operator that the declared operator set does not have.

    ## What it does

    Reports a normalisation operator in the domain ai.onnx that is not defined there, as
    SimplifiedLayerNormalization, or that is newer than the opset which the model declares; and one
    of ai.onnx that is named in com.microsoft, as LayerNormalization.

    ## Why is this bad?

    onnx.checker refuses the file, and so does every runtime but onnxruntime, whose own optimiser
    writes such files: it registers SimplifiedLayerNormalization in ai.onnx.

    ## Example

    `SimplifiedLayerNormalization(x, scale)` becomes `RMSNormalization(x, scale)` where the opset
    may rise to 23, else `Pow, ReduceMean, Add, Sqrt, Div, Mul`. LayerNormalization in a model of
    opset 14 needs the opset 17 declared (`--target-opset 17`).

    ## Fix safety

    Safe: it is the same function up to rounding.

    ## When not to follow it

    Where the file was optimised for one version of onnxruntime on purpose, and is made anew for the
    next one.

    ## References

    - [SimplifiedLayerNormalization in ai.onnx](https://github.com/onnx/onnx/issues/6582)
    - [The same seen by users](https://github.com/microsoft/onnxruntime/issues/26033)
    """

    code = "NL603"
    severity = Severity.ERROR
    applicability = Applicability.SAFE

    bad = (
        """
        <ir_version: 7, opset_import: ["" : 14]>
        simplified (float[1,8] x) => (float[1,8] y)
        <float[8] scale = {1,2,3,4,5,6,7,8}> {
            y = SimplifiedLayerNormalization<axis = -1, epsilon = 1e-6, stash_type = 1>(x, scale)
        }
        """,
        (
            """
            <ir_version: 8, opset_import: ["" : 17]>
            opset_may_rise (float[1,8] x) => (float[1,8] y)
            <float[8] scale = {1,2,3,4,5,6,7,8}> {
                y = SimplifiedLayerNormalization<axis = -1, epsilon = 1e-6>(x, scale)
            }
            """,
            {"target_opset": 23},
        ),
        (
            """
            <ir_version: 7, opset_import: ["" : 14]>
            newer_than_declared (float[1,8] x) => (float[1,8] y)
            <float[8] scale = {1,2,3,4,5,6,7,8}> {
                y = LayerNormalization(x, scale)
            }
            """,
            {"target_opset": 17},
        ),
        """
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        in_another_domain (float[1,8] x) => (float[1,8] y)
        <float[8] scale = {1,2,3,4,5,6,7,8}> {
            y = com.microsoft.LayerNormalization(x, scale)
        }
        """,
    )
    good = (
        """
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        of_that_domain (float[1,4,8] x, float[1,4,8] skip) => (float[1,4,8] y)
        <float[8] scale = {1,2,3,4,5,6,7,8}> {
            y = com.microsoft.SkipSimplifiedLayerNormalization(x, skip, scale)
        }
        """,
        """
        declared (float[1,8] x) => (float[1,8] y)
        <float[8] scale = {1,2,3,4,5,6,7,8}> {
            y = LayerNormalization(x, scale)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each normalisation operator that its operator set does not define."""
        for norm in (*context.norms, *context.constant_norms):
            node = norm.anchor
            if not norm.is_op or not (node.is_standard or _is_misplaced(node)):
                continue
            if _is_defined(node.op, context.opset) and node.is_standard:
                continue
            since = _since(node.op)
            where = (
                f"ai.onnx has {node.op} from opset {since} on, and the model declares "
                f"{context.opset}"
                if since and node.is_standard
                else f"{node.op} is no operator of {node.domain or 'ai.onnx'}"
            )
            refused = "the checker refuses the file, and most runtimes do"
            message = f"{where}: {refused if node.is_standard else 'no runtime has it there'}"
            yield diagnose(norm, message, _rewrite(context, norm, since))


def _is_misplaced(node: Node) -> bool:
    """Whether a node names an operator in com.microsoft that is one of ai.onnx."""
    if node.domain != _MICROSOFT:
        return False
    return onnx.defs.has(node.op) or f"{node.domain}::{node.op}" == _NOWHERE


def _rewrite(context: Context, norm: Normalization, since: int) -> Rewrite | NotFixed:
    if not since:
        return rewrite.standard.standard_form(context, norm)
    outcome = rewrite.standard.at_newer_opset(context, norm, since)
    if isinstance(outcome, NotFixed) and norm.anchor.op == "RMSNormalization":
        return rewrite.standard.standard_form(context, norm)
    return outcome


def _is_defined(op: str, opset: int) -> bool:
    try:
        onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return False
    return True


def _since(op: str) -> int:
    """Give the first opset that defines an operator, without deprecated definitions; 0 for none."""
    if not onnx.defs.has(op):
        return 0
    latest = onnx.defs.onnx_opset_version()
    versions = {
        schema.since_version
        for opset in range(1, latest + 1)
        if _is_defined(op, opset) and not (schema := onnx.defs.get_schema(op, opset)).deprecated
    }
    return min(versions, default=0)
