"""One attempt to fold a scale and shift, backward or forward, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.linear import Blocked
from normlint.rewrite.centre_region import rounding
from normlint.rewrite.fold import Direction, Fold
from normlint.rewrite.fold_backward import Backward
from normlint.rewrite.fold_beside import Beside
from normlint.rewrite.fold_forward import Forward
from normlint.rule import Applicability, NotFixed, Rewrite

if TYPE_CHECKING:
    from normlint.graph import Node, Tensor
    from normlint.rewrite.affine import Affine, Weights
    from normlint.rule import Edit

_GATED = frozenset(("LSTM", "GRU", "RNN"))
_GATE_ROUNDING = 1e-3


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


def beside(node: Node, source: Tensor, axis: int, affine: Affine, weights: Weights) -> Fold | None:
    """Try to fold a scale and shift into a convolution of the same input that it is added to."""
    search = Beside(node, weights)
    edits = search.fold(source, axis, affine)
    if edits is None:
        return None
    rewrite = Rewrite(
        f"fold {node.op} into the {search.linear[0].op} beside it",
        Applicability.SAFE,
        edits,
        tuple(dict.fromkeys(search.nodes)),
        rounding=rounding(edits),
    )
    evidence = {"direction": Direction.BESIDE.value, "linear": 1, **_spread(affine)}
    return Fold(node, (node,), tuple(search.linear), Direction.BESIDE, rewrite, evidence=evidence)


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
