"""Where a normalisation stands in a residual network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.context import operators as ops
from normlint.context.layers import layers
from normlint.context.places import Place, Placement
from normlint.context.steps import Level, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.residual import Residual
    from normlint.context.steps import Step, Value
    from normlint.context.structure import Structure
    from normlint.normalization import Normalization

_FAR = 64


class Placements:
    """Where each normalisation of a model stands."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.layer_of = [layers(chain) for chain in structure.chains]
        self.spots: dict[Normalization, Placement] = {}
        self._steps = structure.step_of
        self._on = self._norms_by_sum()
        for index, chain in enumerate(structure.chains):
            for add, depth in zip(chain, self.layer_of[index], strict=True):
                self._place_branch(add, index, depth)
                self._place_links(add, index, depth)
        for index, chain in enumerate(structure.chains):
            self._place_last(chain[-1], index)
        self._place_queries()
        for index, chain in enumerate(structure.chains):
            self._place_embedding(chain[0], index)
        for index, chain in enumerate(structure.chains):
            for add, depth in zip(chain, self.layer_of[index], strict=True):
                for norm in add.branch.inner:
                    self._place(norm, Place.BRANCH, index, depth)
        self._place_behind_norms()
        self.spots = {
            norm: self.spots.get(norm) or Placement(Place.NONE, follows=follows(step))
            for norm, step in self._steps.items()
        }

    def __call__(self, norm: Normalization) -> Placement:
        """Give the placement of a normalisation."""
        return self.spots.get(norm) or Placement(Place.UNKNOWN)

    def word(self, add: Residual) -> Place:
        """Say where the norms of a residual addition stand."""
        branch = add.branch
        if self._is_parallel(add):
            return Place.PARALLEL
        if branch.reads_norms_only:
            return Place.SANDWICH if branch.exits else Place.PRE
        if branch.exits:
            return Place.RES_POST
        if self.norms_on(add):
            return Place.DEEPNORM if self.is_scaled(add) else Place.POST
        return Place.BRANCH if branch.entries or branch.inner else Place.NONE

    def is_scaled(self, add: Residual) -> bool:
        """Whether constants other than 1 multiply the skip path (DeepNorm, Admin)."""
        makers = [value.maker for value in add.skip[:-1]]
        return any(step is not None and self._scales(step) for step in makers)

    def final_norms(self, add: Residual) -> list[Step]:
        """Give the norms that read a last sum, also through activations and pools."""
        return self._on.get(add, [])

    def _scales(self, step: Step) -> bool:
        if step.op not in {"Mul", "Div"}:
            return False
        flow = self.structure.flow
        for tensor in step.node.inputs:
            if flow.value(tensor).level is Level.KNOWN:
                return flow.constants.uniform(tensor) != 1.0
        return False

    def _is_parallel(self, add: Residual) -> bool:
        return (
            add.parallel is not None
            or add.branch.sides > 1
            or any(other.parallel is add for other in add.after)
        )

    def norms_on(self, add: Residual) -> list[Step]:
        """Give the norms between a sum and the next root, or on a last sum."""
        if add.after:
            return _links(add)
        if add.before is not None and not self._is_post_stream(add):
            return []
        return [step for step in self._on.get(add, []) if step.sources[0].origin is add.total]

    def _is_post_stream(self, last: Residual) -> bool:
        """Whether the sum in front of the last one is normed, and its branch is not."""
        add: Residual | None = last.before
        while add is not None:
            if not add.branch.reads_norms_only and not add.branch.exits:
                return bool(_links(add))
            add = add.before
        return False

    def _norms_by_sum(self) -> dict[Residual, list[Step]]:
        found: dict[Residual, list[Step]] = {}
        for step in self._steps.values():
            add = self._sum_behind(step.sources[0])
            if add is not None:
                found.setdefault(add, []).append(step)
        return found

    def _sum_behind(self, value: Value) -> Residual | None:
        for _ in range(4):
            add = self.structure.residuals.of(value.origin)
            if add is not None:
                return add
            if value.base is not value.origin:
                value = value.base
                continue
            step = value.origin.maker
            if step is not None and step.op == "Concat":
                return self._joined(step)
            if step is None or step.op not in ops.POOLS:
                return None
            value = step.sources[0]
        return None

    def _joined(self, step: Step) -> Residual | None:
        """Give the first sum of those that are joined: a class token with the others."""
        found = (self.structure.residuals.of(source.origin) for source in step.sources)
        return next((add for add in found if add is not None), None)

    def _place(self, norm: Normalization, place: Place, stream: int, depth: int) -> None:
        if norm not in self.spots:
            self.spots[norm] = Placement(place, stream, depth, follows(self._steps[norm]))

    def _place_branch(self, add: Residual, stream: int, depth: int) -> None:
        branch = add.branch
        place = Place.BRANCH
        if self._is_parallel(add):
            place = Place.PARALLEL
        elif branch.reads_norms_only:
            place = Place.SANDWICH if branch.exits else Place.PRE
        for norm in branch.entries:
            self._place(norm, place, stream, depth)
        end = Place.SANDWICH if branch.reads_norms_only else Place.RES_POST
        for norm in branch.exits:
            self._place(norm, end, stream, depth)

    def _place_links(self, add: Residual, stream: int, depth: int) -> None:
        place = Place.DEEPNORM if self.is_scaled(add) else Place.POST
        for other in add.after:
            for step in other.link:
                if step.norm is not None:
                    self._place(step.norm, place, stream, depth)

    def _place_last(self, add: Residual, stream: int) -> None:
        depth = self.layer_of[stream][-1]
        word = self.word(add)
        for step in self.final_norms(add):
            if step.norm is None:
                continue
            on_sum = step.sources[0].origin is add.total
            if _merges(step.sources[0]):
                self._place(step.norm, Place.NONE, stream, depth)
            elif on_sum and word in {Place.POST, Place.DEEPNORM}:
                self._place(step.norm, word, stream, depth)
            else:
                self._place(step.norm, Place.FINAL, stream, depth)

    def _place_behind_norms(self) -> None:
        """Place the norms of what the norm on a last sum gives, as some decoders have one."""
        last = {norm for chain in self.structure.chains for norm in self._normed(chain[-1])}
        for norm, step in self._steps.items():
            maker = step.sources[0].origin.maker
            if maker is None or maker.norm not in last or maker.norm not in self.spots:
                continue
            spot = self.spots[maker.norm]
            if spot.stream is not None and spot.depth is not None:
                self._place(norm, Place.FINAL, spot.stream, spot.depth)

    def _normed(self, last: Residual) -> Iterator[Normalization]:
        return (step.norm for step in self._on.get(last, []) if step.norm is not None)

    def _place_queries(self) -> None:
        stream_of = {
            step: (index, depth)
            for index, chain in enumerate(self.structure.chains)
            for add, depth in zip(chain, self.layer_of[index], strict=True)
            for step in add.branch.steps
            if step in self.structure.attentions
        }
        for mix, attention in self.structure.attentions.items():
            stream, depth = stream_of.get(mix, (None, None))
            for value in attention.operands:
                for norm in _norms_at(value):
                    if norm not in self.spots:
                        self.spots[norm] = Placement(
                            Place.QK, stream, depth, follows(self._steps[norm])
                        )

    def _place_embedding(self, first: Residual, stream: int) -> None:
        """Place the nearest norms upstream of a stream's root, behind no other stream."""
        pending = [first.root]
        for _ in range(_FAR):
            if not pending:
                return
            value = pending.pop().origin
            step = value.maker
            if step is None or self.structure.residuals.of(value) is not None:
                continue
            if step.norm is not None:
                if self._sum_behind(step.sources[0]) is None:
                    self._place(step.norm, self._at_start(step, stream), stream, 0)
            elif step.role in {Role.LEARNED, Role.SUM} or step.op == "Concat":
                pending.extend(step.sources)

    def _at_start(self, step: Step, stream: int) -> Place:
        """Tell the norm of an embedding from that of a step between two stages.

        A first layer may work on queries that are written in the file: then no data is in it.
        """
        if step.sources[0].level is Level.KNOWN and _sums_products(step.norm):
            word = self.word(self.structure.chains[stream][0])
            return word if word in {Place.POST, Place.DEEPNORM} else Place.EMBEDDING
        maker = step.sources[0].origin.maker
        if maker is None or maker.role is not Role.LEARNED:
            return Place.EMBEDDING
        if self._sum_behind(maker.sources[0]) is None:
            return Place.EMBEDDING
        at_ends = self.word(self.structure.chains[stream][0]) is Place.RES_POST
        return Place.RES_POST if at_ends else Place.NONE


