"""Which LayerNorms of a stream become RMSNorms, in what form, and why the others do not."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.context.centring import CENTRING, SAVED
from normlint.context.zero_mean_steps import Step
from normlint.context.zero_mean_writers import bias_place
from normlint.deferred import dataclass
from normlint.normalization import EMBED_LAYER_NORM, SKIP_LAYER_NORM
from normlint.rewrite.centre import Edits, Form, extra_bytes
from normlint.rewrite.centre_affine import Fold, bias_folds, mean_folds
from normlint.rewrite.centre_constants import centred
from normlint.rewrite.centre_nodes import RMSNorm, bias_operand, centred_bias, upright
from normlint.rewrite.centre_region import region, rounding, with_readers
from normlint.rewrite.demands import OPSETS, Impossible
from normlint.rule import Applicability, NotFixed, Reason, Rewrite

if TYPE_CHECKING:
    from normlint.context import Context
    from normlint.context.centring import Component, Stream
    from normlint.context.zero_mean_sites import Site
    from normlint.graph import Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Operand

_HALF = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))
_OPSET = OPSETS["RMSNormalization"]
_FUSED = OPSETS["LayerNormalization"]
_WITHOUT_OP = frozenset(("openvino", "qnn", "tflite", "coreml"))
"""Targets that cannot run RMSNormalization."""
_SKIP_INPUTS = (0, 1, 2, 4)
"""What a SkipLayerNormalization reads, without the bias of the norm."""
_FUSES = "onnxruntime"
"""The target that fuses the spelling of RMSNorm again."""


@dataclass(frozen=True, eq=False)
class Swap:
    """A LayerNorm that becomes an RMSNorm."""

    made: RMSNorm
    folds: tuple[Fold, ...] = ()
    """Where its bias goes; empty where it has none, or it is added by a node."""

    @property
    def norm(self) -> Normalization:
        """The LayerNorm."""
        return self.made.norm

    @property
    def opset(self) -> int:
        """The least opset that its nodes need; 0 where the model's own will do."""
        return _OPSET if self.made.is_op and not self.made.is_skip else 0


@dataclass(eq=False)
class Plan:
    """What is to be done with a stream."""

    swaps: list[Swap] = field(default_factory=list)
    left: dict[Normalization, NotFixed] = field(default_factory=dict)
    """LayerNorms that could be RMSNorms and stay, and why."""
    rewrite: Rewrite | None = None
    extra_bytes: int = 0
    """What the file grows by because weights are copied that others read as well."""
    explicit: int = 0
    """How many tensors have their mean subtracted by nodes."""


def plan(stream: Stream, context: Context) -> Plan:
    """Decide for each LayerNorm that can be an RMSNorm whether it becomes one, and how."""
    made = Plan()
    edits = Edits(context.constants, context.opset)
    explicit: dict[Tensor, Site] = {}
    free = frozenset(at.tensor for component in stream.components for at in component.sites)
    for component in stream.components:
        swaps = _swaps(component, context, made, free)
        if not swaps:
            continue
        made.swaps.extend(swaps)
        edits.centre(component, stream.sources)
        explicit.update((at.tensor, at) for at in component.explicit)
        made.extra_bytes += extra_bytes(component, stream.sources, context.constants)
    made.explicit = len(explicit)
    for swap in made.swaps:
        _swap(edits, swap, explicit)
    _centre_biases(edits, made)
    _compensate(edits, made, stream)
    if made.swaps:
        made.rewrite = _rewrite(made, edits, stream)
    return made


def _swaps(
    component: Component, context: Context, made: Plan, free: frozenset[Tensor]
) -> list[Swap]:
    """Give the swaps of a component that pay, if together they pay for its explicit centring."""
    chosen = []
    for norm in component.norms:
        decided = decide(norm, context, free)
        if isinstance(decided, Swap):
            chosen.append(decided)
        else:
            made.left[norm] = decided
    spelled = any(not swap.made.is_op for swap in chosen)
    halves = spelled and any(at.tensor.dtype in _HALF for at in component.explicit)
    if SAVED * len(chosen) > CENTRING * len(component.explicit) and not halves:
        return chosen
    detail = "to subtract the mean explicitly would cost more than it saves"
    if halves:  # what is spelled out with it is what NL501 takes away again
        detail = "its mean would have to be subtracted explicitly, in half precision"
    for swap in chosen:
        made.left[swap.norm] = NotFixed(Reason.NOT_ZERO_MEAN, component.explicit[0].tensor, detail)
    return []


def decide(
    norm: Normalization, context: Context, free: frozenset[Tensor] = frozenset()
) -> Swap | NotFixed:
    """Decide whether an RMSNorm in place of a LayerNorm of zero mean is allowed, and pays."""
    try:
        form = upright(norm)
    except Impossible as impossible:
        return impossible.reason
    if norm.op_type == EMBED_LAYER_NORM:
        detail = "EmbedLayerNormalization has no form without the mean"
        return NotFixed(Reason.TARGET, norm.anchor, detail)
    refusal = None if norm.op_type == SKIP_LAYER_NORM else _no_op(form, context)
    opset = max(context.opset, _OPSET) if refusal is None else context.opset
    made = RMSNorm(norm, refusal is None, opset)
    obstacle = made.obstacle()
    if obstacle is not None:
        return obstacle
    folds = [] if norm.bias is None else bias_folds(form, context.constants, free)
    unfolded = folds if isinstance(folds, NotFixed) else None
    swap = Swap(made, tuple(folds) if isinstance(folds, list) else ())
    if context.settings.rms_norm_policy == "always":
        return swap
    return _profit(swap, context, refusal, unfolded)


