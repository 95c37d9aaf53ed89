"""NL405."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint import rewrite
from normlint.context.quantized_steps import step_of
from normlint.diagnosing import diagnose, named
from normlint.rule import Applicability, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.quantized import QuantizedParameter
    from normlint.rule import Diagnostic


class QuantizedNormParameters(Rule):
    """The scale or bias of a norm is stored in eight bits or fewer.

    ## What it does

    Reports a norm whose scale or bias comes from a DequantizeLinear of stored integers.

    ## Why is this bad?

    The scale of a norm often has a few large channels, where the model keeps its outliers. Eight
    bits of the range that they set leave little for the others, and the whole channel is off. It
    saves some hundred bytes. What was rounded cannot be had back from the file: quantise again and
    leave the norms out (`normlint norms --list nodes-to-exclude`).

    ## Example

    `LayerNormalization(x, DequantizeLinear(scale_int8, …))` becomes `LayerNormalization(x, scale)`.

    ## Fix safety

    Unsafe by intent, though the numbers stay: the file grows by the floats, and a runtime for
    integers may want them as they are.

    ## When not to follow it

    Where the hardware wants integers throughout: name it with `--targets qnn`.
    """

    code = "NL405"
    applicability = Applicability.UNSAFE

    bad = (
        """
        scale_in_int8 (float[2,4] x) => (float[2,4] y)
        <float s = {0.1}, int8 z = {0}, int8[4] g = {100, 3, 2, -1}> {
            scale = DequantizeLinear(g, s, z)
            y = LayerNormalization(x, scale)
        }
        """,
    )
    good = (
        """
        bias_in_int32 (float[2,4] x) => (float[2,4] y)
        <float[4] scale = {1.5,0.5,1,2}, float s = {0.000001}, int32 z = {0},
         int32[4] b = {1000000, 30000, 20000, -10000}> {
            bias = DequantizeLinear(b, s, z)
            y = LayerNormalization(x, scale, bias)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each scale and bias that is stored in at most eight bits."""
        if "qnn" in context.settings.targets:
            return
        by_norm: dict[Any, list[QuantizedParameter]] = {}
        for found in context.quantized.parameters:
            by_norm.setdefault(found.norm, []).append(found)
        for parameters in by_norm.values():
            yield _diagnosis(parameters, context)


def _diagnosis(parameters: list[QuantizedParameter], context: Context) -> Diagnostic:
    norm = parameters[0].norm
    names = " and ".join(found.name for found in parameters)
    facts = {found.name: _facts(found, context) for found in parameters}
    worst = max((f.get("relative_error", 0.0) for f in facts.values()), default=0.0)
    tail = f", off by {worst:.1%} of its size" if worst else ""
    return diagnose(
        norm,
        f"the {names} of {named(norm)} {'are' if len(parameters) > 1 else 'is'} stored in "
        f"{facts[parameters[0].name].get('bits', 8)} bits{tail}",
        rewrite.float_parameters.parameters_in_float(context, parameters),
        parameters=facts,
    )


def _facts(found: QuantizedParameter, context: Context) -> dict[str, Any]:
    step = step_of(found.dequantize, context.constants)
    values = context.constants.known(found.dequantize.y)
    if step is None or values is None:
        return {}
    size = float(np.sqrt(np.mean(np.square(values.astype(np.float64)))))
    facts: dict[str, Any] = {"type": step.type_name, "bits": step.bits}
    facts["step"] = float(f"{step.size:.6g}")
    facts["channels_at_zero"] = int(np.count_nonzero(values == 0))
    if size > 0:
        facts["relative_error"] = float(f"{step.size / math.sqrt(12.0) / size:.4g}")
    return facts
