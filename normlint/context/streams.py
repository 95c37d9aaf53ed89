"""Residual streams: chains of residual additions, each on the sum of the one in front."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from normlint.context.places import Place
from normlint.context.steps import Role
from normlint.deferred import dataclass

if TYPE_CHECKING:
    from normlint.context.placement import Placements
    from normlint.context.residual import Residual
    from normlint.context.structure import Structure
    from normlint.graph import Graph, Node, Tensor
    from normlint.normalization import Normalization


@dataclass(frozen=True, eq=False)
class Stream:
    """A residual stream.

    `adds` are its residual additions in order, with the layer of each (from 0) in `layer_of` and
    where its norms stand in `words`; `placed` are the norms on it and in its branches, in order.
    """

    index: int
    adds: tuple[Residual, ...]
    layer_of: tuple[int, ...]
    words: tuple[Place, ...]
    placed: tuple[tuple[Normalization, Place], ...] = ()

    @property
    def norms(self) -> tuple[Normalization, ...]:
        """All norms that stand on it or in its branches, in order."""
        return tuple(norm for norm, _ in self.placed)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return self.layer_of[-1] + 1

    @property
    def blocks(self) -> int:
        """Number of residual additions."""
        return len(self.adds)

    @property
    def placement(self) -> Place:
        """Where the norms of most additions stand."""
        return most_common(self.words)

    @property
    def graph(self) -> Graph:
        """The graph or subgraph that it stands in."""
        return self.adds[0].step.node.graph

    @property
    def roots(self) -> tuple[Tensor, ...]:
        """The tensors that it starts with."""
        tensor = self.adds[0].root.tensor
        return () if tensor is None else (tensor,)

    @property
    def has_attention(self) -> bool:
        """Whether one of its branches is an attention."""
        return any(add.branch.attention is not None for add in self.adds)

    @cached_property
    def writers(self) -> tuple[Node, ...]:
        """The last learned layer of each branch."""
        makers = [add.branch.writer for add in self.adds]
        return tuple(step.node for step in makers if step is not None)

    @cached_property
    def readers(self) -> tuple[Node, ...]:
        """What the branches read the stream with: norms and learned layers."""
        nodes: dict[Node, None] = {}
        for add in self.adds:
            reached = set(add.skip)
            for step in add.branch.steps:
                if reached.isdisjoint(step.sources):
                    continue
                if step.role is Role.PASS:
                    reached.update(step.results)
                else:
                    nodes[step.node] = None
        return tuple(nodes)


def most_common(words: tuple[Place, ...]) -> Place:
    """Give the placement that most additions have, of those that tell something."""
    telling = [word for word in words if word not in {Place.NONE, Place.BRANCH}] or words
    return Counter(telling).most_common(1)[0][0]


def streams(structure: Structure, placements: Placements) -> tuple[Stream, ...]:
    """Give the residual streams of a model, in the order of their first additions."""
    placed: dict[int, list[tuple[Normalization, Place]]] = {}
    for norm, spot in placements.spots.items():
        if spot.stream is not None:
            placed.setdefault(spot.stream, []).append((norm, spot.word))
    return tuple(
        Stream(
            index,
            tuple(chain),
            placements.layer_of[index],
            tuple(placements.word(add) for add in chain),
            tuple(placed.get(index, ())),
        )
        for index, chain in enumerate(structure.chains)
    )
