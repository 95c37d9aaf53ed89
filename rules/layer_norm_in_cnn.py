"""NL209."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normlint.diagnosing import diagnose
from normlint.normalization import Kind
from normlint.rule import Rule, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from normlint.context import Context
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization
    from normlint.rule import Diagnostic

_LAYOUT = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Cast", "Pad")
_ACTIVATIONS = ("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Sigmoid", "HardSigmoid", "HardSwish")
_MORE_ACTIVATIONS = ("Mish", "Gelu", "Erf", "Tanh", "Softplus", "Clip", "Dropout")
_ARITHMETIC = ("Mul", "Add", "Sub", "Div", "Pow", "QuantizeLinear", "DequantizeLinear")
_PASSED = frozenset(
    (*_LAYOUT, *_ACTIVATIONS, *_MORE_ACTIVATIONS, *_ARITHMETIC, "MaxPool", "AveragePool")
)
"""Layout, activations (also spelled out) and pooling between a convolution and a normalisation."""
_FAR = 24


class LayerNormInCnn(Rule):
    """A LayerNorm stands between plain convolutions.

    ## What it does

    Reports a LayerNorm whose input comes from a convolution and whose output goes to one, each with
    a kernel larger than one pixel, one group, and no patches (a stride as large as the kernel).

    ## Why is this bad?

    A BatchNorm there costs nothing at inference, for it goes into the convolution; a LayerNorm must
    be computed at every run, and over the channels of an image there is not even an operator for
    it. It also ties the statistics of all pixels or channels together, which the quantisation of
    convolutions tolerates badly.

    ## Example

    `Conv, LayerNorm, Relu, Conv`. In a network that can be trained again: BatchNorm, or GroupNorm
    for small batches.

    ## When not to follow it

    In networks of the ConvNeXt kind the LayerNorm stands behind a depthwise convolution or in front
    of patches; these are not reported. Where the batch is one in training, BatchNorm does not do.

    ## References

    - [Group Normalization](https://arxiv.org/abs/1803.08494)
    - [A ConvNet for the 2020s](https://arxiv.org/abs/2201.03545)
    """

    code = "NL209"
    severity = Severity.INFO

    bad = (
        """
        plain_convolutions (float[1,2,6,6] x, float[3,2,3,3] w, float[2,3,3,3] v)
            => (float[1,2,2,2] y)
        <float[3,4,4] scale = {
            1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
            1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> {
            image = Conv<kernel_shape = [3, 3]>(x, w)
            normalised = LayerNormalization<axis = 1>(image, scale)
            activated = Relu(normalised)
            y = Conv<kernel_shape = [3, 3]>(activated, v)
        }
        """,
    )
    good = (
        """
        depthwise (float[1,3,6,6] x, float[3,1,3,3] w, float[6,3,1,1] v) => (float[1,6,4,4] y)
        <float[3] scale = {1,2,3}> {
            image = Conv<kernel_shape = [3, 3], group = 3>(x, w)
            last = Transpose<perm = [0, 2, 3, 1]>(image)
            normalised = LayerNormalization(last, scale)
            first = Transpose<perm = [0, 3, 1, 2]>(normalised)
            y = Conv<kernel_shape = [1, 1]>(first, v)
        }
        """,
        """
        patches_behind_it (float[1,2,6,6] x, float[3,2,3,3] w, float[6,3,2,2] v)
            => (float[1,6,2,2] y)
        <float[3] scale = {1,2,3}> {
            image = Conv<kernel_shape = [3, 3]>(x, w)
            last = Transpose<perm = [0, 2, 3, 1]>(image)
            normalised = LayerNormalization(last, scale)
            first = Transpose<perm = [0, 3, 1, 2]>(normalised)
            y = Conv<kernel_shape = [2, 2], strides = [2, 2]>(first, v)
        }
        """,
    )

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Report each LayerNorm with a plain convolution on either side."""
        scopes = context.graph.scopes()
        if not any(_is_plain(node) for scope in scopes for node in scope.nodes):
            return
        for norm in context.norms:
            if norm.kind is Kind.LAYER and _is_between_convolutions(norm):
                message = (
                    "a LayerNorm stands between plain convolutions: it is computed at every run "
                    "where a BatchNorm would go into their weights"
                )
                yield diagnose(norm, message)


def _is_between_convolutions(norm: Normalization) -> bool:
    before = _ends(norm.x, _sources)
    if len(before) != 1 or not all(_is_plain(node) for node in before):
        return False
    behind = _ends(norm.y, _readers)
    return bool(behind) and all(_is_plain(node) for node in behind)


def _sources(tensor: Tensor) -> Iterator[tuple[Node | None, list[Tensor]]]:
    node = tensor.producer
    yield node, [] if node is None else [t for t in node.inputs if t.name and not t.is_constant]


def _readers(tensor: Tensor) -> Iterator[tuple[Node | None, list[Tensor]]]:
    for node in tensor.consumers:
        yield node, [output for output in node.outputs if output.name]
    if tensor.is_output:
        yield None, []


def _ends(
    tensor: Tensor, step: Callable[[Tensor], Iterator[tuple[Node | None, list[Tensor]]]]
) -> set[Node | None]:
    """Give where the paths through activations and layout end; None for the graph's own ends."""
    found: set[Node | None] = set()
    seen: set[Tensor] = {tensor}
    pending = [tensor]
    while pending and len(seen) < _FAR:
        for node, following in step(pending.pop()):
            if node is None or node.op not in _PASSED:
                found.add(node)
                continue
            pending.extend(t for t in following if t not in seen)
            seen.update(following)
    return found


def _is_plain(node: Node | None) -> bool:
    """Whether it is a convolution of more than one pixel, one group, and overlapping windows."""
    if node is None or node.op != "Conv" or len(node.inputs) < 2:
        return False
    shape = node.inputs[1].shape
    kernel = node.attrs.get("kernel_shape") or (list(shape[2:]) if shape is not None else [])
    strides = node.attrs.get("strides") or [1] * len(kernel)
    if node.attrs.get("group", 1) != 1 or not kernel:
        return False
    return any(k != 1 for k in kernel) and list(strides) != list(kernel)
