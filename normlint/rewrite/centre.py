"""From streams that can be centred to the edits that centre them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from normlint.context.zero_mean_sources import Centred, can_be_dropped
from normlint.context.zero_mean_steps import Step
from normlint.context.zero_mean_writers import Scaled
from normlint.deferred import dataclass
from normlint.normalization import Normalization
from normlint.rewrite.centre_constants import (
    Change,
    Constant,
    added_scaled,
    added_without_mean,
    centred,
    scaled_by,
    without_mean,
)
from normlint.rewrite.centre_nodes import reduce_mean
from normlint.rule import NewNode, Redirect, Replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.centring import Component
    from normlint.context.constants import Constants
    from normlint.context.zero_mean_sites import Site
    from normlint.context.zero_mean_sources import Source
    from normlint.graph import Node, Tensor
    from normlint.rule import Computed, Edit, Operand

_BIASED = frozenset(("Gemm", "Conv", "ConvTranspose"))
_BIAS = 2
"""The input by which these add a bias."""


@dataclass(frozen=True, eq=False)
class Form:
    """An operator that takes a node's place, with some of the node's inputs, and its outputs."""

    op: str
    places: tuple[int | None, ...]
    """Positions of the inputs that it keeps; None for one that it goes without."""
    bias: Operand = None
    """What an Add behind it adds to the first output; None for no Add."""


@dataclass(eq=False)
class Edits:
    """Edits of constants and operands, gathered node by node and made at the end.

    One node may be a writer of a stream and a reader of a norm whose bias moves into it.
    """

    constants: Constants
    opset: int
    """The opset that new nodes are of."""
    touched: dict[Node, None] = field(default_factory=dict)
    """Every node whose output changes."""
    changed: dict[Tensor, None] = field(default_factory=dict)
    """Every tensor that is centred: their readers are not all touched."""
    witnesses: dict[Node, None] = field(default_factory=dict)
    """Nodes that stay, and show that other tensors have mean zero."""
    centred_axes: dict[Tensor, tuple[int, ...]] = field(default_factory=dict)
    """The axes over which the mean of each of these is taken away."""
    _changes: dict[tuple[Node, int], list[Change]] = field(default_factory=dict)
    _absent: dict[Node, tuple[Change, ...]] = field(default_factory=dict)
    """Writers without a bias, and what becomes of one that a norm's moves into."""
    _last_changed: dict[Node, int] = field(default_factory=dict)
    _operands: dict[tuple[Node, int], Operand] = field(default_factory=dict)
    _dropped: dict[Tensor, Tensor] = field(default_factory=dict)
    _norms: dict[Tensor, NewNode] = field(default_factory=dict)
    _forms: dict[Node, Form] = field(default_factory=dict)
    _explicit: dict[Tensor, NewNode] = field(default_factory=dict)
    _computed: dict[tuple[object, ...], Computed] = field(default_factory=dict)
    centred_biases: dict[Normalization, Site] = field(default_factory=dict)
    """LayerNorms that write a stream: of their bias the mean is subtracted."""

    def centre(self, component: Component, sources: dict[Site, Source]) -> None:
        """Centre every tensor of a component."""
        self.witnesses.update(dict.fromkeys(component.witnesses))
        for at in component.sites:
            source = sources[at]
            if isinstance(source, Centred):
                continue
            if _is_visible(at.tensor):
                self.changed.setdefault(at.tensor)
                self.centred_axes[at.tensor] = tuple(axis - len(at.shape) for axis in at.axes)
            if isinstance(source, Step):
                self._centre_step(source, at, frozenset(component.explicit))
            elif isinstance(source, Scaled):
                self._centre_scaled(source, at)
            elif isinstance(source, Normalization):
                self.centred_biases[source] = at
                self.touched.update(dict.fromkeys(source.nodes))

    def _centre_step(self, how: Step, at: Site, explicit: frozenset[Site]) -> None:
        node = how.node
        self.touched.setdefault(node)
        if how.shifts and can_be_dropped(how, at):
            self._drop_shift(how, at, explicit)
            return
        if node.op in _BIASED and node.input(_BIAS) is None:
            self._absent[node] = added_without_mean(node, at)
        for place in how.shifts:
            self.change(node, place, without_mean(at))
        for place, operand in how.full:
            if self.constants.is_constant(operand.tensor):
                self.change(node, place, centred(operand))
            elif operand in explicit:
                self._operands[node, place] = self.explicit(operand)

    def _drop_shift(self, how: Step, at: Site, explicit: frozenset[Site]) -> None:
        """Leave out what is added to all channels alike, and the node that adds it."""
        place, operand = how.full[0]
        if operand in explicit:
            self.replace(at.tensor, NewNode("Identity", (self.explicit(operand),)), (how.node,))
        elif self.constants.is_constant(operand.tensor):
            values = self._constant(operand.tensor, [centred(operand)])
            self.replace(at.tensor, NewNode("Identity", (values,)), (how.node,))
        else:
            self._dropped[at.tensor] = how.node.inputs[place]

    def _centre_scaled(self, source: Scaled, at: Site) -> None:
        inverse = source.node.op == "Div"
        for how in source.steps:
            self.touched.setdefault(how.node)
            if how.node.op in _BIASED and how.node.input(_BIAS) is None:
                scaled = added_scaled(source.factor, self.constants, inverse=inverse)
                self._absent[how.node] = scaled
            for place, operand in how.full:
                if self.constants.is_constant(operand.tensor):
                    change = scaled_by(source.factor, operand, self.constants, inverse=inverse)
                    self.change(how.node, place, change)
                    self.change(how.node, place, centred(operand))
        self.touched.setdefault(source.node)
        self._dropped[at.tensor] = source.source.tensor

    def change(self, node: Node, place: int, change: Change) -> None:
        """Change the values of a constant that a node reads, for this node only."""
        known = self._changes.setdefault((node, place), [])
        self._last_changed[node] = max(place, self._last_changed.get(node, -1))
        if all(other.key != change.key for other in known):
            known.append(change)

    def replace(self, y: Tensor, by: NewNode, nodes: Iterable[Node]) -> None:
        """Have a tensor computed by a new node in place of some."""
        self._norms[y] = by
        self.touched.update(dict.fromkeys(nodes))

    def reform(self, node: Node, form: Form) -> None:
        """Have another operator compute what a node does, from inputs that may change as well."""
        self._forms[node] = form
        self.touched.setdefault(node)

    def drop(self, tensor: Tensor, to: Tensor) -> None:
        """Have the readers of a tensor read another one."""
        self._dropped[tensor] = to
        if tensor.producer is not None:
            self.touched.setdefault(tensor.producer)

    def operand(self, tensor: Tensor) -> Tensor:
        """Give the tensor that is read in place of one that may be dropped."""
        while tensor in self._dropped:
            tensor = self._dropped[tensor]
        return tensor

    def explicit(self, at: Site) -> NewNode:
        """Give the node that subtracts a tensor's mean; one for all that read it."""
        if at.tensor not in self._explicit:
            like = at.tensor.producer
            axes = [axis - len(at.shape) for axis in at.axes]
            mean = reduce_mean(at.tensor, axes, self.opset, like)
            self._explicit[at.tensor] = NewNode("Sub", (at.tensor, mean), like=like)
        return self._explicit[at.tensor]

    def edits(self) -> tuple[Edit, ...]:
        """Give the edits."""
        nodes = dict.fromkeys(node for node, _ in (*self._changes, *self._operands))
        made: list[Edit] = [self._edited(node) for node in nodes if node not in self._forms]
        for node, form in self._forms.items():
            made.extend(self._reformed(node, form))
        made.extend(Replace((y,), by) for y, by in self._norms.items())
        made.extend(Redirect(gone, self.operand(gone)) for gone in self._dropped)
        return tuple(made)

    def _edited(self, node: Node) -> Replace:
        inputs = tuple(self._input(node, place) for place in range(self._width(node)))
        by = NewNode(
            node.op,
            inputs,
            dict(node.attrs),
            like=node,
            domain=node.domain or "",
            outputs=len(node.outputs),
        )
        return Replace(tuple(t if t.name else None for t in node.outputs), by)

    def _reformed(self, node: Node, form: Form) -> list[Edit]:
        inputs = [None if k is None else self._input(node, k) for k in form.places]
        while inputs[-1] is None:
            inputs.pop()
        by = NewNode(
            form.op,
            tuple(inputs),
            dict(node.attrs),
            like=node,
            domain=node.domain or "",
            outputs=len(node.outputs),
        )
        tensors = tuple(t if t.name else None for t in node.outputs)
        if form.bias is None:
            return [Replace(tensors, by)]
        behind = Replace((node.y,), NewNode("Add", (by, form.bias), like=node))
        rest = (None, *tensors[1:])
        return [behind] if all(t is None for t in rest) else [Replace(rest, by), behind]

    def _width(self, node: Node) -> int:
        return max(len(node.inputs), self._last_changed.get(node, -1) + 1)

    def _input(self, node: Node, place: int) -> Operand:
        if (node, place) in self._operands:
            return self._operands[node, place]
        tensor = node.input(place)
        changes = self._changes.get((node, place))
        if changes and tensor is None and node in self._absent:
            changes = [*changes, *self._absent[node]]
        if changes:
            return self._constant(tensor, changes)
        return None if tensor is None else self.operand(tensor)

    def _constant(self, tensor: Tensor | None, changes: list[Change]) -> Computed:
        ordered = sorted(changes, key=lambda change: change.phase)
        key = (tensor, *(change.key for change in ordered))
        if key not in self._computed:
            self._computed[key] = Constant(tensor, self.constants, tuple(ordered)).computed()
        return self._computed[key]


def _is_visible(tensor: Tensor) -> bool:
    """Whether a tensor stands in the graph: the sum of a skip norm may not."""
    node = tensor.producer
    return node is None or tensor in node.outputs


def extra_bytes(component: Component, sources: dict[Site, Source], constants: Constants) -> int:
    """Count the bytes of the constants that are copied because others read them as well."""
    copied: dict[Tensor, None] = {}
    for at in component.sites:
        source = sources[at]
        if isinstance(source, Step):
            for _, operand in source.full:
                tensor = operand.tensor
                if constants.is_constant(tensor) and _has_other_readers(tensor, source.node):
                    copied.setdefault(tensor)
    return sum(_bytes(tensor) for tensor in copied)


def _has_other_readers(tensor: Tensor, node: Node) -> bool:
    return any(reader is not node for reader in tensor.consumers)


def _bytes(tensor: Tensor) -> int:
    import onnx

    itemsize = onnx.helper.tensor_dtype_to_np_dtype(tensor.dtype).itemsize
    return int(np.prod([e for e in tensor.shape or () if isinstance(e, int)])) * itemsize
