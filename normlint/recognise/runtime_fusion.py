"""Chains that a runtime takes for a normalisation when it fuses, and what it then gets wrong.

The conditions are those of onnxruntime's fusions to LayerNormalization and to
SimplifiedLayerNormalization, as seen on 1.32 by running graphs with and without optimisation; a
test runs them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from normlint.deferred import dataclass
from normlint.recognise.channels import reads_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from normlint.context.constants import Constants
    from normlint.graph import Graph, Node, Tensor

SEEN_ON = "onnxruntime 1.32"
_FUSED_TYPES = frozenset((TensorProto.FLOAT, TensorProto.FLOAT16))
_LARGEST_EPSILON = 1e-4
"""From this on the optimiser for transformers does not take a number for an epsilon."""


@dataclass(frozen=True, eq=False)
class Chain:
    """The nodes that a fusion looks for, whatever they compute."""

    graph: Graph
    nodes: tuple[Node, ...]
    x: Tensor
    """What the fused operator would read."""
    y: Tensor
    scale: Tensor
    bias: Tensor | None
    means: tuple[Node, ...]
    """The reductions: of x and of the square, or of the square alone."""
    power: Node
    quotient: Node
    difference: Node | None = None
    """The subtraction of the mean; None in an RMSNorm."""
    affine: tuple[Node, ...] = ()
    """The multiplication by the scale, the addition of the bias."""

    @property
    def is_centred(self) -> bool:
        """Whether it is taken for a LayerNorm, not for an RMSNorm."""
        return self.difference is not None


@dataclass(frozen=True, eq=False)
class Misfusion:
    """A chain that is fused to something else."""

    chain: Chain
    reason: str
    """exponent, operand-order, keepdims, broadcast, rank, types or axes."""
    detail: str
    """What happens, as a clause."""
    tool: str = SEEN_ON


def misfusions(graph: Graph, constants: Constants) -> Iterator[Misfusion]:
    """Give the chains in a graph and its subgraphs that onnxruntime fuses wrongly."""
    for scope in graph.scopes():
        for node in scope.nodes:
            if node.op != "Sqrt" or not node.is_standard:
                continue
            chain = _chain(node, constants)
            found = None if chain is None else _fault(chain, constants)
            if found is not None:
                yield found


def _chain(root: Node, constants: Constants) -> Chain | None:
    """Read the chain around a root: square, mean, epsilon, root, quotient, scale and bias."""
    shifted = root.inputs[0].producer
    quotient = _only_reader(root.y, "Div")
    if shifted is None or shifted.op != "Add" or quotient is None:
        return None
    variance = next((n for t in shifted.inputs if (n := _producer(t, "ReduceMean"))), None)
    power = None if variance is None else _producer(variance.inputs[0], "Pow")
    if variance is None or power is None or not _is_alone(variance, power, shifted):
        return None
    inner = (power, variance, shifted, root, quotient)
    base = _uncast(power.inputs[0])
    difference = _producer(base, "Sub")
    mean = None if difference is None else _mean_of(difference)
    whole = None
    if difference is not None and mean is not None:
        whole = _centred(difference, mean, inner, constants)
    return whole or _uncentred(base, inner, constants)


def _centred(
    difference: Node, mean: Node, inner: tuple[Node, ...], constants: Constants
) -> Chain | None:
    power, variance, *_, root, quotient = inner
    sides = {_uncast(tensor) for tensor in quotient.inputs}
    if difference.y not in sides or root.y not in sides or not _is_alone(mean):
        return None
    if len(difference.y.consumers) != 2 or difference.y.is_output:
        return None
    multiply = _only_reader(quotient.y, "Mul")
    scale = None if multiply is None else _vector(multiply, quotient.y, constants)
    add = None if multiply is None else _only_reader(multiply.y, "Add")
    bias = None if add is None or multiply is None else _vector(add, multiply.y, constants)
    if multiply is None or add is None or scale is None or bias is None:
        return None
    return Chain(
        root.graph,
        (mean, difference, *inner, multiply, add),
        mean.inputs[0],
        add.y,
        scale,
        bias,
        (mean, variance),
        power,
        quotient,
        difference,
        (multiply, add),
    )


def _uncentred(base: Tensor, inner: tuple[Node, ...], constants: Constants) -> Chain | None:
    power, variance, *_, root, quotient = inner
    if quotient.inputs[1] is not root.y:
        return None
    normalised = quotient
    if _uncast(quotient.inputs[0]) is not base:
        product = _only_reader(quotient.y, "Mul")
        if product is None or constants.scalar(quotient.inputs[0]) != 1.0:
            return None
        if base not in {_uncast(tensor) for tensor in product.inputs}:
            return None
        normalised = product
    multiply = _only_reader(normalised.y, "Mul")
    scale = None if multiply is None else _vector(multiply, normalised.y, constants)
    if multiply is None or scale is None:
        return None
    nodes = dict.fromkeys((*inner, normalised, multiply))
    return Chain(
        root.graph,
        tuple(nodes),
        base,
        multiply.y,
        scale,
        None,
        (variance,),
        power,
        quotient,
        affine=(multiply,),
    )


def _producer(tensor: Tensor, op: str) -> Node | None:
    node = _uncast(tensor).producer
    return node if node is not None and node.op == op and node.is_standard else None


def _uncast(tensor: Tensor) -> Tensor:
    node = tensor.producer
    return node.inputs[0] if node is not None and node.op == "Cast" else tensor


def _mean_of(difference: Node) -> Node | None:
    """Give the mean of one side of a subtraction that is its other side."""
    for tensor, other in (difference.inputs, difference.inputs[::-1]):
        node = tensor.producer
        if node is not None and node.op == "ReduceMean" and node.inputs[0] is other:
            return node
    return None


def _is_alone(*nodes: Node) -> bool:
    """Whether each node has one reader and is no output, so that a fusion may swallow it."""
    return all(len(node.y.consumers) == 1 and not node.y.is_output for node in nodes)


def _only_reader(tensor: Tensor, op: str) -> Node | None:
    """Give the one reader of a tensor, behind a Cast, where it is of an operator."""
    for _ in range(2):
        readers = [node for node in tensor.consumers if reads_values(node, tensor)]
        if len(readers) != 1 or tensor.is_output:
            return None
        if readers[0].op != "Cast":
            return readers[0] if readers[0].op == op else None
        tensor = readers[0].y
    return None


def _vector(node: Node, data: Tensor, constants: Constants) -> Tensor | None:
    """Give the operand of a scale or a bias where it has the one axis that fusions ask for."""
    others = [tensor for tensor in node.inputs if _uncast(tensor) is not _uncast(data)]
    if len(others) != 1 or others[0].rank != 1:
        return None
    return others[0] if constants.is_constant(others[0]) or not others[0].producer else None


def _fault(chain: Chain, constants: Constants) -> Misfusion | None:
    rank = chain.x.rank
    if rank is None or chain.x.dtype not in _FUSED_TYPES:
        return None
    found = [_axes_of(node, rank, constants) for node in chain.means]
    if any(axes is None for axes in found):
        return None
    if any(axes != (rank - 1,) for axes in found):
        return _ignored_axes(chain, found, constants)
    checks = (_exponent, _order, _kept, _broadcast, _rank, _types)
    return next((fault for check in checks if (fault := check(chain, rank, constants))), None)


def _axes_of(node: Node, rank: int, constants: Constants) -> tuple[int, ...] | None:
    axes = node.attrs.get("axes")
    if axes is None and node.input(1) is not None:
        axes = constants.integers(node.inputs[1])
    return None if not axes or not rank else tuple(sorted(axis % rank for axis in axes))


def _ignored_axes(
    chain: Chain, axes: list[tuple[int, ...] | None], constants: Constants
) -> Misfusion | None:
    if not chain.is_centred or len(set(axes)) != 1 or len(axes[0] or ()) != 1:
        return None
    shifted = _root(chain).inputs[0].producer
    added = [] if shifted is None else [constants.scalar(tensor) for tensor in shifted.inputs]
    if not any(value is not None and 0 < value < _LARGEST_EPSILON for value in added):
        return None
    return Misfusion(
        chain,
        "axes",
        f"its optimiser for transformers takes it for one over the last axis, not axis {axes[0]}",
        f"{SEEN_ON} (onnxruntime.transformers)",
    )


def _exponent(chain: Chain, rank: int, constants: Constants) -> Misfusion | None:  # noqa: ARG001
    exponent = constants.uniform(chain.power.inputs[1])
    known = constants.is_constant(chain.power.inputs[1])
    if exponent == 2.0 or not known or not chain.is_centred:
        return None
    return Misfusion(
        chain, "exponent", "it squares whatever the exponent is, so the numbers are others"
    )


def _order(chain: Chain, rank: int, constants: Constants) -> Misfusion | None:  # noqa: ARG001
    if chain.difference is None:
        return None
    if chain.quotient.inputs[1] is not _root(chain).y:
        return Misfusion(chain, "operand-order", "it divides the other way round")
    if chain.difference.inputs[1].producer is not chain.means[0]:
        return Misfusion(
            chain, "operand-order", "it subtracts the other way round: every sign turns"
        )
    return None


def _root(chain: Chain) -> Node:
    return next(node for node in chain.nodes if node.op == "Sqrt")


def _kept(chain: Chain, rank: int, constants: Constants) -> Misfusion | None:  # noqa: ARG001
    if rank < 2 or all(node.attrs.get("keepdims", 1) for node in chain.means):
        return None
    return Misfusion(
        chain,
        "keepdims",
        "it takes the statistics of each row, which here broadcast along another axis",
    )


def _broadcast(chain: Chain, rank: int, constants: Constants) -> Misfusion | None:  # noqa: ARG001
    extents = chain.x.shape or ()
    vectors = [tensor for tensor in (chain.scale, chain.bias) if tensor is not None]
    if extents[-1] != 1 or all(tensor.shape == (1,) for tensor in vectors):
        return None
    return Misfusion(
        chain,
        "broadcast",
        "the scale is longer than the axis, and the fused model fails when it runs",
    )


def _rank(chain: Chain, rank: int, constants: Constants) -> Misfusion | None:  # noqa: ARG001
    vectors = {chain.scale, chain.bias}
    if rank != 1 or all(node.inputs[0] not in vectors for node in chain.affine):
        return None
    return Misfusion(
        chain, "rank", "with one axis it takes the value for the scale, and the model does not load"
    )


def _types(chain: Chain, rank: int, constants: Constants) -> Misfusion | None:  # noqa: ARG001
    before = chain.x.producer
    if before is None or before.op != "Cast" or not chain.is_centred:
        return None
    if before.inputs[0].dtype != TensorProto.FLOAT16 or chain.scale.dtype != TensorProto.FLOAT:
        return None
    return Misfusion(
        chain, "types", "it drops the Cast and keeps the float32 scale, and the model does not load"
    )
