"""From the graph to facts: which normalisations a model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node
    from normlint.normalization import NearNorm, Normalization


@dataclass(frozen=True)
class Recognised:
    """All facts of a model."""

    norms: tuple[Normalization, ...] = ()
    constant_norms: tuple[Normalization, ...] = ()
    near_norms: tuple[NearNorm, ...] = ()


def recognise(graph: Graph, constants: Constants) -> Recognised:
    """Recognise every normalisation in a graph and its subgraphs."""
    from normlint.graph import collector_held
    from normlint.recognise.batch import batch_norms
    from normlint.recognise.fused import fused_norms
    from normlint.recognise.groups import group_norms
    from normlint.recognise.response import response_norms
    from normlint.recognise.spelled import spelled_norms

    with collector_held():
        spelled, near = spelled_norms(graph, constants)
    spelled = [norm for norm in spelled if norm.nodes]  # a cycle may leave none
    parts = {node for norm in spelled for node in norm.nodes}
    fused = [norm for norm in fused_norms(graph, constants) if norm.anchor not in parts]
    norms = group_norms(graph, constants, [*fused, *spelled])
    norms = batch_norms(graph, constants, norms)
    norms.extend(response_norms(graph, constants))
    norms.sort(key=_places(graph))
    return Recognised(
        tuple(norm for norm in norms if not norm.constant),
        tuple(norm for norm in norms if norm.constant),
        tuple(like for like in near if like.nodes and not constants.is_constant(like.x)),
    )


def _places(graph: Graph) -> Callable[[Normalization], int]:
    """Give a key that sorts normalisations as their nodes stand, outer graphs first."""
    nodes = (node for scope in graph.scopes() for node in scope.nodes)
    place: dict[Node, int] = {node: position for position, node in enumerate(nodes)}
    return lambda norm: place[norm.anchor]
