"""From the graph to facts: which normalisations a model computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normlint.context.constants import Constants
    from normlint.graph import Graph
    from normlint.normalization import NearNorm, Normalization


@dataclass(frozen=True)
class Recognised:
    """All facts of a model."""

    norms: tuple[Normalization, ...] = ()
    constant_norms: tuple[Normalization, ...] = ()
    near_norms: tuple[NearNorm, ...] = ()


def recognise(graph: Graph, constants: Constants) -> Recognised:
    """Recognise every normalisation in a graph and its subgraphs."""
    from normlint.recognise.fused import fused_norms

    norms = fused_norms(graph, constants)
    return Recognised(
        tuple(norm for norm in norms if not constants.is_constant(norm.x)),
        tuple(norm for norm in norms if constants.is_constant(norm.x)),
    )
