"""Operators that only one runtime knows, in standard ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.deferred import dataclass
from normlint.graph import FLOATS
from normlint.rewrite.demands import (
    OPSETS,
    Impossible,
    demand_along,
    demand_opset,
    normalised_shape,
    refuse,
    trailing,
)
from normlint.rewrite.respell import spelled_rms
from normlint.rewrite.vectors import Vectors
from normlint.rule import Applicability, NewNode, NotFixed, Reason, Replace, Rewrite
from normlint.support import gap

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.graph import Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Edit, Operand

_LARGE_MEAN_ERROR = 1e-4
"""Error of float kernels where the mean is 100 deviations; such operators have no double ones."""
_HALVES = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))
_MEAN_SQUARE = frozenset(
    ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "RMSNormalization")
)
_OF_A_SUM = frozenset(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))


def standard_form(context: Context, norm: Normalization) -> Rewrite | NotFixed:
    """Say a fused normalisation in operators of ai.onnx that the targets know."""
    try:
        return _Standard(context, norm).rewrite()
    except Impossible as impossible:
        return impossible.reason


@dataclass
class _Standard:
    context: Context
    norm: Normalization
    opset: int = 0

    def rewrite(self) -> Rewrite:
        norm, node = self.norm, self.norm.anchor
        if node.op not in _MEAN_SQUARE | _OF_A_SUM or not norm.is_op:
            raise refuse(Reason.TARGET, node, f"{node.op} is not known in other operators")
        if norm.dtype not in FLOATS:
            raise refuse(Reason.TYPE_MISMATCH, norm.x, f"the type of {norm.x.name} is not known")
        self.demand_one_output()
        for parameter in (norm.scale, norm.bias):
            demand_along(norm, parameter, range(-trailing(norm), 0))
        x = self.summed() if node.op in _OF_A_SUM else norm.x
        made = self.mean_square(x) if node.op in _MEAN_SQUARE else self.layer_norm(x)
        total = node.output(3)
        edits: list[Edit] = []
        if total is not None and isinstance(x, NewNode):
            edits.append(Replace((total,), x))
        edits.append(Replace((norm.y,), made))
        return Rewrite(
            f"say {node.op} in standard operators",
            Applicability.SAFE,
            tuple(edits),
            norm.nodes,
            self.opset,
            invalid_before=True,
            tolerance=_LARGE_MEAN_ERROR,
        )

    def demand_one_output(self) -> None:
        """Raise Impossible where the mean or the deviation is read too."""
        for index in (1, 2):
            tensor = self.norm.anchor.output(index)
            if tensor is not None and (tensor.consumers or tensor.is_output):
                raise refuse(Reason.OTHER_READER, tensor, "its statistics are read too")

    def summed(self) -> NewNode:
        """Give the sum that is normalised: input, skip and, where there is one, bias."""
        node = self.norm.anchor
        skip, bias = node.input(1), node.input(4 if self.norm.centred else 3)
        if skip is None or not _have_one_shape(node.inputs[0], skip):
            raise refuse(Reason.BROADCAST, node, "input and skip are not known to have one shape")
        total = NewNode("Add", (node.inputs[0], skip), like=node)
        return total if bias is None else NewNode("Add", (total, bias), like=node)

    def layer_norm(self, x: Operand) -> NewNode:
        norm = self.norm
        demand_opset(self.context, norm, "LayerNormalization")
        self.opset = OPSETS["LayerNormalization"]
        vectors = Vectors(norm.dtype, self.shape(), norm)
        inputs: list[Operand] = [x, vectors.scale(norm.scale)]
        if norm.bias is not None:
            inputs.append(vectors.give(norm.bias, "bias"))
        attrs = {"axis": -1, "epsilon": norm.epsilon}
        return NewNode("LayerNormalization", tuple(inputs), attrs, norm.anchor)

    def shape(self) -> tuple[int, ...]:
        return normalised_shape(self.norm, trailing(self.norm))

    def mean_square(self, x: Operand) -> NewNode:
        """Give RMSNormalization where it may be had, else the same in basic operators."""
        norm, needed = self.norm, OPSETS["RMSNormalization"]
        lacking = gap(self.context.settings.targets, "RMSNormalization", needed)
        if norm.anchor.op == "RMSNormalization" or lacking is not None:
            return self.spelled(x)
        if self.context.opset_limit < needed:
            return self.spelled(x)
        self.opset = needed
        vectors = Vectors(norm.dtype, self.shape(), norm)
        attrs = {"axis": -len(vectors.shape), "epsilon": norm.epsilon}
        return NewNode("RMSNormalization", (x, vectors.scale(norm.scale)), attrs, norm.anchor)

    def spelled(self, x: Operand) -> NewNode:
        """Give basic operators, which in half precision compute in float as the operator does."""
        norm = self.norm
        work = TensorProto.FLOAT if norm.dtype in _HALVES else norm.dtype
        vectors = Vectors(work, self.shape(), norm)
        if work != norm.dtype:
            x = NewNode("Cast", (x,), {"to": work}, norm.anchor)
        made = spelled_rms(self.context.opset, norm, x, vectors, vectors.scale(norm.scale))
        if work != norm.dtype:
            made = NewNode("Cast", (made,), {"to": norm.dtype}, norm.anchor)
        return made


def _have_one_shape(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are known to have the same extents."""
    return one.shape is not None and one.shape == other.shape and None not in one.shape


def at_newer_opset(context: Context, norm: Normalization, needed: int) -> Rewrite | NotFixed:
    """Keep an operator, and let the model declare the opset that defines it, in ai.onnx."""
    node = norm.anchor
    title = f"declare opset {needed}, which defines {node.op}"
    if not node.is_standard and context.opset >= needed:
        title = f"name {node.op} in ai.onnx, which defines it"
    if context.opset_limit < needed:
        detail = f"{node.op} needs opset {needed}: allow it with --target-opset {needed}"
        return NotFixed(Reason.OPSET, node, detail)
    tensors = tuple(tensor if tensor.name else None for tensor in node.outputs)
    inputs: tuple[Operand, ...] = tuple(tensor if tensor.name else None for tensor in node.inputs)
    same = NewNode(node.op, inputs, dict(node.attrs), node, outputs=len(tensors))
    return Rewrite(
        title,
        Applicability.SAFE,
        (Replace(tensors, same),),
        norm.nodes,
        needed,
        invalid_before=True,
    )