def follows(step: Step) -> str | None:
    """Give the operator in front of a norm, layout and constants apart."""
    maker = step.sources[0].origin.maker
    if maker is None:
        return None
    if maker.norm is not None:
        return maker.norm.op_type or maker.norm.kind.value
    return "Add" if maker.role is Role.SUM else maker.op


def _links(add: Residual) -> list[Step]:
    return [step for other in add.after for step in other.link if step.role is Role.NORM]


def _sums_products(norm: Normalization | None) -> bool:
    """Whether a norm reads a sum with the output of a linear layer, biases and layout between."""
    node = None if norm is None else norm.x.producer
    if node is None or node.op != "Add":
        return False
    pending = [tensor.producer for tensor in node.inputs]
    for _ in range(_FAR):
        if not pending:
            return False
        source = pending.pop()
        if source is None:
            continue
        if source.op in ops.PRODUCTS:
            return True
        if source.op in ops.CARRIES_FIRST or source.op == "Add":
            pending.extend(tensor.producer for tensor in source.inputs)
    return False


def _norms_at(value: Value) -> Iterator[Normalization]:
    """Give the norms that queries or keys come from, past rotations and a cache they join."""
    pending = [value]
    for _ in range(_FAR):
        if not pending:
            return
        step = pending.pop().origin.maker
        if step is None:
            continue
        if step.norm is not None:
            yield step.norm
        elif step.role is Role.SUM or step.op in ops.ROTATES:
            pending.extend(step.sources)


def _merges(value: Value) -> bool:
    """Whether patches are joined on the way: the step to the next, coarser stage."""
    for _ in range(_FAR):
        step = value.maker
        if step is None or step.role is not Role.PASS:
            return False
        if step.op == "Concat" and len(step.sources) > 1:
            return True
        value = step.sources[0]
    return False