def _profit(
    swap: Swap, context: Context, refusal: NotFixed | None, unfolded: NotFixed | None
) -> Swap | NotFixed:
    """Give the swap where it pays: one operator for one, or fewer nodes than were spelled out."""
    norm, made = swap.norm, swap.made
    nodes = made.nodes + (unfolded is not None)
    if refusal is not None and _FUSES not in context.settings.targets:
        fusable = context.opset_limit >= _FUSED and _is_trailing(norm)
        if norm.is_op or fusable or nodes >= len(norm.nodes):
            return refusal
        return swap
    if norm.is_op and unfolded is not None:
        detail = f"RMSNorm and an Add of the bias would be no faster: {unfolded.detail}"
        return NotFixed(unfolded.reason, unfolded.at, detail)
    if not norm.is_op and nodes >= len(norm.nodes):
        return NotFixed(Reason.TARGET, norm.y, "it would not take fewer nodes")
    return swap


def _no_op(norm: Normalization, context: Context) -> NotFixed | None:
    """Tell why there is no operator for the RMSNorm; None where there is."""
    if not _is_trailing(norm):
        detail = "RMSNormalization is over the last axes only"
        return NotFixed(Reason.CHANNEL_AXIS_MOVED, norm.anchor, detail)
    if not context.settings.targets.isdisjoint(_WITHOUT_OP):
        names = ", ".join(sorted(context.settings.targets & _WITHOUT_OP))
        return NotFixed(Reason.TARGET, norm.anchor, f"{names} cannot run RMSNormalization")
    if context.opset_limit < _OPSET:
        detail = f"RMSNormalization needs opset {_OPSET}, the model is of {context.opset}"
        return NotFixed(Reason.OPSET, norm.anchor, detail)
    return None


def _is_trailing(norm: Normalization) -> bool:
    return norm.axes is not None and norm.axes == tuple(range(-len(norm.axes), 0))


def _swap(edits: Edits, swap: Swap, explicit: dict[Tensor, Site]) -> None:
    norm = swap.norm
    for fold in swap.folds:
        edits.change(fold.node, fold.place, fold.change)
        edits.touched.update(dict.fromkeys(fold.region))
    bias = None if swap.folds else norm.bias
    written = edits.centred_biases.get(norm)
    if bias is not None and written is not None:
        bias = centred_bias(norm, written.axes)
    if swap.made.is_skip:
        added = None if bias is None else bias_operand(norm, bias)
        edits.reform(norm.anchor, Form("SkipSimplifiedLayerNormalization", _SKIP_INPUTS, added))
        return
    at = explicit.get(norm.x)
    x: Operand = edits.explicit(at) if at is not None else edits.operand(norm.x)
    edits.replace(norm.y, swap.made.node(x, bias), norm.nodes)


def _centre_biases(edits: Edits, made: Plan) -> None:
    """Take the mean from the biases of LayerNorms that write a stream and stay LayerNorms."""
    swapped = {swap.norm for swap in made.swaps}
    for norm, at in edits.centred_biases.items():
        place = bias_place(norm)
        if norm in swapped or place is None:
            continue
        tensor = place[0].inputs[place[1]]
        missing = len(at.shape) - (tensor.rank or 0)
        aligned = at._replace(tensor=tensor, first=at.first - missing, last=at.last - missing)
        edits.change(*place, centred(aligned))
        edits.touched.setdefault(place[0])


def _compensate(edits: Edits, made: Plan, stream: Stream) -> None:
    """Have linear readers make up for the mean that LayerNorms of a stream no longer add."""
    folded = {swap.norm for swap in made.swaps if swap.folds}
    for at, readers in stream.compensated.items():
        for node, norm in readers:
            if at.tensor not in edits.changed or norm in folded:
                continue
            for fold in mean_folds(norm, at, node, edits.constants):
                edits.change(fold.node, fold.place, fold.change)
                edits.touched.update(dict.fromkeys(fold.region))


def _border(edits: Edits, stream: Stream) -> dict[Tensor, tuple[int, ...]]:
    """Give the tensors whose means may be anything: not those that a reader makes up for."""
    known: set[Tensor] = set()
    for start in stream.compensated:
        at = start
        known.add(at.tensor)
        while isinstance(source := stream.sources.get(at), Step):
            at = source.full[0][1]
            known.add(at.tensor)
    return {t: axes for t, axes in edits.centred_axes.items() if t not in known}


def _rewrite(made: Plan, edits: Edits, stream: Stream) -> Rewrite:
    count = len(made.swaps)
    is_op = any(swap.made.is_op for swap in made.swaps)
    what = "RMSNormalization" if is_op else "RMSNorm"
    title = f"replace {count} LayerNorm{'s' * (count > 1)} by {what}"
    replacing = edits.edits()
    touched = (*edits.touched, *edits.witnesses)
    nodes = with_readers(touched, edits.changed, stream.norms)
    return Rewrite(
        title,
        Applicability.SAFE,
        replacing,
        region(nodes, edits.constants),
        opset=max(swap.opset for swap in made.swaps),
        centred=_border(edits, stream),
        rounding=rounding(replacing),
    )
