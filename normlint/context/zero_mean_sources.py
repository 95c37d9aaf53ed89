"""What produces a tensor, as far as the mean over its channels goes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from normlint.context.zero_mean_sites import Site, same_extents
from normlint.context.zero_mean_steps import Step, step
from normlint.context.zero_mean_writers import (
    Scaled,
    can_be_edited,
    is_zero_mean,
    scaled,
    uniform,
    writes_zero_mean,
)
from normlint.deferred import dataclass
from normlint.model import ValuesUnavailable
from normlint.normalization import Kind, Normalization
from normlint.rule import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.constants import Constants
    from normlint.context.zero_mean_readers import Readers
    from normlint.graph import Node, Tensor

_SMALL_SHIFT = 1 << 16
_LAYOUT = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose"))
_DROPPABLE = frozenset(("Add", "Sub", "Sum"))


@dataclass(frozen=True, eq=False)
class Centred:
    """A Sub that takes from a tensor its own mean: its output has mean zero already."""

    node: Node


@dataclass(frozen=True, eq=False)
class Unfit:
    """Nothing that can be made to write a tensor of mean zero, and why not."""

    reason: Reason
    at: Node | Tensor
    detail: str


Source: TypeAlias = "Step | Scaled | Normalization | Centred | Unfit"


class Sources:
    """Reads the producers of sites."""

    def __init__(
        self, norms: tuple[Normalization, ...], readers: Readers, constants: Constants
    ) -> None:
        self._readers = readers
        self._constants = constants
        self._norms = {norm.y: norm for norm in norms}
        self._known: dict[Site, Source] = {}
        self._not_zero: set[Site] = set()

    def of(self, at: Site) -> Source:
        """Tell what produces a tensor that is no constant."""
        if at not in self._known:
            self._known[at] = self._read(at)
        return self._known[at]

    def _read(self, at: Site) -> Source:
        node = at.tensor.producer
        if node is None:
            return Unfit(Reason.NOT_ZERO_MEAN, at.tensor, f"{at.tensor.name} is an input")
        if node.op == "Sub" and self._readers.centres(node, node.inputs[0], at):
            return Centred(node)
        norm = self._norms.get(at.tensor)
        if norm is not None and norm.kind in {Kind.LAYER, Kind.RMS}:
            return self._normalised(norm, at)
        how = step(node, at, self._constants)
        if how is not None:
            return self._usable(how, at)
        factor = scaled(node, at, self._constants)
        return _unfit(node, at) if factor is None else factor

    def constant_mean(self, at: Site) -> Normalization | None:
        """Give the LayerNorm of uniform scale whose result it is, moved about at most.

        Its mean is that of the LayerNorm's bias, whatever the input.
        """
        source = self.of(at)
        while isinstance(source, Step) and source.node.op in _LAYOUT and len(source.full) == 1:
            at = source.full[0][1]
            if self._constants.is_constant(at.tensor):
                return None
            source = self.of(at)
        return source if isinstance(source, Normalization) else None

    def _usable(self, how: Step, at: Site) -> Source:
        for _, operand in how.full:
            tensor = operand.tensor
            if self._constants.is_constant(tensor) and not can_be_edited(tensor, self._constants):
                detail = f"the weights of {how.node.op} are quantised, or of unknown shape"
                return Unfit(Reason.WRITER_NOT_LINEAR, how.node, detail)
        if not self._is_kept(how):
            return Unfit(Reason.NOT_ZERO_MEAN, how.node, "an RMSNorm reads the same sum")
        for place in how.shifts:
            if not self._vanishes(how, place, at):
                detail = f"what {how.node.op} adds to all channels cannot be left out"
                return Unfit(Reason.BROADCAST, how.node, detail)
        return how

    def _is_kept(self, how: Step) -> bool:
        """Whether nothing is to be changed that an RMSNorm of the sum reads as well."""
        constants = [at for _, at in how.full if self._constants.is_constant(at.tensor)]
        return how.node.op != "SkipSimplifiedLayerNormalization" or self._are_zero(constants)

    def _vanishes(self, how: Step, place: int, at: Site) -> bool:
        """Whether a summand that is the same for all channels can be left out, or be zero."""
        tensor = how.node.inputs[place]
        if self._constants.is_constant(tensor):
            values = self._constants.known(tensor, _SMALL_SHIFT)
            return values is not None and bool(np.isfinite(values.astype(np.float64)).all())
        return can_be_dropped(how, at)

    def _normalised(self, norm: Normalization, at: Site) -> Source:
        if norm.kind is Kind.LAYER and norm.centred and _same_axes(norm, at):
            if writes_zero_mean(norm, self._constants):
                return norm
            detail = "the scale of a LayerNorm that writes it is not uniform"
            return Unfit(Reason.NOT_ZERO_MEAN, norm.anchor, detail)
        detail = f"{norm.kind} writes it"
        return Unfit(Reason.NOT_ZERO_MEAN, norm.anchor, detail)

    def is_zero_mean(self, at: Site) -> bool:
        """Whether a tensor's mean over its channels is zero as the model stands.

        Small constants are looked at first, so that the large ones are rarely read.
        """
        found = self._constants_behind([at])
        if found is None or not self._are_zero(found):
            self._not_zero.add(at)
            return False
        return True

    def witnesses(self, sites: Iterable[Site]) -> list[Node]:
        """Give the nodes from which it follows that tensors have mean zero as the model stands."""
        found: dict[Node, None] = {}
        pending = list(sites)
        seen = set(pending)
        while pending:
            current = pending.pop()
            node = current.tensor.producer
            if node is None or self._constants.is_constant(current.tensor):
                continue
            norm = self._norms.get(current.tensor)
            found.update(dict.fromkeys(norm.nodes if norm is not None else (node,)))
            if isinstance(self.of(current), Centred):
                mean = node.inputs[1].producer
                found.update({mean: None} if mean is not None else {})
            fresh = [other for other in self._needed(current) or () if other not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return list(found)

    def are_zero_mean(self, sites: Iterable[Site]) -> bool:
        """Whether all these tensors have mean zero as the model stands."""
        found = self._constants_behind(sites)
        return found is not None and self._are_zero(found)

    def _constants_behind(self, sites: Iterable[Site]) -> list[Site] | None:
        """Give the constants that must have mean zero; None where that would not be enough."""
        constants: list[Site] = []
        pending = list(sites)
        seen = set(pending)
        while pending:
            current = pending.pop()
            if self._constants.is_constant(current.tensor):
                constants.append(current)
                continue
            operands = self._needed(current) if current not in self._not_zero else None
            if operands is None:
                return None
            fresh = [operand for operand in operands if operand not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return constants

    def _are_zero(self, constants: list[Site]) -> bool:
        constants.sort(key=_size)
        return all(self._is_zero(constant) for constant in constants)

    def _needed(self, at: Site) -> list[Site] | None:
        """Give the tensors whose means decide whether that of a tensor is zero; None for never."""
        source = self.of(at)
        if isinstance(source, Centred):
            return []
        if isinstance(source, Step):
            if any(not self._is_nothing(source.node.inputs[place]) for place in source.shifts):
                return None
            return [operand for _, operand in source.full]
        if isinstance(source, Normalization):
            return [] if source.bias is None or self._has_zero_mean_bias(source, at) else None
        norm = self._norms.get(at.tensor)
        return [Site(norm.x, at.first, at.last)] if norm is not None and _scales(norm, at) else None

    def _is_nothing(self, tensor: Tensor) -> bool:
        return self._constants.uniform(tensor) == 0

    def _has_zero_mean_bias(self, norm: Normalization, at: Site) -> bool:
        assert norm.bias is not None  # noqa: S101 - the caller looked
        try:
            values = norm.bias.compute() if norm.bias.compute is not None else None
        except ValuesUnavailable:
            return False
        if values is None or values.ndim <= at.last:
            return False
        return is_zero_mean(values.astype(np.float32), at.axes)

    def _is_zero(self, at: Site) -> bool:
        try:
            return is_zero_mean(self._constants.values(at.tensor), at.axes)
        except ValuesUnavailable:
            return False


def _scales(norm: Normalization, at: Site) -> bool:
    """Whether a norm multiplies all channels of x by the same number, which depends on x."""
    rank = len(at.shape)
    if norm.axes is None or not set(at.axes) <= {axis % rank for axis in norm.axes}:
        return False
    plain = norm.kind is Kind.RMS and norm.bias is None and norm.x.shape == norm.y.shape
    return plain and uniform(norm.scale)


def _size(at: Site) -> int:
    return prod(extent for extent in at.shape if isinstance(extent, int))


def can_be_dropped(how: Step, at: Site) -> bool:
    """Whether the node may be left out with all that it adds to all channels alike."""
    if how.node.op not in _DROPPABLE or len(how.full) != 1 or len(how.node.inputs) != 2:
        return False
    place, operand = how.full[0]
    return (how.node.op != "Sub" or place == 0) and same_extents(operand.shape, at.shape)


def _same_axes(norm: Normalization, at: Site) -> bool:
    from normlint.context.zero_mean_readers import norm_site

    found = norm_site(norm)
    return found is not None and (found.first, found.last) == (at.first, at.last)


def _unfit(node: Node, at: Site) -> Unfit:
    if node.op in {"Conv", "ConvTranspose"}:
        groups = node.attrs.get("group", 1)
        return Unfit(Reason.WRITER_NOT_LINEAR, node, f"a {node.op} of {groups} groups writes it")
    if node.op == "Concat":
        return Unfit(Reason.WRITER_NOT_LINEAR, node, "a Concat along the channels writes it")
    detail = f"{node.op} writes it"
    if node.op in {"Reshape", "Transpose"}:
        detail = f"{node.op} does not keep the channels of {at.tensor.name} together"
    return Unfit(Reason.WRITER_NOT_LINEAR, node, detail)
