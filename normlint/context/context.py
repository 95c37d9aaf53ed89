"""The facts about one model, each computed when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from normlint.context.constants import Constants
from normlint.context.settings import Settings
from normlint.normalization import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.centring import Stream as CentredStream
    from normlint.context.placement import Placements
    from normlint.context.places import Placement
    from normlint.context.precision import Precision
    from normlint.context.quantized import Quantized
    from normlint.context.sequence import SequenceEvidence
    from normlint.context.streams import Stream
    from normlint.context.structure import Structure
    from normlint.graph import Graph
    from normlint.measure import Measured
    from normlint.normalization import NearNorm, Normalization
    from normlint.recognise import Recognised
    from normlint.rewrite.fold_plan import Folds


class Context:
    """What is known about one model."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings | None = None,
        measure: Callable[[Context], Measured] | None = None,
    ) -> None:
        self.graph = graph
        self.settings = settings or Settings()
        self._measure = measure

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
        """Which tensors are constants or computed from constants alone, and their values.

        Shapes are completed on the way: what is of known extents is constant as well.
        """
        from normlint.context.shapes import complete_shapes

        constants = Constants(self.graph)
        complete_shapes(self.graph, constants)
        return constants

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

    @cached_property
    def folds(self) -> Folds:
        """What becomes of each BatchNorm and each scale and shift per channel, and why."""
        from normlint.rewrite.fold_plan import Folds

        return Folds(self)

    @cached_property
    def structure(self) -> Structure:
        """The flow of data, attentions and residual additions."""
        from normlint.context.structure import Structure

        return Structure(self.graph, self.constants, (*self.norms, *self.constant_norms))

    @cached_property
    def placements(self) -> Placements:
        """Where each normalisation stands, and where those of each residual addition do."""
        from normlint.context.placement import Placements

        return Placements(self.structure)

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """The residual streams, in the order of their first additions."""
        from normlint.context.streams import streams

        return streams(self.structure, self.placements)

    @cached_property
    def stacks(self) -> tuple[tuple[Stream, ...], ...]:
        """The streams, a decoder together with the encoder that it reads."""
        from normlint.context.stacks import stacks

        return stacks(self.streams, self.structure)

    def placement(self, norm: Normalization) -> Placement:
        """Give where a normalisation stands: its placement, stream and layer."""
        return self.placements(norm)

    @cached_property
    def sequence(self) -> SequenceEvidence:
        """What shows that the model works on sequences."""
        from normlint.context.sequence import sequence_evidence

        return sequence_evidence(self.graph, self.structure)

    @cached_property
    def centred_streams(self) -> list[CentredStream]:
        """The streams that LayerNorms read, and where their mean can be made to vanish."""
        if not any(norm.kind is Kind.LAYER for norm in self.norms):
            return []
        from normlint.context.centring import streams

        return streams(self)

    @cached_property
    def quantized(self) -> Quantized:
        """Which norms and residual additions work on rounded values."""
        from normlint.context.quantized import Quantized

        return Quantized(self.norms, self.streams, self.constants)

    @cached_property
    def precision(self) -> Precision:
        """What the types of the model do to its norms."""
        from normlint.context.precision import Precision

        return Precision(self.norms, self.constants)

    @cached_property
    def measured(self) -> Measured | None:
        """What the norms saw on the user's data; None without data. Raises UsageError."""
        return None if self._measure is None else self._measure(self)
