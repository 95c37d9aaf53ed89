"""Streams whose mean over the channels can be made to vanish by editing what writes them.

LayerNorm subtracts the mean over the channels of its input. That is a projection P, and linear:
where everything that writes a residual stream writes the projected value instead, the stream holds
Pt in place of t, and every LayerNorm that reads it is an RMSNorm with the same scale and epsilon. A
tensor must keep its value (it is pinned) where somebody reads it to whom the mean matters, or where
its producer cannot be made to write another value.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from normlint.context.zero_mean_pins import Pin, Pins
from normlint.context.zero_mean_readers import Readers, norm_site
from normlint.context.zero_mean_sources import Centred, Sources
from normlint.deferred import dataclass
from normlint.rule import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.context import Context
    from normlint.context.zero_mean_sites import Site
    from normlint.context.zero_mean_sources import Source
    from normlint.graph import Node
    from normlint.normalization import Normalization

SAVED = 0.45
"""What RMSNorm saves of the time that LayerNorm takes, on ONNX Runtime's CPU kernels."""
CENTRING = 0.7
"""What an explicit subtraction of the mean takes of it."""


@dataclass(eq=False)
class Component:
    """Tensors that are centred together, by editing what writes them."""

    sites: tuple[Site, ...] = ()
    """The tensors whose producers are edited; none where the mean is zero as the model stands."""
    explicit: tuple[Site, ...] = ()
    """Tensors that keep their values, and whose mean must be subtracted where they enter."""
    norms: tuple[Normalization, ...] = ()
    """The LayerNorms that become RMSNorms."""
    witnesses: tuple[Node, ...] = ()
    """Nodes that show of other tensors that their means are zero as the model stands."""


@dataclass(eq=False)
class Stream:
    """A residual stream, as far as tensors of the same channels are joined by linear operators."""

    norms: tuple[Normalization, ...]
    """Every LayerNorm that reads it, or that reads what one of these adds to it."""
    components: list[Component] = field(default_factory=list)
    pins: dict[Normalization, Pin] = field(default_factory=dict)
    """Why a LayerNorm cannot be an RMSNorm."""
    sources: dict[Site, Source] = field(default_factory=dict)
    """What produces the tensors."""
    compensated: dict[Site, list[tuple[Node, Normalization]]] = field(default_factory=dict)
    """Linear readers of the results of LayerNorms, which make up for the mean of their biases."""

    @property
    def convertible(self) -> list[Normalization]:
        """The LayerNorms that can be RMSNorms, in the order of the stream."""
        found = {norm for component in self.components for norm in component.norms}
        return [norm for norm in self.norms if norm in found]


def streams(context: Context) -> list[Stream]:
    """Give every stream that a LayerNorm reads, in the order of their first LayerNorms."""
    norms = {norm: at for norm in context.norms if (at := norm_site(norm)) is not None}
    if not norms:
        return []
    return _Analysis(context, norms).run()


