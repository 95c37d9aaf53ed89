"""Taking norms and residual additions out of a quantised region.

What reads a rounded value reads the value before rounding instead. Linear operators keep their
pairs, so the region around them stays quantised; pairs that nobody reads any more are dropped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from normlint.context.quantized_integer import known_operand
from normlint.graph import FLOATS
from normlint.normalization import Kind
from normlint.rewrite.norm_ops import group_norm, instance_norm, layer_norm, rms_norm
from normlint.rewrite.refloat import in_float
from normlint.rule import (
    Applicability,
    NewNode,
    NotFixed,
    Reason,
    Redirect,
    Replace,
    Rewrite,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from normlint.context import Context
    from normlint.context.quantized import (
        Quantized,
        QuantizedNorm,
        QuantizedSum,
        Rounding,
    )
    from normlint.context.quantized_integer import IntegerNorm
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Edit, Operand

_DEEPEST = 16
_PAIR = frozenset(("QuantizeLinear", "DequantizeLinear"))
_FUSED: dict[Kind, Callable[[Context, Normalization], Rewrite | NotFixed]] = {
    Kind.LAYER: layer_norm,
    Kind.RMS: rms_norm,
    Kind.INSTANCE: instance_norm,
    Kind.GROUP: group_norm,
}


def clone(node: Node, inputs: Mapping[int, Operand]) -> NewNode:
    """Describe a node that differs from another one in some of its inputs."""
    operands: list[Operand] = [tensor if tensor.name else None for tensor in node.inputs]
    for index, operand in inputs.items():
        operands[index] = operand
    return NewNode(
        node.op,
        tuple(operands),
        node.attrs,
        like=node,
        domain=node.domain or "",
        outputs=len(node.outputs),
    )


def replaced(node: Node, inputs: Mapping[int, Operand]) -> Replace:
    """Put a clone in the place of a node."""
    outputs = tuple(tensor if tensor.name else None for tensor in node.outputs)
    return Replace(outputs, clone(node, inputs))


def before_rounding(rounding: Rounding, quantized: Quantized) -> tuple[Operand, list[Node]]:
    """Give a value as it was before it was rounded, and the nodes that rounded and moved it.

    Layout operators behind the rounding are repeated on the value before it. Where an integer
    operator rounds, its result is computed in float; None where that is not possible.
    """
    moved: list[Node] = []
    passed: list[Node] = []
    operand: Operand = None
    current: Rounding | None = rounding
    for _ in range(_DEEPEST):
        if current is None:
            break
        value: Operand = current.source
        if value is None:
            value = in_float(current.by, quantized.constants)
        if value is None:
            break
        moved.extend(current.moved)
        passed.extend(current.nodes)
        operand = value
        current = None if current.source is None else quantized.rounding(current.source)
    if operand is not None:
        for node in reversed(moved):
            operand = clone(node, {0: operand})
    return operand, passed


def norm_on_floats(context: Context, found: QuantizedNorm) -> Rewrite | NotFixed:
    """Make a norm read what was rounded in front of it."""
    inputs: dict[Node, dict[int, Operand]] = {}
    passed: list[Node] = []
    for node in found.norm.nodes:
        changed, between = _freed_inputs(node, context.quantized)
        if changed and node.op not in _PAIR:
            inputs[node] = changed
            passed.extend(between)
    if not inputs:
        return _integers(found)
    merged = list(_merged(found.after))
    return _rewrite(
        "let the norm read the value before it is quantised",
        [*(replaced(node, changed) for node, changed in inputs.items()), *merged],
        (*inputs, *passed, *(rounding.by for rounding in found.after if merged)),
    )


def _merged(after: Sequence[Rounding]) -> Iterator[Redirect]:
    """Let the readers of a norm's result share one QuantizeLinear where they have equal ones."""
    kept: dict[tuple[Tensor, ...], Tensor] = {}
    for rounding in after:
        grid = tuple(rounding.by.inputs[1:])
        first = kept.setdefault(grid, rounding.by.y)
        if first is not rounding.by.y and not rounding.by.y.is_output:
            yield Redirect(rounding.by.y, first)


def whole_norm_on_floats(context: Context, found: QuantizedNorm) -> Rewrite | NotFixed:
    """Drop the pairs inside of a norm; put one operator in its place where the opset allows."""
    fused = _fused(context, found)
    return norm_on_floats(context, found) if fused is None else fused


def _fused(context: Context, found: QuantizedNorm) -> Rewrite | None:
    norm = found.norm
    make = _FUSED.get(norm.kind)
    if make is None or any(node.op not in _PAIR and not node.is_standard for node in norm.nodes):
        return None
    rewrite = make(context, replace(norm, quantized="none"))
    if isinstance(rewrite, NotFixed):
        return None
    edits = rewrite.edits
    region = list(norm.nodes)
    if found.before is not None:
        operand, passed = before_rounding(found.before, context.quantized)
        if operand is not None:
            region += passed
            edits = tuple(
                Replace(edit.tensors, _substituted(edit.by, norm.x, operand))
                for edit in edits
                if isinstance(edit, Replace)
            )
    return replace(
        rewrite,
        title=f"{rewrite.title}, in float",
        applicability=Applicability.UNSAFE,
        edits=edits,
        region=tuple(dict.fromkeys(region)),
        approximate=True,
    )


