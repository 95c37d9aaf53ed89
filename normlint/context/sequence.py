"""What shows that a model works on sequences, and in which way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.masks import Masks
from normlint.context.steps import Level, Role
from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from normlint.context.attention import Attention
    from normlint.context.flow import Flow
    from normlint.context.steps import Step, Value
    from normlint.context.structure import Structure
    from normlint.graph import Graph, Node, Tensor


@dataclass(frozen=True, eq=False)
class SequenceEvidence:
    """What shows that a model works on sequences."""

    attentions: tuple[Node, ...]
    """What mixes the values of each attention."""
    recurrences: tuple[Node, ...]
    """LSTM, GRU, RNN."""
    lookups: tuple[Node, ...]
    """What looks up token numbers in a table of embeddings."""
    causal: tuple[Node, ...]
    """What makes attentions causal."""
    caches: tuple[Tensor, ...]
    """Graph inputs that hold the keys or values of earlier tokens."""
    positions: tuple[Node, ...]
    """What adds a table of position embeddings to the start of a stream."""
    time_axes: tuple[str, ...]
    """Names of symbolic extents behind the first axis of an input."""

    @property
    def is_sequence(self) -> bool:
        """Whether tokens or time steps look at each other."""
        return bool(self.attentions or self.recurrences)

    @property
    def is_autoregressive(self) -> bool:
        """Whether it makes one token after the other: a cache, or a causal model of tokens."""
        return bool(self.caches) or bool(self.causal and self.lookups)

    def described(self) -> dict[str, int]:
        """Count each kind of evidence that there is."""
        counts = {
            "attentions": len(self.attentions),
            "recurrences": len(self.recurrences),
            "token_lookups": len(self.lookups),
            "causal_masks": len(self.causal),
            "caches": len(self.caches),
            "position_embeddings": len(self.positions),
            "time_axes": len(self.time_axes),
        }
        return {name: count for name, count in counts.items() if count}


def sequence_evidence(graph: Graph, structure: Structure) -> SequenceEvidence:
    """Gather what shows that a model works on sequences."""
    flow = structure.flow
    masks = Masks(flow)
    attentions = structure.attentions
    causal = [node for a in attentions.values() if (node := masks.causal(a)) is not None]
    return SequenceEvidence(
        attentions=tuple(step.node for step in attentions),
        recurrences=tuple(step.node for step in flow.steps if step.op in ops.RECURRENCES),
        lookups=tuple(step.node for step in flow.steps if step.role is Role.LOOKUP),
        causal=tuple(dict.fromkeys(causal)),
        caches=tuple(dict.fromkeys(t for a in attentions.values() for t in _caches(a, flow))),
        positions=tuple(_positions(structure)),
        time_axes=tuple(dict.fromkeys(_time_axes(graph))),
    )


def _caches(attention: Attention, flow: Flow) -> Iterator[Tensor]:
    """Give the inputs that keys and values come from as they are, or are appended to."""
    if attention.mix.op in ops.ATTENTIONS:
        yield from _given(flow.value(t) for t in attention.mix.node.inputs[3:] if t.name)
        return
    for value in (*attention.operands, *attention.mix.sources):
        maker = value.origin.maker
        yield from _given([value] if maker is None or maker.op != "Concat" else maker.sources)


def _given(values: Iterable[Value]) -> Iterator[Tensor]:
    for value in values:
        origin = value.origin
        if origin.maker is None and origin.level is Level.DATA and origin.tensor is not None:
            tensor = origin.tensor
            if tensor.producer is None and (tensor.rank is None or tensor.rank >= 4):
                yield tensor


def _positions(structure: Structure) -> Iterator[Node]:
    for chain in structure.chains:
        value: Value = chain[0].root
        for _ in range(8):
            step = value.maker
            if step is None or not step.sources:
                break
            if _adds_table(step, structure.flow):
                yield step.node
                break
            if step.role not in {Role.PASS, Role.SUM, Role.NORM}:
                break
            value = step.sources[0]


def _adds_table(step: Step, flow: Flow) -> bool:
    if step.op not in ops.SUMS or step.role is Role.NORM:
        return False
    if (
        sum(
            source.origin.maker is not None and source.origin.maker.role is Role.LOOKUP
            for source in step.sources
        )
        > 1
    ):
        return True
    known = [t for t in step.node.inputs if flow.value(t).level is Level.KNOWN]
    return any(t.shape is None or sum(extent != 1 for extent in t.shape) > 1 for t in known)


def _time_axes(graph: Graph) -> Iterator[str]:
    for tensor in graph.inputs:
        for extent in (tensor.shape or ())[1:]:
            if isinstance(extent, str):
                yield extent
