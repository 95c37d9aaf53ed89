"""NL213."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from normlint.diagnosing import diagnose, named
from normlint.graph import Node
from normlint.recognise.channels import reads_values
from normlint.recognise.parameter import static
from normlint.rule import (
    Applicability,
    Computed,
    NewNode,
    NotFixed,
    Reason,
    Replace,
    Rewrite,
    Rule,
    Severity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.graph import Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic

_FAR = 32


class NormOfWeights(Rule):
    """A normalisation is computed from constants at every run.

    ## What it does

    Reports a normalisation whose input depends on nothing but constants: weight standardisation
    that an exporter left in the graph, or the LayerNorm of a table of positions.

    ## Why is this bad?

    It gives the same numbers at every run. Some runtimes fold it when they load the model, others
    do not know the operators as constant, and then neither see that the convolution behind has
    constant weights.

    ## Example

    `Reshape, BatchNormalization, Reshape, Mul` of a weight in front of `Conv` become one constant.

    ## Fix safety

    Safe: the constant is computed by the same operators. The file grows by it where the original
    weight has other readers.

    ## When not to follow it

    Where the weights are to be trained further.

    ## References

    - [Micro-batch training with weight standardization](https://arxiv.org/abs/1903.10520)
    """

    code = "NL213"
    severity = Severity.INFO
    applicability = Applicability.SAFE

    bad = (
        """
        standardised_weight (float[2,4] x) => (float[2,3] y)
        <float[3,4] weight = {1,2,3,4,2,2,1,0,5,1,2,3}, float epsilon = {1e-5}> {
            mean = ReduceMean<axes = [-1]>(weight)
            centred = Sub(weight, mean)
            square = Mul(centred, centred)
            variance = ReduceMean<axes = [-1]>(square)
            shifted = Add(variance, epsilon)
            root = Sqrt(shifted)
            normalised = Div(centred, root)
            turned = Transpose(normalised)
            y = MatMul(x, turned)
        }
        """,
    )
    good = (
        """
        of_data (float[2,4] x) => (float[2,4] y)
        <float[4] scale = {1,2,3,4}> {
            y = LayerNormalization(x, scale)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each normalisation of constants."""
        for norm in context.constant_norms:
            message = f"{named(norm)} is computed from constants at every run: compute it once"
            yield diagnose(norm, message, _folded(context, norm))


def _folded(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    end, nodes = _last_constant(context, norm)
    shape = static(end.shape)
    constants = context.constants
    if not end.dtype or not constants.is_constant(end):
        detail = f"the values of {end.name} may be overridden or are not known"
        return NotFixed(Reason.WEIGHTS_NOT_CONSTANT, end, detail)
    if shape is None:
        values = constants.known(end)
        if values is None:
            return NotFixed(Reason.SHAPE_UNKNOWN, end, f"the shape of {end.name} is not known")
        shape = values.shape
    folded = Computed(
        shape, end.dtype, lambda: np.asarray(constants.values(end)), f"{end.name}_folded"
    )
    return Rewrite(
        "compute it once",
        Applicability.SAFE,
        (Replace((end,), NewNode("Identity", (folded,), like=norm.anchor)),),
        (*norm.nodes, *nodes),
    )


def _last_constant(context: Context, norm: Normalization) -> tuple[Tensor, list[Node]]:
    """Follow the constant result through its only readers as far as it stays constant."""
    end, nodes = norm.y, list[Node]()
    while len(nodes) < _FAR and not end.is_output:
        readers = {node for node in end.consumers if reads_values(node, end)}
        if len(readers) != 1:
            break
        (reader,) = readers
        result = reader.output(0)
        if reader.graph is not end.graph or result is None:
            break
        if not context.constants.is_constant(result):
            break
        nodes.append(reader)
        end = result
    return end, nodes
