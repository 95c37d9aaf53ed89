"""Group normalisations: the channels reshaped into groups, normalised, and reshaped back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.normalization import Form, Kind, Parameter
from normlint.recognise.channels import Channels, Reshaped, Step, Tail, reshaped_around
from normlint.recognise.extents import brings_back, extents_of, reshaped, source_of
from normlint.recognise.fused import quantized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node
    from normlint.normalization import Normalization
    from normlint.recognise.extents import Extent

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
    return [_grouped(norm, constants) or _with_affine(norm, constants) or norm for norm in norms]


def _grouped(norm: Normalization, constants: Constants) -> Normalization | None:
    around = reshaped_around(norm) if _may_be_of_groups(norm) else None
    if around is None:
        return None
    inner = _plain(norm)
    split = None if inner is None else _split(inner, around.before, constants)
    if inner is None or split is None or not brings_back(around.after, around.x, constants):
        return None
    along = Channels(constants, around.x.rank, split.channels, split.last)
    tail = along.affine_after(around.after.y)
    if split.of_rows and not any(step and step.size > 1 for step in (tail.scale, tail.bias)):
        return None
    return _fact(inner, around, split, tail, constants)


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


def _with_affine(norm: Normalization, constants: Constants) -> Normalization | None:
    """Read InstanceNormalization with ones and zeros, then a scale and a bias for each channel."""
    if norm.op_type != "InstanceNormalization" or norm.x.rank is None:
        return None
    extent = norm.x.shape[1] if norm.x.shape is not None and norm.x.rank > 1 else None
    channels = extent if isinstance(extent, int) else None
    tail = Channels(constants, norm.x.rank, channels).affine_after(norm.y)
    if not tail.nodes or norm.has_scale or norm.has_bias:
        return None
    combined = _Combined(norm, tail, _Split(1, channels), norm.x.rank)
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


@dataclass(frozen=True)
class _Split:
    groups: int
    channels: int | None
    last: bool = False
    of_rows: bool = False
    """Whether batch and groups are one axis: without an affine it may be a LayerNorm."""


def _split(norm: Normalization, before: Node, constants: Constants) -> _Split | None:
    """Find how a Reshape splits the channels of its input into groups that are normalised."""
    made = reshaped(before, constants)
    given = extents_of(before.inputs[0], constants)
    if made is None or len(made) < 2 or (given is not None and len(given) < 2):
        return None
    rank = len(made)
    if not norm.is_op and norm.axes == tuple(range(1 - rank, 0)):
        return _of_rows(norm, made, given)
    axes = tuple(range(2 - rank, 0)) if norm.is_op else norm.axes
    first = given[0] if given is not None else (source_of(before.inputs[0]), 0)
    if made[0] is None or made[0] != first:
        return _of_one_row(made, given) if norm.is_op else None
    if axes == tuple(range(2 - rank, 0)):
        return _leading(norm, made, given)
    return None if given is None or norm.is_op else _kept(norm, made, given)


def _leading(
    norm: Normalization, made: Sequence[Extent], given: Sequence[Extent] | None
) -> _Split | None:
    """Read [N, C, ...] made to [N, G, ...] and normalised over all that follows."""
    groups = made[1]
    channels = given[1] if given is not None and isinstance(given[1], int) else None
    if not isinstance(groups, int) or groups < 1 or (channels is not None and channels % groups):
        return None
    if norm.is_op:
        return _Split(groups, channels)
    kept = len(made) > 3 and isinstance(made[2], int) and made[2] * groups == channels
    if list(made) == list(given or ()) or not _varies_along(norm, {1, 2} if kept else {1}):
        return None
    return _Split(groups, channels)


def _of_rows(
    norm: Normalization, made: Sequence[Extent], given: Sequence[Extent] | None
) -> _Split | None:
    """Read [N, C, ...] made to [N * G, ...], where N is known, and normalised over all but rows."""
    if given is None or len(given) < 3 or norm.scale is not None or norm.bias is not None:
        return None
    split = _rows_to_groups(given[0], given[1], made[0])
    return None if split is None else replace(split, of_rows=True)


def _of_one_row(made: Sequence[Extent], given: Sequence[Extent] | None) -> _Split | None:
    """Read [N, C, ...] made to [1, N * G, ...], where N is known."""
    if given is None or made[0] != 1:
        return None
    return _rows_to_groups(given[0], given[1], made[1])


def _rows_to_groups(batch: Extent, channels: Extent, rows: Extent) -> _Split | None:
    if not isinstance(batch, int) or not isinstance(channels, int) or not isinstance(rows, int):
        return None
    if batch < 1 or rows < batch or rows % batch or channels % (rows // batch):
        return None
    return _Split(rows // batch, channels)


def _kept(norm: Normalization, made: Sequence[Extent], given: Sequence[Extent]) -> _Split | None:
    """Read [N, ..., C] made to [N, ..., G, C/G], or the same with C as axis 1."""
    rank = len(made)
    if rank != len(given) + 1:
        return None
    for axis, last in ((1, False), (rank - 2, True)):
        groups, size, channels = made[axis], made[axis + 1], given[axis]
        if norm.axes != tuple(a - rank for a in range(1, rank) if a != axis):
            continue
        if not isinstance(groups, int) or not isinstance(size, int) or groups * size != channels:
            continue
        if _varies_along(norm, {axis, axis + 1}):
            return _Split(groups, groups * size, last)
    return None


def _varies_along(norm: Normalization, axes: set[int]) -> bool:
    """Whether scale and bias are constants that vary along these axes only."""
    return all(
        parameter.compute is not None
        and parameter.shape is not None
        and {axis for axis, extent in enumerate(parameter.shape) if extent != 1} <= axes
        for parameter in (norm.scale, norm.bias)
        if parameter is not None
    )


def _fact(
    norm: Normalization,
    around: Reshaped,
    split: _Split,
    tail: Tail,
    constants: Constants,
) -> Normalization:
    x = around.x
    nodes = in_order(
        [
            around.before,
            around.after,
            *around.between,
            *norm.nodes,
            *tail.nodes,
            *of_shape(around.before, constants),
            *of_shape(around.after, constants),
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
    split: _Split
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
        return Parameter(
            None if self.rank is None else shape,
            tensors,
            aligned if all(s is None or s.is_constant for s in used) else None,
            tensors[0] if plain else None,
        )


def _values(step: Step | None, default: float) -> Array:
    return np.asarray([default], np.float64) if step is None else step.values()
