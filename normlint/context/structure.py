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
        self.chains = self._chains()
        self.step_of = {step.norm: step for step in self.flow.steps if step.norm is not None}

    def _chains(self) -> list[list[Residual]]:
        chains: list[list[Residual]] = []
        chain_of: dict[Residual, list[Residual]] = {}
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
        return [chain for chain in chains if not self._is_detail(chain, inside, chain_of)]

    def _in_front(self, residual: Residual) -> tuple[Residual | None, tuple[Step, ...]]:
        """Give the addition whose sum a root is, and the norms and activations between."""
        if residual.parallel is not None:
            return residual.parallel, ()
        maker = residual.root.origin.maker
        if maker is None or maker.op != "Concat":
            return self._sum_behind(residual.root)
        found = [self._sum_behind(source) for source in maker.sources]
        if len({before for before, _ in found}) > 1:
            return None, ()
        # Some tokens are normed and put back to the others.
        return found[0][0], tuple(step for _, link in found for step in link)

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
        chain_of: dict[Residual, list[Residual]],
    ) -> bool:
        """Whether it is a single addition within a branch of a longer stream."""
        if len(chain) > 1 or chain[0] not in inside:
            return False
        return len(chain_of[inside[chain[0]]]) > 1


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