def sum_on_floats(context: Context, found: QuantizedSum) -> Rewrite | NotFixed:
    """Make a residual addition add what was rounded in front of it."""
    if found.is_integer:
        return _integer_sum(context, found)
    inputs: dict[int, Operand] = {}
    passed: list[Node] = []
    for index, rounding in found.operands:
        operand, between = before_rounding(rounding, context.quantized)
        if operand is not None:
            inputs[index] = operand
            passed.extend(between)
    if not inputs:
        at = found.operands[0][1].by
        return _stays_rounded(at)
    edit = replaced(found.node, inputs)
    return _rewrite("add the values before they are quantised", [edit], (found.node, *passed))


def _integer_sum(context: Context, found: QuantizedSum) -> Rewrite | NotFixed:
    """Add in float what an integer operator adds, and quantise the sum for its other readers."""
    node = found.node
    if node.inputs[1].dtype not in FLOATS:
        return NotFixed(Reason.TYPE_MISMATCH, node, "the type of its scale is not known")
    terms: list[Operand] = []
    region = [node]
    for at in (0, 3):
        term, passed = _in_float(node, at, context.quantized)
        terms.append(term)
        region += passed
    total = NewNode("Add", tuple(terms), like=node)
    edits = []
    source: Operand = total
    if found.after:
        source = found.after[0].y
        edits.append(Replace((found.after[0].y,), total))
        region.append(found.after[0].dequantize)
    again = NewNode("QuantizeLinear", (source, node.inputs[6], node.input(7)), like=node)
    return _rewrite(
        "add in float, and quantise the sum", [*edits, Replace((node.y,), again)], region
    )


def _in_float(node: Node, at: int, quantized: Quantized) -> tuple[Operand, list[Node]]:
    """Give a term of an integer addition in float: before rounding, where it was float once."""
    integers, scale, zero = node.inputs[at], node.inputs[at + 1], node.input(at + 2)
    by = integers.producer
    if by is None or by.op != "QuantizeLinear":
        exact = None if by is None or by.op == node.op else in_float(by, quantized.constants)
        if by is not None and exact is not None:
            return exact, [by]
        return NewNode("DequantizeLinear", (integers, scale, zero), like=node), []
    further = quantized.rounding(by.inputs[0])
    operand, passed = (None, []) if further is None else before_rounding(further, quantized)
    return (by.inputs[0] if operand is None else operand), [by, *passed]


def integer_norm_in_float(context: Context, found: IntegerNorm) -> Rewrite | NotFixed:
    """Compute in float what integer operators compute of a spelled-out norm; quantise its end."""
    steps: tuple[Node, ...] = (found.epsilon, *found.affine)
    region: list[Node] = [*steps, found.dequantize]
    edits: list[Edit] = []
    value: Operand = None
    for node in steps:
        known = known_operand(node, context.constants)
        terms: list[Operand] = []
        for at in (0, 3):
            term: Operand = value
            if at == known or value is None:
                term, passed = _in_float(node, at, context.quantized)
                region += passed
            terms.append(term)
        made = NewNode(node.op.removeprefix("QLinear"), tuple(terms), like=node)
        if node is found.epsilon:
            edits.append(Replace((found.dequantize.y,), made))
        else:
            value = made
    if found.affine:
        last = found.affine[-1]
        again = NewNode("QuantizeLinear", (value, last.inputs[6], last.input(7)), like=last)
        edits.append(Replace((last.y,), again))
    return _rewrite("compute its steps in float, and quantise the result", edits, region)


def _freed_inputs(node: Node, quantized: Quantized) -> tuple[dict[int, Operand], list[Node]]:
    inputs: dict[int, Operand] = {}
    passed: list[Node] = []
    for index, tensor in enumerate(node.inputs):
        rounding = quantized.rounding(tensor)
        if rounding is None:
            continue
        operand, between = before_rounding(rounding, quantized)
        if operand is not None:
            inputs[index] = operand
            passed.extend(between)
    return inputs, passed


def _substituted(recipe: NewNode, tensor: Tensor, by: Operand) -> NewNode:
    """Put an operand in the place of a tensor in a recipe, which is a few nodes deep."""
    inputs = tuple(
        by
        if operand is tensor
        else _substituted(operand, tensor, by)
        if isinstance(operand, NewNode)
        else operand
        for operand in recipe.inputs
    )
    return replace(recipe, inputs=inputs)


def _integers(found: QuantizedNorm) -> NotFixed:
    return _stays_rounded(next(iter(found.roundings)).by)


def _stays_rounded(at: Node) -> NotFixed:
    detail = f"the integers of {at.op} have other readers, or are not to be had before rounding"
    return NotFixed(Reason.QUANTIZED_BETWEEN, at, detail)


def _rewrite(title: str, edits: Iterable[Edit], region: Iterable[Node]) -> Rewrite:
    return Rewrite(
        title,
        Applicability.UNSAFE,
        tuple(edits),
        tuple(dict.fromkeys(region)),
        approximate=True,
    )
