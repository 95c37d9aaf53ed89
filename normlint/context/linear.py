"""How values per channel get across operators that change layout only, or nearly so.

What is scaled and shifted per channel on one side of such an operator can be scaled and shifted on
its other side instead. Only axes tell which one the channels are: extents that are equal prove
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from normlint.deferred import dataclass
from normlint.rule import NotFixed, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor

    Array = np.ndarray[Any, Any]
    Handler = Callable[["Way"], "list[Passage]"]

_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))
_FUSED = frozenset(("FusedConv", "FusedMatMul", "FusedGemm"))
LINEAR = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul")) | _FUSED | _RECURRENT
"""Operators that have weights for a scale and a shift to go into."""
INTEGER_LINEAR = frozenset(
    ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm")
)
_RECTIFIERS = frozenset(("Relu", "LeakyRelu", "PRelu", "ThresholdedRelu", "Elu", "Selu", "Celu"))
_SQUASHERS = frozenset(("Sigmoid", "HardSigmoid", "Tanh", "Softplus", "Softsign", "Clip", "Erf"))
_GATED = frozenset(("HardSwish", "Mish", "Gelu", "FastGelu", "QuickGelu", "Swish", "BiasGelu"))
_SOFT = frozenset(("Softmax", "LogSoftmax", "Hardmax", "Shrink"))
ACTIVATIONS = _RECTIFIERS | _SQUASHERS | _GATED | _SOFT
_SHAPE_READERS = frozenset(("Shape", "Size"))
QUANTIZERS = frozenset(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))
_ARITHMETIC = frozenset(("Mul", "Add", "Sub", "Div", "BatchNormalization"))
_PASSABLE = ACTIVATIONS | QUANTIZERS | _ARITHMETIC
_GOALS = LINEAR | INTEGER_LINEAR
_NEAR = 8
_FAR = 24
"""Nodes to look at beyond an obstacle."""


class Blocked(Exception):  # noqa: N818 - it is an answer and no error
    """A scale and shift per channel cannot get across, with the reason."""

    def __init__(self, reason: Reason, at: Node | Tensor | None, detail: str) -> None:
        super().__init__(detail)
        self.not_fixed = NotFixed(reason, at, detail)


@dataclass(frozen=True, eq=False)
class Passage:
    """Where values per channel arrive behind an operator, and what it demands of them."""

    tensor: Tensor
    axis: int
    """Axis of `tensor`, counted from the front."""
    channels: Array | None = None
    """For each channel of `tensor` the one on the near side, -1 where there is none."""
    positive: bool = False
    """Whether every scale must be positive (maxima, the Relu family)."""
    no_shift: bool = False
    """Whether every shift must be zero."""
    pad: float | None = None
    """The constant that a Pad puts in, which must be made to fit."""


@dataclass(frozen=True, eq=False)
class Way:
    """A step across a node: from the tensor `near`, whose channels run along `axis`."""

    node: Node
    near: Tensor
    axis: int
    channels: int
    """Number of channels on the near side."""
    up: bool
    """Whether it goes from an output to the inputs."""
    constants: Constants

    @property
    def far(self) -> Tensor:
        """The tensor on the other side, where there is one only."""
        return self.node.inputs[0] if self.up else self.node.y

    def same(
        self, *, positive: bool = False, no_shift: bool = False, pad: float | None = None
    ) -> list[Passage]:
        """Pass with the same axis and channels."""
        return [Passage(self.far, self.axis, None, positive, no_shift, pad)]

    def to(self, axis: int, channels: Array | None = None) -> list[Passage]:
        """Pass to another axis."""
        return [Passage(self.far, axis, channels)]

    def moved(self, detail: str) -> Blocked:
        """Refuse because the channels do not stay on one axis."""
        return Blocked(Reason.CHANNEL_AXIS_MOVED, self.node, detail)

    def unknown(self) -> Blocked:
        """Refuse because shapes are not known."""
        return Blocked(
            Reason.SHAPE_UNKNOWN, self.node, f"the shapes around {self.node.op} are not known"
        )


def upstream(
    node: Node, output: Tensor, axis: int, channels: int, constants: Constants
) -> list[Passage] | None:
    """Carry values per channel of an output across to the inputs that it is made of.

    None where the operator lets nothing pass. Raises Blocked where it would, but not along this
    axis.
    """
    return _across(Way(node, output, axis, channels, up=True, constants=constants))


def downstream(
    node: Node, source: Tensor, axis: int, channels: int, constants: Constants
) -> list[Passage] | None:
    """Carry values per channel of an input across to the outputs.

    None where the operator lets nothing pass. Raises Blocked where it would, but not along this
    axis.
    """
    return _across(Way(node, source, axis, channels, up=False, constants=constants))


def _across(way: Way) -> list[Passage] | None:
    from normlint.context.passages import PASSAGES

    node = way.node
    if node.op in QUANTIZERS:
        raise Blocked(Reason.QUANTIZED_BETWEEN, node, f"{node.op} stands between")
    handler = PASSAGES.get(node.op) if node.is_standard else None
    if handler is None:
        return None
    data = node.inputs if node.op == "Concat" else node.inputs[:1]
    if not any(t is way.near for t in (node.outputs if way.up else data)):
        return None
    return handler(way)


def shape_readers(tensor: Tensor) -> list[Node]:
    """Give the nodes of the same graph that read the extents or the type of a tensor only."""
    return [
        node
        for node in dict.fromkeys(tensor.consumers)
        if node.is_standard and node.graph is tensor.graph and _reads_no_value(node, tensor)
    ]


def _reads_no_value(node: Node, tensor: Tensor) -> bool:
    if node.op == "CastLike":
        return node.inputs[0] is not tensor
    return node.op in _SHAPE_READERS


def obstacle(node: Node, *, up: bool) -> NotFixed:
    """Say what it means that a node lets no scale and shift pass.

    An activation or quantisation is to blame only if a linear operator stands behind it.
    """
    behind = linear_beyond(node.inputs if up else node.outputs, up=up)
    activation = _activation(node, up=up)
    if behind is None:
        return NotFixed(
            Reason.NO_LINEAR_NEIGHBOUR,
            node,
            f"{node.op} {'computes its input' if up else 'reads its output'}, "
            "and no linear operator can be reached",
        )
    if node.op in INTEGER_LINEAR | QUANTIZERS:
        return NotFixed(Reason.QUANTIZED_BETWEEN, node, f"{node.op} stands between")
    if activation is not None:
        detail = f"{activation.op} stands between it and {behind.op}"
        return NotFixed(Reason.ACTIVATION_BETWEEN, activation, detail)
    if behind.op in INTEGER_LINEAR:
        detail = f"{node.op} stands between it and {behind.op}"
        return NotFixed(Reason.QUANTIZED_BETWEEN, node, detail)
    return NotFixed(
        Reason.NO_LINEAR_NEIGHBOUR, node, f"{node.op} stands between, through which it cannot go"
    )


def _activation(node: Node, *, up: bool) -> Node | None:
    """Give the activation that a node is, or is part of: x * sigmoid(x), x * (1 + erf(x)) / 2."""
    seen: set[Node] = set()
    pending = [node]
    while pending and len(seen) < _NEAR:
        current = pending.pop(0)
        if current in seen:
            continue
        if current.op in ACTIVATIONS:
            return current
        seen.add(current)
        if not _is_gate(current):
            continue
        if up:
            pending.extend(t.producer for t in current.inputs if t.producer is not None)
        else:
            pending.extend(reader for t in current.outputs for reader in t.consumers[:4])
    return None


def _is_gate(node: Node) -> bool:
    """Whether an activation that is spelled out may start or end with a node, or go through it."""
    return node.op in {"Mul", "Div"} or (
        node.op == "Add" and any(tensor.is_constant for tensor in node.inputs)
    )


def linear_beyond(tensors: Iterable[Tensor], *, up: bool) -> Node | None:
    """Search a linear operator in the neighbourhood, through whatever is in between."""
    from normlint.context.passages import PASSAGES

    pending = list(tensors)
    seen: set[Node] = set()
    while pending and len(seen) < _FAR:
        tensor = pending.pop(0)
        nodes = [tensor.producer] if up else tensor.consumers[:4]
        for node in nodes:
            if node is None or node in seen:
                continue
            seen.add(node)
            if node.op in _GOALS:
                return node
            if node.op in _PASSABLE or node.op in PASSAGES:
                pending.extend(node.inputs if up else node.outputs)
    return None
