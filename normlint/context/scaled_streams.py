"""Which tensors can hold 2⁻ᵏ times their values, so that norms read the same but for epsilon.

A norm of a·t with a²·epsilon is the norm of t. So the factor may go into whatever writes t
(weights, tables, scales and biases), if all that reads t takes it out again, as norms do, or passes
it on to where that holds. It is the analysis of LayerNorm to RMSNorm with another action: t → a·t
in place of t → t - mean(t).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from normlint.context.epsilons import epsilon_place
from normlint.context.zero_mean_writers import can_be_edited
from normlint.deferred import dataclass
from normlint.rule import NotFixed, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization

WRITERS: dict[str, tuple[int, ...]] = {
    "MatMul": (0, 1),
    "Gemm": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gather": (0,),
    "Mul": (0, 1),
    "Div": (0,),
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "BatchNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
}
"""Positions of constants with which the output is multiplied; of factors one is enough."""
_FACTORS = frozenset(("MatMul", "Mul"))
_ALL = frozenset(("Add", "Sub", "Sum", "Concat", "Max", "Min", "Mean"))
_FIRST = frozenset(
    (
        *("Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice"),
        *("Gather", "Expand", "Tile", "Split", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"),
        *("AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool", "Relu", "LeakyRelu"),
        *("Neg", "Abs", "DepthToSpace", "SpaceToDepth", "Dropout"),
    )
)
"""Operators whose output is multiplied when their first input is, by a factor above 0."""
_INDIFFERENT = frozenset(("Shape", "Size", "ArgMax", "ArgMin", "Sign"))


@dataclass(frozen=True, eq=False)
class ScaledStream:
    """Tensors that are multiplied together, and what is edited for it."""

    tensors: tuple[Tensor, ...]
    norms: tuple[Normalization, ...]
    """The norms that take the factor out again: their epsilons are multiplied by its square."""
    constants: tuple[tuple[Node, int], ...]
    """Positions of constants that are multiplied."""
    explicit: tuple[tuple[Node, int], ...]
    """Positions of operands that must be multiplied by a node: nothing that can be edited writes
    them."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What computes the tensors, and the norms."""
        made = (tensor.producer for tensor in self.tensors)
        own = (node for norm in self.norms for node in norm.nodes)
        return tuple(dict.fromkeys(node for node in (*made, *own) if node is not None))


