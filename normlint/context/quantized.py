"""Where a model is quantised: which norms and residual additions work on rounded values.

A value is rounded by a pair QuantizeLinear → DequantizeLinear, or by an integer operator
(QLinearAdd and the like) whose result is dequantised. Constants that are dequantised (weight-only
quantisation) and values that are quantised when the model runs (DynamicQuantizeLinear, for one
linear operator) leave norms and sums in float, and are no roundings here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.quantized_steps import Step, step_of
from normlint.deferred import dataclass
from normlint.normalization import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from normlint.context.constants import Constants
    from normlint.context.residual import Residual
    from normlint.context.streams import Stream
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization, Parameter

LAYOUT = frozenset(
    ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Gather")
)
"""Operators that move values, and compute none."""
INTEGER_SUMS = frozenset(("QLinearAdd",))
_FARTHEST = 16
_EIGHT_BITS = 8


@dataclass(frozen=True, eq=False)
class Rounding:
    """A value that was rounded to a grid."""

    y: Tensor
    """The rounded value, dequantised."""
    by: Node
    """The QuantizeLinear or the integer operator that rounds."""
    dequantize: Node
    source: Tensor | None
    """The value before rounding; None where an integer operator never has it in float."""
    step: Step | None
    """Step and range of the grid, where they are constants."""
    moved: tuple[Node, ...] = ()
    """Layout operators between what rounds and the reader, from the reader back."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What stands between the value before rounding and the reader."""
        return (*self.moved, self.dequantize, self.by)

    @property
    def bits(self) -> int:
        """Bits of the integers or small floats; 8 where the type is not known."""
        return _EIGHT_BITS if self.step is None else self.step.bits


@dataclass(frozen=True, eq=False)
class QuantizedNorm:
    """A norm of data that works on rounded values, or rounds between its steps."""

    norm: Normalization
    before: Rounding | None
    """What rounds the values that it normalises."""
    inside: tuple[tuple[str, Rounding], ...]
    """Roundings between its steps, each with the name of the step whose result it rounds."""
    after: tuple[Rounding, ...]
    """What rounds its result, once for each QuantizeLinear."""

    @property
    def roundings(self) -> Iterator[Rounding]:
        """All that make its statistics inexact."""
        if self.before is not None:
            yield self.before
        yield from (rounding for _, rounding in self.inside)


@dataclass(frozen=True, eq=False)
class QuantizedSum:
    """A residual addition of rounded operands, on a stream that norms read."""

    residual: Residual
    operands: tuple[tuple[int, Rounding], ...]
    """Position and rounding of each operand that is rounded."""
    after: tuple[Rounding, ...]
    """What rounds the sum."""

    @property
    def node(self) -> Node:
        """The addition."""
        return self.residual.step.node

    @property
    def is_integer(self) -> bool:
        """Whether an integer operator adds."""
        return self.node.op in INTEGER_SUMS

    @property
    def roundings(self) -> Iterator[Rounding]:
        """All roundings at it."""
        yield from (rounding for _, rounding in self.operands)
        yield from self.after


@dataclass(frozen=True, eq=False)
class QuantizedParameter:
    """A scale or bias of a norm that is stored in eight bits or fewer."""

    norm: Normalization
    name: str
    dequantize: Node
    readers: tuple[Node, ...]
    """Nodes of the norm that read it."""


