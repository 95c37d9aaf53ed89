"""NL110."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint import rewrite
from normlint.context.batch_norms import batch_norm_ops
from normlint.rule import Applicability, Diagnostic, NotFixed, Rewrite, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.graph import Node

_OPTIONAL_OUTPUTS_UNTIL = 14
_LEGACY_ATTRIBUTES = ("is_test", "consumed_inputs")


class LegacyBatchNorm(Rule):
    """A BatchNorm uses a form that the operator no longer has.

    ## What it does

    Reports a BatchNormalization with `spatial = 0` (until opset 8), `is_test` (until 6),
    `consumed_inputs` (until 5), or more than one output outside of training mode.

    ## Why is this bad?

    Newer runtimes refuse these, convert them wrongly, or fail when they run. `spatial = 0` with one
    value for each channel is a contradiction that the checker lets pass.

    ## Example

    `spatial = 0` with parameters of shape [C] becomes the same without the attribute; with
    parameters of shape [C, H, W] it becomes Mul and Add.

    ## Fix safety

    Safe. Before opset 14 more than one output means batch statistics (NL106): those are not
    dropped here.

    ## References

    - [A face recognition model with spatial = 0](https://github.com/onnx/models/issues/156)
    """

    code = "NL110"
    applicability = Applicability.SAFE

    bad = (
        """
        <ir_version: 8, opset_import: ["" : 8]>
        one_value_for_each_feature (float[N,2,1,2] x) => (float[N,2,1,2] y)
        <float[2,1,2] scale = {1.5,-2,1,3}, float[2,1,2] bias = {0.5,1,0,2},
         float[2,1,2] mean = {0.1,-0.3,1,2}, float[2,1,2] var = {0.5,2,1,4}> {
            y = BatchNormalization<spatial = 0>(x, scale, bias, mean, var)
        }
        """,
        """
        <ir_version: 8, opset_import: ["" : 9]>
        outputs_of_training (float[1,2,2,2] x) => (float[1,2,2,2] y)
        <float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            y, m, v, sm, sv = BatchNormalization(x, scale, bias, mean, var)
        }
        """,
    )
    good = (
        """
        <ir_version: 8, opset_import: ["" : 8]>
        spatial_by_default (float[N,2,1,2] x) => (float[N,2,1,2] y)
        <float[2] scale = {1.5,-2}, float[2] bias = {0.5,1}, float[2] mean = {0.1,-0.3},
         float[2] var = {0.5,2}> {
            y = BatchNormalization<spatial = 1>(x, scale, bias, mean, var)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each BatchNormalization with an attribute or outputs of the past."""
        for op in batch_norm_ops(context):
            forms = _legacy_forms(op.node)
            if not forms:
                continue
            outcome = rewrite.fold_legacy.modernised(op, context)
            yield Diagnostic(
                f"a BatchNormalization has {' and '.join(forms)}",
                op.node,
                (op.node,),
                {"forms": forms},
                rewrite=outcome if isinstance(outcome, Rewrite) else None,
                not_fixed=outcome if isinstance(outcome, NotFixed) else None,
            )


def _legacy_forms(node: Node) -> list[str]:
    forms = [f"the attribute {name}" for name in _LEGACY_ATTRIBUTES if name in node.attrs]
    if "spatial" in node.attrs and (not node.attrs["spatial"] or node.graph.opset > 8):
        forms.append(f"the attribute spatial = {node.attrs['spatial']}")
    extra = any(tensor.name for tensor in node.outputs[1:])
    if extra and not node.attrs.get("training_mode", 0):
        forms.append("outputs that only training has")
    return forms
