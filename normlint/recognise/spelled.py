"""Normalisations that are spelled out in arithmetic, found by what they compute."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from normlint.algebra import X
from normlint.normalization import Form, Kind, Normalization
from normlint.recognise.affine import are_equal, parameter
from normlint.recognise.averages import averages
from normlint.recognise.candidates import Candidates
from normlint.recognise.course import (
    between,
    cast_back,
    ends,
    entry,
    statistics_dtype,
    where_quantized,
)
from normlint.recognise.kinds import is_of_groups, kind_of
from normlint.recognise.likeness import norm_like
from normlint.recognise.near import differences, near_norm, unequal_axes
from normlint.recognise.reading import Reading, Scope
from normlint.recognise.steps import REDUCTIONS, is_one_pass, steps_of

if TYPE_CHECKING:
    from normlint.algebra import Polynomial
    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor
    from normlint.normalization import NearNorm
    from normlint.recognise.likeness import Like
    from normlint.recognise.near import Difference
    from normlint.recognise.reading import Split


def spelled_norms(graph: Graph, constants: Constants) -> tuple[list[Normalization], list[NearNorm]]:
    """Give the normalisations that several nodes of a graph and its subgraphs compute.

    And what is nearly one.
    """
    norms: list[Normalization] = []
    near: list[NearNorm] = []
    for scope in graph.scopes():
        search = _Search(scope, constants)
        search.run()
        norms.extend(search.norms)
        near.extend(search.near)
    return norms, near


def _is_quotient(polynomial: Polynomial) -> bool:
    """Whether x is divided by something; cheap, since it is asked of every value."""
    return any(
        len(monomial) > 1 and monomial[0] == (X, 1) and any(power < 0 for _, power in monomial)
        for monomial in polynomial
    )


class _Search:
    """The search for normalisations in one graph."""

    def __init__(self, graph: Graph, constants: Constants) -> None:
        self.graph = graph
        self.constants = constants
        self.scope = Scope(graph, constants)
        self.candidates = Candidates(self.scope)
        self.read: set[tuple[Tensor, frozenset[int], Split | None]] = set()
        self.covered: set[Node] = set()
        self.norms: list[Normalization] = []
        self.near: list[NearNorm] = []
        self.centred: dict[Tensor, Difference] = {}
        """Differences of a tensor from its mean over some axes, of which no norm was found."""

    def run(self) -> None:
        for node in self.scope.place:
            if node in self.covered or not node.is_standard or not self.is_statistic(node):
                continue
            first: NearNorm | None = None
            for x in self.candidates.of(node):
                near = self.search(x, self.candidates.kept(x, node))
                first = first or near
                if node in self.covered:
                    break
            if node not in self.covered:
                for x, split in self.candidates.splits(node):
                    self.search(x, frozenset(), split)
            if first is not None and node not in self.covered:
                self.near.append(first)
                self.covered.update(first.nodes)

    def is_statistic(self, node: Node) -> bool:
        """Whether a node computes a mean or a sum over axes."""
        return node.op in REDUCTIONS or averages(node, self.constants)

    def search(
        self, x: Tensor, kept: frozenset[int], split: Split | None = None
    ) -> NearNorm | None:
        """Find the normalisations of x; where there is none, give what is nearly one."""
        if (x, kept, split) in self.read:
            return None
        self.read.add((x, kept, split))
        reading = Reading(self.scope, x, kept, split)
        likes = self.likes(reading)
        if not likes and split is not None:
            return None
        if not likes:
            self.centred.update(differences(reading))
            return near_norm(reading, lambda tensor: between(reading, tensor))
        static = {tensor: entry for tensor, entry in likes.items() if entry[0].static}
        for tensor in ends(reading, static or likes):
            like, kind = likes[tensor]
            norm = self.fact(reading, tensor, like, kind)
            difference = self.centred.get(x)
            if kind is Kind.RMS and difference is not None and difference.axes != norm.axes:
                return unequal_axes(norm, difference.x)
            self.covered.update(norm.nodes)
            self.norms.append(norm)
        return None

    def likes(self, reading: Reading) -> dict[Tensor, tuple[Like, Kind]]:
        result = {}
        shape = reading.layout.shape
        equal = partial(are_equal, reading)
        for tensor, value in reading.values.items():
            if value.flaw is not None or not _is_quotient(value.polynomial):
                continue
            like = norm_like(reading.algebra, value.polynomial, reading.x.dtype, equal)
            if like is None or reading.layout.permutation(value.dims) is None:
                continue
            axes = reading.raw_axes.get(like.axes, like.axes)
            kind: Kind | None
            if reading.split is not None:
                kind = Kind.GROUP if is_of_groups(like, reading.split, len(shape)) else None
            else:
                kind = kind_of(like, axes, shape, reading.algebra)
            if kind is not None:
                result[tensor] = (like, kind)
        return result

    def fact(self, reading: Reading, y: Tensor, like: Like, kind: Kind) -> Normalization:
        nodes = between(reading, y)
        cast = cast_back(reading, y)
        if cast is not None:
            nodes.append(cast)
            y = cast.outputs[0]
        x = entry(reading.x, y, nodes)
        split = reading.split
        rank = len(reading.layout.dims)
        axes = reading.raw_axes.get(like.axes, like.axes)
        if split is not None:
            axes = frozenset(range(1, rank))
        value = reading.values[y]
        steps = steps_of(reading, nodes)
        order = reading.layout.permutation(value.dims)
        return Normalization(
            kind,
            Form.DECOMPOSED,
            tuple(nodes),
            x,
            y,
            tuple(sorted(axis - rank for axis in axes)),
            like.epsilon,
            parameter(reading, like.scale, neutral=1.0),
            parameter(reading, like.bias, neutral=0.0),
            dtype=x.dtype,
            statistics_dtype=statistics_dtype(nodes, steps) or x.dtype,
            centred=like.centred,
            one_pass=like.centred and is_one_pass(reading, nodes),
            clipped=like.clipped,
            groups=(1 if split is None else split.groups) if kind is Kind.GROUP else None,
            channels_last=split is not None and split.axis == rank - 1,
            training=kind is Kind.BATCH,
            permutation=None if order == tuple(range(rank)) else order,
            quantized=where_quantized(x, y, nodes),
            steps=steps,
            constant=self.constants.is_constant(x),
        )