class Quantized:
    """The quantised regions of a model, as far as norms and residual additions are concerned."""

    def __init__(
        self,
        norms: Sequence[Normalization],
        streams: Sequence[Stream],
        constants: Constants,
    ) -> None:
        self.constants = constants
        taking = [norm for norm in norms if has_statistics(norm)]
        found = (self._norm(norm) for norm in taking)
        self.norms = tuple(norm for norm in found if norm is not None)
        self.sums = tuple(self._sums(streams))
        self.parameters = tuple(stored for norm in taking for stored in self._stored(norm))

    def rounding(self, tensor: Tensor) -> Rounding | None:
        """Give what rounds a value, through layout operators; None where nothing does."""
        moved: list[Node] = []
        for _ in range(_FARTHEST):
            node = tensor.producer
            if node is None or not node.inputs:
                return None
            if node.op == "DequantizeLinear":
                return self._dequantized(node, tuple(moved))
            if node.op not in LAYOUT or not node.is_standard:
                return None
            moved.append(node)
            tensor = node.inputs[0]
        return None

    def _dequantized(self, node: Node, moved: tuple[Node, ...]) -> Rounding | None:
        integers = node.inputs[0]
        by = integers.producer
        if by is None or self.constants.is_constant(integers):
            return None
        if by.is_standard and by.op in LAYOUT:
            behind = tuple(_layout_behind(integers))
            by = behind[-1].inputs[0].producer
            moved = (*moved, *behind)
        if by is None:
            return None
        source = by.inputs[0] if by.op == "QuantizeLinear" else None
        return Rounding(node.y, by, node, source, step_of(node, self.constants), moved)

    def results(self, tensor: Tensor) -> tuple[Rounding, ...]:
        """Give what rounds a float value for its readers: a rounding for each QuantizeLinear."""
        found = []
        for reader in tensor.consumers:
            if reader.op != "QuantizeLinear" or reader.inputs[0] is not tensor:
                continue
            back = [n for n in reader.y.consumers if n.op == "DequantizeLinear"]
            if back:
                step = step_of(back[0], self.constants)
                found.append(Rounding(back[0].y, reader, back[0], tensor, step))
        return tuple(found)

    def _norm(self, norm: Normalization) -> QuantizedNorm | None:
        before = self._entry(norm)
        inside = tuple(self._inside(norm, before))
        if before is None and not inside:
            return None
        return QuantizedNorm(norm, before, inside, self.results(norm.y))

    def _entry(self, norm: Normalization) -> Rounding | None:
        """Give what rounds x: in front of the norm, or once for each of its readers."""
        rounding = self.rounding(norm.x)
        if rounding is not None:
            return rounding
        own = set(norm.nodes)
        pairs = [node for node in norm.x.consumers if node in own and node.op == "QuantizeLinear"]
        if not pairs:
            return None
        found = [rounding for rounding in self.results(norm.x) if rounding.by in pairs]
        return found[0] if found else None

    def _inside(
        self, norm: Normalization, before: Rounding | None
    ) -> Iterator[tuple[str, Rounding]]:
        names = {node: name for name, node in norm.steps.items()}
        entry = set() if before is None else {before.dequantize, before.source}
        for node in norm.nodes:
            if node.op != "DequantizeLinear" or node in entry:
                continue
            rounding = self._dequantized(node, ())
            if rounding is None or rounding.source is norm.x:
                continue
            yield _step_behind(rounding, names), rounding

    def _sums(self, streams: Sequence[Stream]) -> Iterator[QuantizedSum]:
        for stream in streams:
            if not any(has_statistics(norm) for norm in stream.norms) and not _is_hidden(stream):
                continue
            sums = {add.step.node for add in stream.adds}
            for residual in stream.adds:
                found = self._sum(residual, sums)
                if found is not None:
                    yield found

    def _sum(self, residual: Residual, sums: set[Node]) -> QuantizedSum | None:
        node = residual.step.node
        if node.op in INTEGER_SUMS:
            return QuantizedSum(residual, (), self._dequantizers(node.y))
        if node.op not in {"Add", "Sum"}:
            return None
        operands = tuple(
            (index, rounding)
            for index, tensor in enumerate(node.inputs)
            if (rounding := self.rounding(tensor)) is not None
            and (rounding.source is not None or rounding.by in sums)
        )
        return QuantizedSum(residual, operands, self.results(node.y)) if operands else None

    def _dequantizers(self, integers: Tensor) -> tuple[Rounding, ...]:
        readers = [node for node in integers.consumers if node.op == "DequantizeLinear"]
        found = (self._dequantized(node, ()) for node in readers)
        return tuple(rounding for rounding in found if rounding is not None)

    def _stored(self, norm: Normalization) -> Iterator[QuantizedParameter]:
        for name, parameter in (("scale", norm.scale), ("bias", norm.bias)):
            node = None if parameter is None else self._small_integers(parameter)
            if node is not None:
                readers = tuple(reader for reader in norm.nodes if node.y in reader.inputs)
                if readers:
                    yield QuantizedParameter(norm, name, node, readers)

    def _small_integers(self, parameter: Parameter) -> Node | None:
        """Give the DequantizeLinear of a parameter that is stored in at most eight bits."""
        for tensor in parameter.tensors:
            node = tensor.producer
            if node is None or node.op != "DequantizeLinear":
                continue
            step = step_of(node, self.constants)
            if self.constants.is_constant(node.y) and step is not None and step.bits <= _EIGHT_BITS:
                return node
        return None


def has_statistics(norm: Normalization) -> bool:
    """Whether a norm takes statistics of its input: what rounding harms.

    A BatchNorm on running statistics is a scale and shift, and takes none.
    """
    return not (norm.kind is Kind.BATCH and not norm.training)


def _is_hidden(stream: Stream) -> bool:
    """Whether the norms of a transformer are spelled out in integer operators: none is seen."""
    integer = any(add.step.node.op in INTEGER_SUMS for add in stream.adds)
    return integer and stream.has_attention and not stream.norms


def _layout_behind(tensor: Tensor) -> Iterator[Node]:
    for _ in range(_FARTHEST):
        node = tensor.producer
        if node is None or node.op not in LAYOUT or not node.inputs:
            return
        yield node
        tensor = node.inputs[0]


def _step_behind(rounding: Rounding, names: dict[Node, str]) -> str:
    """Name the step whose result is rounded."""
    node = rounding.by if rounding.source is None else rounding.source.producer
    for _ in range(_FARTHEST):
        if node is None:
            break
        if node in names:
            return names[node]
        if not node.inputs:
            break
        node = node.inputs[0].producer
    return "step"
