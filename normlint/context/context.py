"""The facts about one model, each computed when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from normlint.context.constants import Constants
from normlint.context.settings import Settings

if TYPE_CHECKING:
    from normlint.graph import Graph
    from normlint.normalization import NearNorm, Normalization
    from normlint.recognise import Recognised


class Context:
    """What is known about one model."""

    def __init__(self, graph: Graph, settings: Settings | None = None) -> None:
        self.graph = graph
        self.settings = settings or Settings()

    @property
    def opset(self) -> int:
        """The opset of ai.onnx that the model declares."""
        return self.graph.opset

    @property
    def opset_limit(self) -> int:
        """The highest opset that a rewrite may use."""
        return max(self.opset, self.settings.target_opset or 0)

    @cached_property
    def constants(self) -> Constants:
        """Which tensors are constants or computed from constants alone, and their values."""
        return Constants(self.graph)

    @cached_property
    def _recognised(self) -> Recognised:
        from normlint.recognise import recognise

        return recognise(self.graph, self.constants)

    @property
    def norms(self) -> tuple[Normalization, ...]:
        """Every normalisation of data, in topological order, outer graphs first."""
        return self._recognised.norms

    @property
    def constant_norms(self) -> tuple[Normalization, ...]:
        """Every normalisation that is computed from constants alone."""
        return self._recognised.constant_norms

    @property
    def near_norms(self) -> tuple[NearNorm, ...]:
        """Everything that looks like a normalisation and is none."""
        return self._recognised.near_norms
