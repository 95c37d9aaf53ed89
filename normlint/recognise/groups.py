"""Group normalisations: the channels reshaped into groups, normalised, and reshaped back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.normalization import Form, Kind, Parameter
from normlint.recognise.channels import (
    Channels,
    Reshaped,
    Step,
    Tail,
    downstream,
    farther,
    reshaped_around,
)
from normlint.recognise.extents import brings_back, extents_of, reshaped
from normlint.recognise.fused import quantized
from normlint.recognise.group_split import GroupSplit, group_split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node
    from normlint.normalization import Normalization

    Array = np.ndarray[Any, Any]

_INNER = frozenset((None, "InstanceNormalization", "LayerNormalization"))
"""Operators that may normalise the groups; None where they are spelled out."""
_FAR = 64


def group_norms(
    graph: Graph,  # noqa: ARG001 - all recognisers are called alike
    constants: Constants,
    norms: list[Normalization],
) -> list[Normalization]:
    """Replace the normalisations of channels in groups by one GroupNorm each, with its affine.

    An InstanceNormalization without an affine of its own takes the one behind it as well.
    """
    return [
        _grouped(norm, constants)
        or _of_rows(norm, constants)
        or _with_affine(norm, constants)
        or norm
        for norm in norms
    ]


def _grouped(norm: Normalization, constants: Constants) -> Normalization | None:
    around = reshaped_around(norm) if _may_be_of_groups(norm) else None
    inner = _plain(norm)
    while around is not None and inner is not None:
        split = group_split(inner, around, constants)
        if split is not None and brings_back(around.after, around.x, constants):
            tail = _tail(around, split, constants)
            if not split.of_rows or any(s and s.size > 1 for s in (tail.scale, tail.bias)):
                return _fact(inner, around, split, tail, constants)
        elif split is not None and _keeps_channels(inner, around.after, split, constants):
            return _fact(inner, around, split, Tail(around.after.y), constants)
        around = farther(around)
    return None


def _keeps_channels(
    norm: Normalization, after: Node, split: GroupSplit, constants: Constants
) -> bool:
    """Whether the groups become channels again while the axes in front of these become rows.

    So optimisers leave it where a product follows. The affine must tell groups from heads.
    """
    made = reshaped(after, constants)
    apart = split.last and (norm.has_scale or norm.has_bias)
    return apart and made is not None and len(made) == 2 and made[-1] == split.channels


def _tail(around: Reshaped, split: GroupSplit, constants: Constants) -> Tail:
    """Find scale and bias behind the groups, also where the axes after C are one meanwhile."""
    along = Channels(constants, around.x.rank, split.channels, split.last)
    tail = along.affine_after(around.after.y)
    if tail.nodes or split.last:
        return tail
    passed, flat = downstream(tail.y)
    made = None if flat is None or flat.op != "Reshape" else reshaped(flat, constants)
    given = extents_of(around.x, constants)
    if flat is None or made is None or given is None or len(made) != 3 or made[:2] != given[:2]:
        return tail
    inner = Channels(constants, len(made), split.channels).affine_after(flat.y)
    between, back = downstream(inner.y)
    if back is None or back.op != "Reshape" or not brings_back(back, around.x, constants):
        return tail
    nodes = (*passed, flat, *inner.nodes, *between, back)
    return replace(inner, y=back.y, nodes=nodes)


def _may_be_of_groups(norm: Normalization) -> bool:
    if not norm.centred or norm.clipped or norm.permutation is not None or norm.groups is not None:
        return False
    return norm.kind in {Kind.INSTANCE, Kind.LAYER, Kind.OTHER} and norm.op_type in _INNER


def _plain(norm: Normalization) -> Normalization | None:
    """Give a LayerNormalization that has no affine as if it were spelled out; None with one."""
    if norm.op_type != "LayerNormalization":
        return norm
    if norm.has_scale or norm.has_bias:
        return None
    return replace(norm, form=Form.DECOMPOSED, op_type=None, scale=None, bias=None)


def _of_rows(norm: Normalization, constants: Constants) -> Normalization | None:
    """Read [rows, G, C/G] made to [rows, C] behind an InstanceNormalization, with its affine.

    How the rows were made does not matter: the affine tells groups from channels.
    """
    around = reshaped_around(norm)
    if around is None or norm.op_type != "InstanceNormalization" or norm.has_scale or norm.has_bias:
        return None
    made, joined = around.made(constants), reshaped(around.after, constants)
    if made is None or joined is None or len(made) != 3 or len(joined) != 2:
        return None
    groups, size, channels = made[1], made[2], joined[1]
    if not isinstance(groups, int) or not isinstance(size, int) or groups * size != channels:
        return None
    tail = Channels(constants, len(joined), groups * size).affine_after(around.after.y)
    if not any(step is not None and step.size > 1 for step in (tail.scale, tail.bias)):
        return None
    combined = _Combined(norm, tail, GroupSplit(groups, groups * size), len(joined))
    return replace(
        norm,
        kind=Kind.GROUP,
        form=Form.DECOMPOSED,
        nodes=in_order([*norm.nodes, *around.between, around.after, *tail.nodes]),
        y=tail.y,
        axes=(-2, -1),
        scale=combined.scale(),
        bias=combined.bias(),
        op_type=None,
        groups=groups,
        quantized=quantized(norm.x, tail.y),
        steps={"normalised": norm.anchor, "join": around.after},
    )


def _with_affine(norm: Normalization, constants: Constants) -> Normalization | None:
    """Read InstanceNormalization with ones and zeros, then a scale and a bias for each channel."""
    if norm.op_type != "InstanceNormalization" or norm.x.rank is None:
        return None
    extent = norm.x.shape[1] if norm.x.shape is not None and norm.x.rank > 1 else None
    channels = extent if isinstance(extent, int) else None
    tail = Channels(constants, norm.x.rank, channels).affine_after(norm.y)
    if not tail.nodes or norm.has_scale or norm.has_bias:
        return None
    combined = _Combined(norm, tail, GroupSplit(1, channels), norm.x.rank)
    return replace(
        norm,
        form=Form.DECOMPOSED,
        nodes=in_order([*norm.nodes, *tail.nodes]),
        y=tail.y,
        scale=combined.scale(),
        bias=combined.bias(),
        op_type=None,
        quantized=quantized(norm.x, tail.y),
        steps={"normalised": norm.anchor},
    )


def _fact(
    norm: Normalization,
    around: Reshaped,
    split: GroupSplit,
    tail: Tail,
    constants: Constants,
) -> Normalization:
    x = around.x
    reshapes = [*around.reshapes, *(node for node in tail.nodes if node.op == "Reshape")]
    nodes = in_order(
        [
            *around.reshapes,
            *around.between,
            *norm.nodes,
            *tail.nodes,
            *(node for reshape in reshapes for node in of_shape(reshape, constants)),
        ]
    )
    combined = _Combined(norm, tail, split, x.rank)
    inside = any(node.op == "QuantizeLinear" for node in nodes)
    return replace(
        norm,
        kind=Kind.GROUP,
        form=Form.DECOMPOSED,
        nodes=nodes,
        x=x,
        y=tail.y,
        axes=None if x.rank is None else tuple(range(1 - x.rank, 0)),
        scale=combined.scale(),
        bias=combined.bias(),
        op_type=None,
        groups=split.groups,
        channels_last=split.last,
        dtype=x.dtype or norm.dtype,
        quantized="inside" if inside else quantized(x, tail.y),
        steps={**norm.steps, "split": around.before, "join": around.after},
        constant=constants.is_constant(x),
    )


def in_order(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Sort nodes of one graph as they stand in it, each once."""
    return tuple(sorted(dict.fromkeys(nodes), key=lambda node: node.order))