@dataclass(eq=False)
class _Search:
    """The tensors around one, with those that must keep their values."""

    constants: Constants
    norms: dict[Node, list[Normalization]]
    operands: dict[Tensor, list[Tensor]] = field(default_factory=dict)
    """For each tensor those that its producer passes on."""
    results: dict[Tensor, list[Tensor]] = field(default_factory=dict)
    pinned: dict[Tensor, NotFixed] = field(default_factory=dict)

    def explore(self, start: Tensor) -> None:
        """Find all tensors that hang together with one, and pin those that must stay."""
        pending = [start]
        self.operands[start] = []
        while pending:
            tensor = pending.pop()
            further = [*self.back(tensor), *self.forth(tensor)]
            for other in further:
                if other not in self.operands:
                    self.operands[other] = []
                    pending.append(other)
        self.settle()

    def back(self, tensor: Tensor) -> list[Tensor]:
        """Give the operands that the producer of a tensor passes on; pin it if there is none."""
        node = tensor.producer
        if node is None:
            self.pin(tensor, Reason.WRITER_NOT_LINEAR, tensor, "it is given, not computed")
            return []
        places = self.passed(node)
        if not places and not self.writing(node):
            detail = f"{node.op} has no weights for a factor"
            self.pin(tensor, Reason.WRITER_NOT_LINEAR, node, detail)
        operands = [node.inputs[at] for at in places]
        found = [operand for operand in operands if not self.constants.is_constant(operand)]
        if any(operand not in found and not self.can_scale(operand) for operand in operands):
            self.pin(
                tensor, Reason.WEIGHTS_NOT_CONSTANT, node, f"{node.op} adds what cannot be edited"
            )
        self.operands[tensor] = found
        return found

    def pin(self, tensor: Tensor, reason: Reason, at: Node | Tensor, detail: str) -> None:
        """Have a tensor keep its value."""
        self.pinned.setdefault(tensor, NotFixed(reason, at, detail))

    def passed(self, node: Node) -> list[int]:
        """Give the inputs that are multiplied if the outputs are to be, all of them."""
        if not node.is_standard or not node.inputs:
            return []
        if node.op in _FIRST:
            return [] if self.is_table(node) or not _is_plain(node) else [0]
        if node.op == "Mul":
            return self.factor(node)
        if node.op == "Div":
            return [] if self.writing(node) else [0]
        places = range(1, 3) if node.op == "Where" else range(len(node.inputs))
        return [at for at in places if node.input(at)] if node.op in _ALL | {"Where"} else []

    def factor(self, node: Node) -> list[int]:
        """Give the factor of a product that is multiplied: not a mask or a gate, nor a constant."""
        if self.writing(node) or node.inputs[0] is node.inputs[1]:
            return []
        shapes = [tensor.shape for tensor in node.inputs]
        full = [at for at in (0, 1) if shapes[at] is not None and shapes[at] == node.y.shape]
        return (
            full if len(full) == 1 else [at for at in full if self.comes_from_weights(node, at)][:1]
        )

    def comes_from_weights(self, node: Node, at: int) -> bool:
        """Whether an operand is computed by something that can be multiplied."""
        maker = node.inputs[at].producer
        return maker is not None and (maker.op in _ALL or bool(self.writing(maker)))

    def is_table(self, node: Node) -> bool:
        """Whether a Gather reads rows of a constant."""
        return node.op == "Gather" and self.constants.is_constant(node.inputs[0])

    def writing(self, node: Node) -> list[int]:
        """Give the positions of the constants with which the output of a node can be multiplied."""
        if not node.is_standard:
            return []
        places = [at for at in WRITERS.get(node.op, ()) if node.input(at) is not None]
        known = [at for at in places if can_be_edited(node.inputs[at], self.constants)]
        if node.op in _FACTORS:
            return known if len(known) == 1 else []
        return places if known == places else []

    def follows(self, node: Node, tensor: Tensor) -> list[Tensor]:
        """Give the outputs of a reader that a tensor only multiplies; none if it does more."""
        places = [at for at, other in enumerate(node.inputs) if other is tensor]
        passed = self.passed(node)
        if node.is_standard and node.op in {"Mul", "Div"} and self.writing(node):
            passed = [1 - self.writing(node)[0]] if node.op == "Mul" else []
        if any(at not in passed for at in places):
            return []
        return [out for out in node.outputs if out.name and (out.consumers or out.is_output)]

    def can_scale(self, tensor: Tensor) -> bool:
        """Whether a constant can be multiplied."""
        return not tensor.name or can_be_edited(tensor, self.constants)

    def forth(self, tensor: Tensor) -> list[Tensor]:
        """Give what follows from a tensor; pin it where a reader wants its value."""
        if tensor.is_output:
            self.pin(tensor, Reason.GRAPH_OUTPUT, tensor, f"{tensor.name} is an output")
        found: list[Tensor] = []
        for node in dict.fromkeys(tensor.consumers):
            if node.graph is tensor.graph and self.is_taken_out(node, tensor):
                continue
            follows = self.follows(node, tensor) if node.graph is tensor.graph else []
            if not follows:
                detail = f"{node.op} reads {tensor.name}, whose size matters to it"
                self.pin(tensor, Reason.OTHER_READER, node, detail)
            found.extend(follows)
        self.results[tensor] = found
        return found

    def is_taken_out(self, node: Node, tensor: Tensor) -> bool:
        """Whether a reader gives the same for a multiple, or is a norm whose epsilon can follow."""
        if node.is_standard and node.op in _INDIFFERENT:
            return True
        return any(
            norm.x is tensor and epsilon_place(norm, self.constants) and self.is_closed(norm)
            for norm in self.norms.get(node, ())
        )

    def settle(self) -> None:
        """Pin what pinned tensors are computed from."""
        before: dict[Tensor, list[Tensor]] = {}
        for tensor, follows in self.results.items():
            for result in follows:
                before.setdefault(result, []).append(tensor)
        pending = list(self.pinned)
        while pending:
            tensor = pending.pop()
            for source in before.get(tensor, ()):
                if source not in self.pinned:
                    self.pinned[source] = self.pinned[tensor]
                    pending.append(source)

    def stream(self, start: Tensor) -> ScaledStream:
        """Give what is multiplied together with a tensor that is not pinned."""
        inside: dict[Tensor, None] = {start: None}
        pending = [start]
        while pending:
            tensor = pending.pop()
            for other in (*self.operands[tensor], *self.results.get(tensor, ())):
                if other not in self.pinned and other not in inside:
                    inside[other] = None
                    pending.append(other)
        nodes = dict.fromkeys(t.producer for t in inside if t.producer is not None)
        edits = [self.edited(node, inside) for node in nodes]
        readers = dict.fromkeys(n for tensor in inside for n in tensor.consumers)
        norms = dict.fromkeys(
            norm for node in readers for norm in self.norms.get(node, ()) if norm.x in inside
        )
        return ScaledStream(
            tuple(inside),
            tuple(norms),
            tuple(place for constants, _ in edits for place in constants),
            tuple(place for _, explicit in edits for place in explicit),
        )

    def edited(
        self, node: Node, inside: dict[Tensor, None]
    ) -> tuple[list[tuple[Node, int]], list[tuple[Node, int]]]:
        """Give the constants of a node to multiply, and operands to multiply by a node."""
        if node.op == "Mul" and any(tensor in inside for tensor in node.inputs):
            return [], []
        places = self.passed(node)
        if not places:
            return [(node, at) for at in self.writing(node)], []
        constants = [at for at in places if self.constants.is_constant(node.inputs[at])]
        explicit = [at for at in places if node.inputs[at] not in inside and at not in constants]
        return [(node, at) for at in constants], [(node, at) for at in explicit]

    def is_closed(self, norm: Normalization) -> bool:
        """Whether what a norm computes on its way goes to norms of the same tensor only."""
        for node in norm.nodes:
            for tensor in node.outputs:
                readers = [] if tensor is norm.y else tensor.consumers
                if tensor is not norm.y and tensor.is_output:
                    return False
                for reader in readers:
                    if all(other.x is not norm.x for other in self.norms.get(reader, ())):
                        return False
        return True


def _is_plain(node: Node) -> bool:
    """Whether a layout operator or pool gives floats, and its first output only."""
    if not node.inputs[0].is_float or not node.y.is_float:
        return False
    spare = [tensor for tensor in node.outputs[1:] if tensor.name]
    return node.op == "Split" or not any(t.consumers or t.is_output for t in spare)


class ScaledStreams:
    """What is multiplied together, for every norm of a model; each tensor is looked at once."""

    def __init__(self, norms: Iterable[Normalization], constants: Constants) -> None:
        self._constants = constants
        self._by_node: dict[Node, list[Normalization]] = {}
        for norm in norms:
            for node in norm.nodes:
                self._by_node.setdefault(node, []).append(norm)
        self._searches: dict[Tensor, _Search] = {}

    def __call__(self, norm: Normalization) -> ScaledStream | NotFixed:
        """Give what is multiplied with what a norm reads, or say what stands in the way."""
        if norm.x not in self._searches:
            search = _Search(self._constants, self._by_node)
            search.explore(norm.x)
            self._searches.update(dict.fromkeys(search.operands, search))
        found = self._searches[norm.x]
        return found.pinned[norm.x] if norm.x in found.pinned else found.stream(norm.x)