class _Analysis:
    def __init__(self, context: Context, norms: dict[Normalization, Site]) -> None:
        constants = context.constants
        self.norms = norms
        self.order = {norm: place for place, norm in enumerate(norms)}
        readers = Readers(context.norms, constants)
        self.sources = Sources(context.norms, readers, constants)
        self.pins = Pins(self.sources, readers, constants)
        self.readers_of: dict[Site, list[Normalization]] = {}
        for norm, at in norms.items():
            self.readers_of.setdefault(at, []).append(norm)

    @cached_property
    def compensated(self) -> dict[Site, list[tuple[Node, Normalization]]]:
        """Readers that make up for a constant mean, with the LayerNorm that it stems from."""
        return {
            at: [(node, norm) for node in nodes]
            for at, nodes in self.pins.compensated.items()
            if (norm := self.sources.constant_mean(at)) is not None
        }

    def run(self) -> list[Stream]:
        self.pins.explore(self.norms.values())
        self.pins.settle()
        for at in self.readers_of:
            if at in self.pins.reason:
                self._is_zero_mean(at)
        components = self._choose()
        components.extend(self._already_zero(components))
        return self._streams(components)

    def _choose(self) -> list[Component]:
        """Keep the components that save more than their explicit centring costs."""
        while True:
            components = [self._component(sites) for sites in self._connected()]
            poor = [component for component in components if not _pays(component)]
            torn = self._torn(components)
            if not poor and not torn:
                return [component for component in components if component.norms]
            for component in poor:
                self._give_up(component)
            for at, why in torn:
                self.pins.pin(at, why)
            self.pins.settle()

    def _torn(self, components: list[Component]) -> list[tuple[Site, Pin]]:
        """Give the tensors whose operand would be centred for them, and for one that is pinned."""
        found = []
        explicit = {at for component in components for at in component.explicit}
        for component in components:
            for at in component.sites:
                if explicit.isdisjoint(self.pins.operands(at)):
                    continue
                why = self.pins.of_siblings(at)
                if why is not None:
                    found.append((at, why))
        return found

    def _connected(self) -> list[list[Site]]:
        """Give the free tensors in groups that linear operators join."""
        free = [at for at in self.pins.source_of if self.pins.is_free(at)]
        return _groups(
            free, ((at, o) for at in free for o in self.pins.operands(at) if self.pins.is_free(o))
        )

    def _component(self, sites: list[Site]) -> Component:
        entering = [
            operand
            for at in sites
            for operand in self.pins.operands(at)
            if not self.pins.is_free(operand)
        ]
        explicit = tuple(at for at in dict.fromkeys(entering) if not self._is_zero_mean(at))
        norms = [norm for at in sites for norm in self.readers_of.get(at, ())]
        sharing = [norm for at in explicit for norm in self.readers_of.get(at, ())]
        norms.extend(norm for norm in sharing if _is_whole(norm))
        zero = [at for at in entering if at in self.pins.zero_mean]
        zero.extend(at for at in sites if isinstance(self.pins.source_of[at], Centred))
        return Component(tuple(sites), explicit, tuple(norms), tuple(self.sources.witnesses(zero)))

    def _is_zero_mean(self, at: Site) -> bool:
        if at not in self.pins.zero_mean and self.sources.is_zero_mean(at):
            self.pins.zero_mean.add(at)
        return at in self.pins.zero_mean

    def _give_up(self, component: Component) -> None:
        """Pin what a tensor with its value kept enters, instead of centring it there.

        All at once where no part of a component could pay either: one tensor after another, a long
        chain of them would take as many rounds.
        """
        entering = set(component.explicit)
        hopeless = SAVED * len(component.norms) <= CENTRING
        for at in component.sites:
            operands = component.explicit if hopeless else self.pins.operands(at)
            operand = next((o for o in operands if o in entering), None)
            if operand is not None:
                self.pins.pin(at, self._kept_for(operand))

    def _kept_for(self, operand: Site) -> Pin:
        """Tell why what is computed from a pinned tensor is not centred."""
        cause = self.pins.reason.get(operand)
        detail = "to subtract the mean explicitly would cost more than it saves"
        return cause.follow(operand, detail) if cause else _foreign(operand)

    def _already_zero(self, components: list[Component]) -> list[Component]:
        """Give a component for each tensor that has mean zero as the model stands."""
        for component in components:
            if not component.explicit and self.sources.are_zero_mean(component.sites):
                component.witnesses = tuple(self.sources.witnesses(component.sites))
                component.sites = ()
        return [
            Component((), (), tuple(self.readers_of[at]), tuple(self.sources.witnesses([at])))
            for at in self.pins.zero_mean
            if at in self.readers_of
        ]

    def _streams(self, components: list[Component]) -> list[Stream]:
        sites = list(self.pins.source_of)
        joints = [(at, operand) for at in sites for operand in self.pins.operands(at)]
        by_tensor: dict[object, Site] = {at.tensor: at for at in sites}
        for norm, at in self.norms.items():
            if norm.y in by_tensor:
                joints.append((at, by_tensor[norm.y]))
        found = []
        component_of = {norm: c for c in components for norm in c.norms}
        for group in _groups(sites, joints):
            norms = [norm for at in group for norm in self.readers_of.get(at, ())]
            if norms:
                found.append(self._stream(group, norms, component_of))
        return sorted(found, key=lambda stream: self.order[stream.norms[0]])

    def _stream(
        self,
        sites: list[Site],
        norms: list[Normalization],
        component_of: dict[Normalization, Component],
    ) -> Stream:
        ordered = tuple(sorted(norms, key=lambda norm: self.order[norm]))
        compensated = {at: self.compensated[at] for at in sites if at in self.compensated}
        found = Stream(ordered, sources=self.pins.source_of, compensated=compensated)
        for norm in ordered:
            component = component_of.get(norm)
            if component is None:
                found.pins[norm] = self.pins.reason.get(self.norms[norm]) or _foreign(
                    self.norms[norm]
                )
            elif component not in found.components:
                found.components.append(component)
        return found


def _foreign(at: Site) -> Pin:
    return Pin(Reason.NOT_ZERO_MEAN, at.tensor, f"the mean of {at.tensor.name} does not vanish")


def _pays(component: Component) -> bool:
    if not component.explicit:
        return True
    graphs = {at.tensor.graph for at in (*component.sites, *component.explicit)}
    saved = SAVED * len(component.norms)
    return len(graphs) == 1 and saved > CENTRING * len(component.explicit)


def _is_whole(norm: Normalization) -> bool:
    """Whether it can read another tensor: a skip norm computes what it reads.

    And whether the centring of a spelled-out LayerNorm serves nobody else.
    Where it does, the LayerNorm shares an explicit centring already, and is an RMSNorm behind it.
    """
    if norm.normalised is not norm.x:
        return False
    difference = norm.steps.get("difference")
    if difference is None:
        return True
    return all(reader in norm.nodes for reader in difference.y.consumers)


def _groups(sites: Iterable[Site], joints: Iterable[tuple[Site, Site]]) -> list[list[Site]]:
    """Give the connected groups of sites."""
    neighbours: dict[Site, list[Site]] = {at: [] for at in sites}
    for one, other in joints:
        neighbours[one].append(other)
        neighbours[other].append(one)
    seen: set[Site] = set()
    found = []
    for start in neighbours:
        if start in seen:
            continue
        group, pending = [], [start]
        seen.add(start)
        while pending:
            at = pending.pop()
            group.append(at)
            fresh = [other for other in neighbours[at] if other not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        found.append(group)
    return found