def of_shape(node: Node, constants: Constants) -> Iterable[Node]:
    """Give the nodes that compute the extents of a Reshape from those of other tensors."""
    seen: set[Node] = set()
    pending = [tensor for tensor in node.inputs[1:] if tensor.name]
    while pending and len(seen) < _FAR:
        tensor = pending.pop()
        producer = tensor.producer
        if producer is None or producer in seen or constants.is_constant(tensor):
            continue
        if producer.graph is not node.graph:
            continue
        seen.add(producer)
        yield producer
        if producer.op not in {"Shape", "Size"}:
            pending.extend(source for source in producer.inputs if source.name)


@dataclass(frozen=True)
class _Combined:
    """The affine inside of the groups and the one behind them, as one."""

    norm: Normalization
    tail: Tail
    split: GroupSplit
    rank: int | None

    def scale(self) -> Parameter | None:
        """Give the product of both scales."""
        inner = self.norm.scale if self.norm.has_scale else None

        def compute() -> Array:
            return self._vector(inner, 1.0) * _values(self.tail.scale, 1.0)

        return self._parameter(inner, self.tail.scale, compute, [self.tail.scale])

    def bias(self) -> Parameter | None:
        """Give the inner bias, scaled, and the outer one."""
        inner = self.norm.bias if self.norm.has_bias else None

        def compute() -> Array:
            scaled = self._vector(inner, 0.0) * _values(self.tail.scale, 1.0)
            return scaled + _values(self.tail.bias, 0.0)

        used = [self.tail.bias, self.tail.scale if inner is not None else None]
        return self._parameter(inner, self.tail.bias, compute, used)

    @property
    def _channels(self) -> int:
        """Number of channels; where that is not known, of the values that there are."""
        sizes = [step.size for step in (self.tail.scale, self.tail.bias) if step is not None]
        return self.split.channels or max(sizes, default=self.split.groups)

    def _vector(self, parameter: Parameter | None, default: float) -> Array:
        """Give a parameter of the groups with one value for each channel, or one for all."""
        if parameter is None or parameter.compute is None:
            return np.asarray([default], np.float64)
        values = parameter.compute().reshape(-1)
        return values if values.size == 1 else np.repeat(values, self._channels // values.size)

    def _parameter(
        self,
        inner: Parameter | None,
        outer: Step | None,
        compute: Callable[[], Array],
        used: Iterable[Step | None],
    ) -> Parameter | None:
        tensors = () if inner is None else inner.tensors
        if outer is not None:
            tensors = (*tensors, outer.operand)
        if not tensors:
            return None
        shape: tuple[int, ...] = (self._channels,)
        if self.rank is not None:
            after = 0 if self.split.last else self.rank - 2
            shape = (*(1,) * (self.rank - 1 - after), *shape, *(1,) * after)

        def aligned() -> Array:
            return np.broadcast_to(compute(), (self._channels,)).reshape(shape)

        plain = inner is None and outer is not None and outer.is_plain
        constant = inner is None or inner.is_constant
        return Parameter(
            None if self.rank is None else shape,
            tensors,
            aligned if constant and all(s is None or s.is_constant for s in used) else None,
            tensors[0] if plain else None,
        )


def _values(step: Step | None, default: float) -> Array:
    return np.asarray([default], np.float64) if step is None else step.values()
