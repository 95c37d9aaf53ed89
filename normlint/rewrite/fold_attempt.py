"""One attempt to fold a scale and shift, backward or forward, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import Blocked
from normlint.rewrite.centre_region import rounding
from normlint.rewrite.fold_backward import Backward
from normlint.rewrite.fold_forward import Forward
from normlint.rule import Applicability, NotFixed, Rewrite

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Weights
    from normlint.rule import Edit

_GATED = frozenset(("LSTM", "GRU", "RNN"))
_GATE_ROUNDING = 1e-3


class Direction(StrEnum):
    """Which way a scale and shift goes."""

    BACKWARD = "backward"
    FORWARD = "forward"


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
    def into(self) -> str:
        """Name the linear operators."""
        ops = list(dict.fromkeys(node.op for node in self.linear))
        return " and ".join(ops)

    @property
    def cost(self) -> str:
        """Say what it costs besides, if anything."""
        size = self.evidence.get("bias_map_bytes")
        return f"; its shift becomes a constant image of {size} bytes" if size else ""


def backward(
    node: Node, source: Tensor, axis: int, affine: Affine, weights: Weights
) -> Fold | NotFixed:
    """Try to fold a scale and shift backward; give the reason where it cannot go."""
    search = Backward(node, weights)
    try:
        edits = search.fold(source, axis, affine)
    except Blocked as blocked:
        return blocked.not_fixed
    return described(node, Direction.BACKWARD, affine, edits, search)


def forward(
    node: Node, source: Tensor, axis: int, affine: Affine, weights: Weights
) -> Fold | NotFixed:
    """Try to fold a scale and shift forward; give the reason where it cannot go."""
    search = Forward(node, weights)
    try:
        edits = search.fold(source, axis, affine)
    except Blocked as blocked:
        return blocked.not_fixed
    return described(node, Direction.FORWARD, affine, edits, search)


def described(
    node: Node,
    direction: Direction,
    affine: Affine,
    edits: tuple[Edit, ...],
    search: Backward | Forward,
) -> Fold:
    """Give the fold that a search has found."""
    linear = tuple(search.linear)
    names = " and ".join(dict.fromkeys(n.op for n in linear))
    title = f"fold {node.op} {direction.value} into {names}"
    merged = tuple(search.merged) if isinstance(search, Backward) else ()
    evidence = {"direction": direction.value, "linear": len(linear), **_spread(affine)}
    if isinstance(search, Forward) and search.map_bytes:
        evidence["bias_map_bytes"] = search.map_bytes
    return Fold(
        node,
        (node, *merged),
        linear,
        direction,
        Rewrite(
            title,
            Applicability.SAFE,
            edits,
            tuple(dict.fromkeys(search.nodes)),
            rounding=max(rounding(edits), _saturated(linear)),
        ),
        quantized=isinstance(search, Backward) and search.quantized,
        evidence=evidence,
    )


def _saturated(linear: tuple[Node, ...]) -> float:
    """Give what saturated gates make of the rounding of what they read."""
    return _GATE_ROUNDING if any(node.op in _GATED for node in linear) else 0.0


def _spread(affine: Affine) -> dict[str, Any]:
    """Say how far the scales lie apart, which a later quantisation per tensor has to bear."""
    magnitude = np.abs(affine.scale)
    typical = float(np.median(magnitude))
    facts = {"largest_factor": float(magnitude.max()), "smallest_factor": float(magnitude.min())}
    if typical > 0:
        facts["range_factor"] = float(magnitude.max()) / typical
    return {key: float(f"{value:.4g}") for key, value in facts.items()}
