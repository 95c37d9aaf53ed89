"""The structure of a model: residual additions, and the chains that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.attention import attentions
from normlint.context.flow import Flow
from normlint.context.residual import Residual, Residuals
from normlint.context.steps import Role
from normlint.normalization import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from normlint.context.attention import Attention
    from normlint.context.constants import Constants
    from normlint.context.steps import Step, Value
    from normlint.graph import Graph
    from normlint.normalization import Normalization

_LONGEST_LINK = 4
"""Norms and activations between a sum and the next root."""


class Structure:
    """The flow of a model, its attentions, residual additions and the chains that these make."""

    def __init__(self, graph: Graph, constants: Constants, norms: Sequence[Normalization]) -> None:
        self.flow = Flow(graph, constants, norms)
        self.attentions: dict[Step, Attention] = attentions(self.flow)
        self.residuals = Residuals(self.flow, self.attentions)
        self._chain_of: dict[Residual, list[Residual]] = {}
        self.chains = self._chains()
        self.step_of = {step.norm: step for step in self.flow.steps if step.norm is not None}

    def _chains(self) -> list[list[Residual]]:
        chains: list[list[Residual]] = []
        chain_of = self._chain_of
        for residual in self.residuals.found.values():
            before, link = self._in_front(residual)
            if before is None or (before.after and residual.parallel is None):
                chain: list[Residual] = []
                chains.append(chain)
            else:
                chain = chain_of[before]
                residual.before, residual.link = before, link
                before.after.append(residual)
            chain.append(residual)
            chain_of[residual] = chain
        inside = _nested(chains)
        return [chain for chain in chains if not self._is_detail(chain, inside)]

    def _in_front(self, residual: Residual) -> tuple[Residual | None, tuple[Step, ...]]:
        """Give the addition whose sum a root is, and the norms and activations between."""
        if residual.parallel is not None:
            return residual.parallel, ()
        maker = residual.root.origin.maker
        if maker is None or maker.op != "Concat":
            return self._sum_behind(residual.root)
        return self._joined(maker.sources)

    def _joined(self, sources: Sequence[Value]) -> tuple[Residual | None, tuple[Step, ...]]:
        """Give the last sum of one stream whose tokens are joined again, some of them normed.

        Tokens that were put aside may be as the stream was before, or as it started.
        """
        found = [self._sum_behind(source) for source in sources]
        adds = [before for before, _ in found if before is not None]
        if not adds:
            return None, ()
        chain = self._chain_of[adds[0]]
        start = chain[0].root.origin
        for source, (before, _) in zip(sources, found, strict=True):
            here = source.origin is start if before is None else self._chain_of[before] is chain
            if not here:
                return None, ()
        last = max(adds, key=lambda add: add.step.position)
        return last, tuple(step for before, link in found if before is last for step in link)

    def _sum_behind(self, value: Value) -> tuple[Residual | None, tuple[Step, ...]]:
        link: list[Step] = []
        for _ in range(_LONGEST_LINK):
            found = self.residuals.of(value.origin)
            if found is not None:
                return found, tuple(reversed(link))
            step = value.origin.maker
            if step is None:
                break
            if step.role is Role.NORM and step.norm is not None and step.norm.kind is not Kind.L2:
                link.append(step)
                value = step.sources[0]
            elif value.base is not value.origin:
                value = value.base
            else:
                break
        return None, ()

    def _is_detail(
        self,
        chain: list[Residual],
        inside: dict[Residual, Residual],
    ) -> bool:
        """Whether it is a single addition within a branch of a longer stream."""
        if len(chain) > 1 or chain[0] not in inside:
            return False
        return len(self._chain_of[inside[chain[0]]]) > 1


def _nested(chains: list[list[Residual]]) -> dict[Residual, Residual]:
    """Give for additions within the branch of another one the innermost such one."""
    adds = {residual.step: residual for chain in chains for residual in chain}
    inside: dict[Residual, Residual] = {}
    for chain in chains:
        for residual in chain:
            for step in residual.branch.steps:
                inner = adds.get(step)
                if inner is not None and inner is not residual:
                    inside.setdefault(inner, residual)
    return inside
