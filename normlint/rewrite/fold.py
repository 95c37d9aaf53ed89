"""What becomes of a scale and shift: where it goes, or why it stays."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from normlint.graph import Node
    from normlint.rule import NotFixed, Rewrite


class Direction(StrEnum):
    """Which way a scale and shift goes."""

    BACKWARD = "backward"
    FORWARD = "forward"
    BESIDE = "beside"
    """Into a convolution of the same input, to which it is added."""


@dataclass(frozen=True, eq=False)
class Fold:
    """What becomes of one scale and shift."""

    node: Node
    """The BatchNormalization, or the last node of a chain of Mul, Add, Sub, Div."""
    nodes: tuple[Node, ...] = ()
    """All nodes that are taken up, without the linear operators."""
    linear: tuple[Node, ...] = ()
    """Linear operators that take it up."""
    direction: Direction | None = None
    rewrite: Rewrite | None = None
    refusal: NotFixed | None = None
    """Why it stays; also set beside a rewrite that only `--unsafe-fixes` makes."""
    quantized: bool = False
    """Whether the weights that take it up are behind a DequantizeLinear."""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def is_backward(self) -> bool:
        """Whether it goes into what is in front of it."""
        return self.direction is Direction.BACKWARD

    @property
    def is_forward(self) -> bool:
        """Whether it goes into what is behind it."""
        return self.direction is Direction.FORWARD

    @property
    def where(self) -> str:
        """Say where what takes it up stands."""
        return {Direction.BACKWARD: "in front of", Direction.FORWARD: "behind"}.get(
            self.direction or Direction.BESIDE, "beside"
        )

    @property
    def into(self) -> str:
        """Name the linear operators."""
        ops = list(dict.fromkeys(node.op for node in self.linear))
        return " and ".join(ops)

    @property
    def cost(self) -> str:
        """Say what it costs besides, if anything."""
        size = self.evidence.get("bias_map_bytes")
        return f"; its shift becomes a constant image of {size} bytes" if size else ""
