"""Which tensors must keep their values when what writes a stream is centred, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context.zero_mean_sites import Site, sites_of_width
from normlint.context.zero_mean_sources import Centred, Unfit
from normlint.context.zero_mean_steps import Step, step
from normlint.deferred import dataclass
from normlint.rewrite.centre_affine import takes_up
from normlint.rule import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.constants import Constants
    from normlint.context.zero_mean_readers import Readers
    from normlint.context.zero_mean_sources import Source, Sources
    from normlint.graph import Node, Tensor


@dataclass(frozen=True, eq=False)
class Pin:
    """Why a tensor must keep its value."""

    reason: Reason
    at: Node | Tensor
    detail: str
    chain: tuple[Tensor, ...] = ()
    """The tensors from the one in question to the one that is pinned by itself."""

    def follow(self, through: Site, detail: str = "") -> Pin:
        """Give the pin of a tensor that is pinned because another one is."""
        chain = (through.tensor, *self.chain)
        return Pin(self.reason, self.at, self.detail or detail, chain[:_LONGEST_CHAIN])


_LONGEST_CHAIN = 64


class Pins:
    """The tensors of all streams, and those of them that are pinned."""

    def __init__(self, sources: Sources, readers: Readers, constants: Constants) -> None:
        self._sources = sources
        self._readers = readers
        self._constants = constants
        self.source_of: dict[Site, Source] = {}
        """Every tensor of a stream, and what produces it."""
        self.reason: dict[Site, Pin] = {}
        self.zero_mean: set[Site] = set()
        """Tensors of mean zero as the model stands: they keep their values, and nobody minds."""
        self.compensated: dict[Site, list[Node]] = {}
        """Linear readers that make up for a mean that does not depend on the input."""
        self._fresh: list[Site] = []
        self._entering: dict[Site, list[Site]] = {}
        """For a tensor those that its producer reads, whether or not that can be edited."""

    def is_free(self, at: Site) -> bool:
        """Whether a tensor may hold its centred value."""
        return at in self.source_of and at not in self.reason and at not in self.zero_mean

    def operands(self, at: Site) -> list[Site]:
        """Give the tensors, constants apart, whose centring centres this one."""
        source = self.source_of.get(at)
        if not isinstance(source, Step):
            return []
        return [o for _, o in source.full if not self._constants.is_constant(o.tensor)]

    def pin(self, at: Site, why: Pin) -> None:
        """Pin a tensor; `settle` draws the conclusions."""
        if at in self.reason:
            return
        self.reason[at] = why
        self._fresh.append(at)

    def of_siblings(self, at: Site) -> Pin | None:
        """Tell why another output of the same node must keep its value; None where none must."""
        node = at.tensor.producer
        if node is None or self._readers.sum_of(node) is not None:
            return None
        for tensor in node.outputs:
            if tensor is at.tensor or not tensor.name or not (tensor.consumers or tensor.is_output):
                continue
            places = [
                place for place in sites_of_width(tensor, at.width) if place in self.source_of
            ]
            if any(self.is_free(place) or place in self.zero_mean for place in places):
                continue
            causes = [self.reason[place].follow(place) for place in places if place in self.reason]
            detail = f"{tensor.name} must keep its value"
            return causes[0] if causes else Pin(Reason.OTHER_READER, tensor, detail)
        return None

    def settle(self) -> None:
        """Pin the operands of what is pinned: it is computed from their values."""
        while self._fresh:
            at = self._fresh.pop()
            for operand in self._entering.get(at, ()):
                if not isinstance(self.source_of[operand], Centred):
                    self.pin(operand, self.reason[at].follow(at))

    def explore(self, starts: Iterable[Site]) -> None:
        """Find all tensors of the streams, and pin those that are pinned by themselves."""
        pending = list(dict.fromkeys(starts))
        seen = set(pending)
        raw: list[tuple[Site, Node]] = []
        while pending:
            at = pending.pop()
            self.source_of[at] = self._sources.of(at)
            found = list(self.operands(at))
            for node in dict.fromkeys(at.tensor.consumers):
                results = self._results(node, at)
                found.extend(results)
                for out in results:
                    self._entering.setdefault(out, []).append(at)
                if not results:
                    raw.append((at, node))
            fresh = [other for other in dict.fromkeys(found) if other not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        for at, source in self.source_of.items():
            self._pin_by_itself(at, source)
        self._pin_doubles()
        for at, node in raw:
            if at not in self.reason and not isinstance(self.source_of[at], Centred):
                self._pin_by_reader(at, node)

    def _results(self, node: Node, at: Site) -> list[Site]:
        """Give the outputs of a reader that are centred when the tensor is; none unless all are."""
        if node.graph is not at.tensor.graph:
            return []
        total = self._readers.sum_of(node)
        if total is not None:
            return [total] if total.width == at.width and self._follows(node, at, total) else []
        found = []
        for tensor in node.outputs:
            if not tensor.name or not (tensor.consumers or tensor.is_output):
                continue
            reached = [
                out for out in sites_of_width(tensor, at.width) if self._follows(node, at, out)
            ]
            if not reached:
                return []
            found.extend(reached)
        return found

    def _follows(self, node: Node, at: Site, out: Site) -> bool:
        how = step(node, out, self._constants)
        return how is not None and how.reads(at)

    def _pin_by_itself(self, at: Site, source: Source) -> None:
        if isinstance(source, Centred):
            return
        if at.tensor.is_output:
            where = "graph" if at.tensor.graph.parent is None else "subgraph"
            detail = f"{at.tensor.name} is an output of the {where}"
            self.pin(at, Pin(Reason.GRAPH_OUTPUT, at.tensor, detail))
        elif isinstance(source, Unfit):
            self.pin(at, Pin(source.reason, source.at, source.detail))

    def _pin_doubles(self) -> None:
        """Pin tensors whose mean is taken over different axes by different readers."""
        first: dict[Tensor, Site] = {}
        for at in self.source_of:
            other = first.setdefault(at.tensor, at)
            if other == at:
                continue
            detail = f"the mean of {at.tensor.name} is taken over different axes"
            for found in (at, other):
                self.pin(found, Pin(Reason.CHANNEL_AXIS_MOVED, at.tensor, detail))

    def _pin_by_reader(self, at: Site, node: Node) -> None:
        if node.graph is at.tensor.graph and self._readers.is_indifferent(node, at):
            return
        if self._sources.constant_mean(at) is not None and takes_up(node, at, self._constants):
            self.compensated.setdefault(at, []).append(node)
            return
        detail = f"{node.op} reads it, to which the mean matters"
        if node.graph is not at.tensor.graph:
            detail = f"{node.op} in a subgraph reads it"
        self.pin(at, Pin(Reason.READER_NOT_SHIFT_INVARIANT, node, detail))
