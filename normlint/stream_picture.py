"""A residual stream as plain data, for pictures of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.places import Place
from normlint.deferred import dataclass
from normlint.graph import Addresses, module

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context import Context
    from normlint.context.residual import Residual
    from normlint.context.steps import Step
    from normlint.context.streams import Stream
    from normlint.normalization import Normalization

_ON_STREAM = frozenset((Place.POST, Place.DEEPNORM))


@dataclass(frozen=True)
class NormMark:
    """A normalisation: its kind and where it is."""

    kind: str
    where: str
    """Module path, or the address of its first node."""


@dataclass(frozen=True)
class BranchPicture:
    """A branch with its residual addition."""

    name: str
    """attention, cross-attention, convolution, recurrence or feed-forward."""
    layer: int
    before: tuple[NormMark, ...]
    """Norms that read the stream for the branch."""
    inside: tuple[NormMark, ...]
    behind: tuple[NormMark, ...]
    """Norms between the branch and the sum."""
    on_sum: tuple[NormMark, ...]
    """Norms on the sum, on the way to the next layer."""
    scaled: bool
    """Whether constants multiply the skip path."""
    writer: str
    """The learned layer that writes to the stream; empty where none is known."""


@dataclass(frozen=True)
class StreamPicture:
    """A residual stream."""

    index: int
    graph: str
    placement: str
    depth: int
    blocks: int
    root: str
    """The tensor that it starts with."""
    start: tuple[NormMark, ...]
    branches: tuple[BranchPicture, ...]
    end: tuple[NormMark, ...]


def stream_pictures(context: Context) -> tuple[StreamPicture, ...]:
    """Give all streams of a model as plain data."""
    painter = _Painter(context)
    return tuple(painter.stream(stream) for stream in context.streams)


class _Painter:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.address = Addresses(context.graph)

    def stream(self, stream: Stream) -> StreamPicture:
        placed: dict[Place, list[Normalization]] = {Place.EMBEDDING: [], Place.FINAL: []}
        for norm, word in stream.placed:
            if word in placed:
                placed[word].append(norm)
        return StreamPicture(
            stream.index,
            stream.graph.path,
            stream.placement.value,
            stream.depth,
            stream.blocks,
            stream.roots[0].name if stream.roots else "",
            self.marks(placed[Place.EMBEDDING]),
            tuple(
                self.branch(add, layer)
                for add, layer in zip(stream.adds, stream.layer_of, strict=True)
            ),
            self.marks(placed[Place.FINAL]),
        )

    def branch(self, add: Residual, layer: int) -> BranchPicture:
        branch = add.branch
        on_sum = [step.norm for step in self.context.placements.norms_on(add) if step.norm]
        learned = branch.writer
        return BranchPicture(
            branch_name(add),
            layer,
            self.marks(branch.entries),
            self.marks(branch.inner),
            self.marks(branch.exits),
            self.marks(norm for norm in on_sum if self.word(norm) in _ON_STREAM),
            self.context.placements.is_scaled(add),
            "" if learned is None else self.where(learned),
        )

    def word(self, norm: Normalization) -> Place:
        return self.context.placement(norm).word

    def marks(self, norms: Iterable[Normalization]) -> tuple[NormMark, ...]:
        return tuple(
            NormMark(norm.kind.value, module(norm.anchor) or self.address(norm.anchor))
            for norm in norms
        )

    def where(self, step: Step) -> str:
        return module(step.node) or self.address(step.node)


def branch_name(add: Residual) -> str:
    """Name a branch by what it does."""
    if add.branch.attention is not None:
        return "cross-attention" if add.branch.crosses else "attention"
    found = {step.op for step in add.branch.steps}
    if not found.isdisjoint(ops.CONVOLUTIONS):
        return "convolution"
    return "feed-forward" if found.isdisjoint(ops.RECURRENCES) else "recurrence"
