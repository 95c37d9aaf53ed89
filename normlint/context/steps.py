"""What the flow of data is made of: values, and the steps between them."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization


class Level(IntEnum):
    """What a tensor depends on."""

    KNOWN = 0
    """Weights and shapes."""
    GUIDE = 1
    """Token numbers, positions and masks: integers that are given, and arithmetic on them."""
    DATA = 2
    """Features."""


class Role(Enum):
    """What a step does to the data."""

    PASS = "pass"  # noqa: S105 - no password
    """Moves, casts, slices, or adds and multiplies what is known: the same stream."""
    SUM = "sum"
    """Adds data to data."""
    NORM = "norm"
    LEARNED = "learned"
    """Multiplies with weights: linear layers, convolutions, recurrences."""
    PRODUCT = "product"
    """Multiplies matrices that are both data."""
    LOOKUP = "lookup"
    """Reads rows of a table by number: an embedding."""
    OTHER = "other"


class Value:
    """A tensor in the flow; one without a tensor lies inside of a fused operator."""

    __slots__ = ("base", "level", "maker", "origin", "readers", "tensor")

    def __init__(self, tensor: Tensor | None, level: Level) -> None:
        self.tensor = tensor
        self.level = level
        self.maker: Step | None = None
        self.readers: list[Step] = []
        self.origin: Value = self
        """Where it comes from through steps that pass it on."""
        self.base: Value = self
        """The same, through activation functions too."""


class Step:
    """A node, a normalisation, or a part of a fused operator."""

    __slots__ = ("node", "norm", "position", "results", "role", "sources")

    def __init__(
        self,
        role: Role,
        position: int,
        node: Node,
        sources: list[Value],
        results: list[Value],
        *,
        norm: Normalization | None = None,
    ) -> None:
        self.role = role
        self.position = position
        self.node = node
        self.sources = sources
        self.results = results
        self.norm = norm

    @property
    def op(self) -> str:
        """Operator of the node."""
        return self.node.op

    def __repr__(self) -> str:
        return f"<{self.role.value} {self.node!r}>"
