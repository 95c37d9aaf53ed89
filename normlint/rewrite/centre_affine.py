"""The bias of a norm moves into the linear operators that read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.context.zero_mean_sites import Site, site, sites_of_width
from normlint.context.zero_mean_steps import step
from normlint.context.zero_mean_writers import can_be_edited
from normlint.deferred import dataclass
from normlint.rewrite.centre_constants import Change, added
from normlint.rule import NotFixed, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from normlint.context.constants import Constants
    from normlint.graph import Node, Tensor
    from normlint.normalization import Normalization, Parameter

    Array = np.ndarray[Any, Any]

_LAYOUT = frozenset(
    (
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Gather", "Split", "Slice"),
        *("Identity", "Dropout", "Cast", "Concat", "ReduceMean", "GlobalAveragePool"),
    )
)
"""Operators behind which what was added to every token stands as it was."""
_BIASED = frozenset(("BiasGelu", "FastGelu"))
"""Operators of com.microsoft that add a bias first."""
_SHAPE_ONLY = frozenset(("Shape", "Size"))
_BLOCK = 1 << 20
"""Elements of a matrix that are in memory as doubles at once."""
_OPTIONAL_C = 11
"""The opset from which on the third operand of Gemm may be omitted."""


@dataclass(frozen=True, eq=False)
class Fold:
    """A constant of a reader that takes up what the bias becomes there."""

    node: Node
    place: int
    change: Change
    region: tuple[Node, ...]


def bias_folds(
    norm: Normalization, constants: Constants, free: frozenset[Tensor] = frozenset()
) -> list[Fold] | NotFixed:
    """Give where the bias of a norm goes when all its readers take it up, or why one does not.

    Of a sum that is centred, and is in `free`, the constant of the other summand takes it up.
    """
    bias, axis = norm.bias, norm.axes
    if bias is None or axis is None or not bias.is_constant or norm.permutation is not None:
        return NotFixed(Reason.WEIGHTS_NOT_CONSTANT, norm.y, "the bias is no constant")
    start = site(norm.y, axis)
    if start is None or start.first != start.last or not _runs_along(bias, start):
        return NotFixed(Reason.BROADCAST, norm.y, "the bias varies along several axes")
    return _Folding(_vector(bias, start), start, constants, free).run()


def takes_up(node: Node, at: Site, constants: Constants) -> bool:
    """Whether a linear reader can take up what is added to the channels of an operand."""
    return _Folding(lambda: np.zeros(at.width), at, constants).into(node, at)


def mean_folds(norm: Normalization, at: Site, node: Node, constants: Constants) -> list[Fold]:
    """Give how a linear reader makes up for the mean that is taken from the bias of a norm."""
    if norm.bias is None:
        return []
    vector = _vector(norm.bias, at)
    folding = _Folding(lambda: np.full(at.width, vector().mean()), at, constants)
    folding.into(node, at)
    return folding.found


def _vector(bias: Parameter, at: Site) -> Callable[[], Array]:
    """Give a bias along the channels."""

    def values() -> Array:
        assert bias.compute is not None  # noqa: S101 - the caller looked
        return np.broadcast_to(bias.compute().astype(np.float64).reshape(-1), (at.width,))

    return values


def _ints(node: Node, name: str) -> list[int] | None:
    values = node.attrs.get(name)
    return values if isinstance(values, list) else None


def _runs_along(bias: Parameter, at: Site) -> bool:
    if bias.shape is None or len(bias.shape) != len(at.shape):
        return False
    return all(extent == 1 or axis in at.axes for axis, extent in enumerate(bias.shape))


class _Folding:
    def __init__(
        self,
        vector: Callable[[], Array],
        start: Site,
        constants: Constants,
        free: frozenset[Tensor] = frozenset(),
    ) -> None:
        self.vector = vector
        self.start = start
        self.constants = constants
        self.free = free
        self.found: list[Fold] = []
        self.passed: list[Node] = []

    def run(self) -> list[Fold] | NotFixed:
        pending, seen = [self.start], {self.start}
        while pending:
            at = pending.pop()
            if at.tensor.is_output:
                detail = "the result is an output of the graph"
                return NotFixed(Reason.GRAPH_OUTPUT, at.tensor, detail)
            for node in dict.fromkeys(at.tensor.consumers):
                if node.op in _SHAPE_ONLY:
                    self.passed.append(node)
                    continue
                passed = self.through(node, at)
                if passed is None and not (self.into(node, at) or self.beside(node, at)):
                    detail = f"{node.op} reads the result and cannot take the bias up"
                    return NotFixed(Reason.NO_LINEAR_NEIGHBOUR, node, detail)
                fresh = [other for other in passed or () if other not in seen]
                seen.update(fresh)
                pending.extend(fresh)
        if any(not self.is_joined(node, seen) for node in self.passed):
            return NotFixed(Reason.NO_LINEAR_NEIGHBOUR, self.start.tensor, "a Concat reads it")
        if not self.found:
            detail = "nobody reads the result"
            return NotFixed(Reason.NO_LINEAR_NEIGHBOUR, self.start.tensor, detail)
        return self.found

    def through(self, node: Node, at: Site) -> list[Site] | None:
        """Give the outputs of an operator that only moves the channels, all of them in order."""
        if node.op not in _LAYOUT or not node.is_standard or node.graph is not at.tensor.graph:
            return None
        if not self.keeps_order(node, at):
            return None
        found: list[Site] = []
        for tensor in node.outputs:
            if not (tensor.consumers or tensor.is_output):
                continue
            reached = [
                out
                for out in sites_of_width(tensor, at.width)
                if out.first == out.last and self.follows(node, at, out)
            ]
            if not reached:
                return None
            found.extend(reached)
        self.passed.append(node)
        return found

    @staticmethod
    def is_joined(node: Node, seen: set[Site]) -> bool:
        """Whether everything that a Concat joins has the bias."""
        tensors = {at.tensor for at in seen}
        return node.op != "Concat" or all(tensor in tensors for tensor in node.inputs)

    def keeps_order(self, node: Node, at: Site) -> bool:
        """Whether a Slice leaves the channels alone; one may reverse them."""
        if node.op != "Slice":
            return True
        axes = (
            _ints(node, "axes") if len(node.inputs) < 4 else self.constants.integers(node.input(3))
        )
        return axes is not None and all(axis % len(at.shape) not in at.axes for axis in axes)

    def follows(self, node: Node, at: Site, out: Site) -> bool:
        how = step(node, out, self.constants)
        return how is not None and how.reads(at)

    def into(self, node: Node, at: Site) -> bool:
        """Note what a linear reader must add to its bias; say whether it can."""
        reader = {
            "MatMul": self.into_matmul,
            "Gemm": self.into_gemm,
            "Conv": self.into_conv,
            "com.microsoft::FusedGemm": self.into_gemm,
            "com.microsoft::Attention": self.into_attention,
        }
        op = node.op if node.is_standard else f"{node.domain}::{node.op}"
        if op not in reader or node.graph is not at.tensor.graph:
            return False
        places = [place for place, tensor in enumerate(node.inputs) if tensor is at.tensor]
        if places != [0] or len(node.inputs) < 2:
            return False
        weight = node.inputs[1]
        return self.constants.is_constant(weight) and reader[op](node, at, weight)

    def beside(self, node: Node, at: Site) -> bool:
        """Note what the other summand of a residual sum adds instead; say whether it can."""
        if node.op != "Add" or node.y not in self.free or not at.is_last:
            return False
        other = node.inputs[1] if node.inputs[0] is at.tensor else node.inputs[0]
        writer = other.producer
        if other is at.tensor or other.is_output or len(other.consumers) != 1 or writer is None:
            return False
        if writer.op != "Add" or not writer.is_standard or writer.graph is not node.graph:
            return False
        places = [k for k, t in enumerate(writer.inputs) if can_be_edited(t, self.constants)]
        if len(places) != 1 or other.shape is None or other.shape[-1] != at.width:
            return False
        if (writer.inputs[places[0]].shape or ())[-1:] != (at.width,):
            return False
        self.note(writer, places[0], node, self.addend(node, at.width, self.vector))
        return True

    def into_matmul(self, node: Node, at: Site, weight: Tensor) -> bool:
        shape = weight.shape
        if not at.is_last or shape is None or len(shape) != 2 or node.y.is_output:
            return False
        width = shape[1]
        if not isinstance(width, int) or not node.y.consumers:
            return False
        places = [self.bias_of(reader, node.y, width) for reader in node.y.consumers]
        if any(place is None for place in places):
            return False
        for reader, place in zip(node.y.consumers, places, strict=True):
            assert place is not None  # noqa: S101 - just looked
            values = self.addend(node, width, lambda: self.times(weight))
            self.note(reader, place, node, values)
        return True

    def bias_of(self, reader: Node, product: Tensor, width: int) -> int | None:
        """Give the position of the constant that an Add adds along the last axis."""
        adds = reader.op == "Add" and reader.is_standard
        fused = reader.op in _BIASED and reader.domain == "com.microsoft" and reader.input(1)
        if not (adds or fused) or reader.graph is not product.graph:
            return None
        place = 1 if reader.inputs[0] is product else 0
        if fused and place == 0:
            return None
        bias = reader.inputs[place]
        if bias is product or not can_be_edited(bias, self.constants):
            return None
        shape = bias.shape or ()
        fits = shape[-1:] == (width,) and all(extent == 1 for extent in shape[:-1])
        return place if fits and len(shape) <= (product.rank or 0) else None

    def into_gemm(self, node: Node, at: Site, weight: Tensor) -> bool:
        beta, alpha = node.attrs.get("beta", 1.0), node.attrs.get("alpha", 1.0)
        bias, shape = node.input(2), weight.shape
        if at.first != 1 or node.attrs.get("transA", 0) or beta == 0 or shape is None:
            return False
        transposed = bool(node.attrs.get("transB", 0))
        width = shape[0 if transposed else 1]
        if not isinstance(width, int):
            return False
        if bias is None and node.graph.opset < _OPTIONAL_C:
            return False
        if bias is not None and not can_be_edited(bias, self.constants):
            return False

        def values() -> Array:
            return np.asarray(alpha / beta * self.times(weight, transposed=transposed))

        self.note(node, 2, node, self.addend(node, width, values, node.y.dtype))
        return True

    def into_attention(self, node: Node, at: Site, weight: Tensor) -> bool:
        """Note what the joint projection of queries, keys and values adds."""
        bias, shape = node.input(2), weight.shape
        if not at.is_last or shape is None or len(shape) != 2 or bias is None:
            return False
        width = shape[1]
        if not isinstance(width, int) or not can_be_edited(bias, self.constants):
            return False
        values = self.addend(node, width, lambda: self.times(weight))
        self.note(node, 2, node, values)
        return True

    def into_conv(self, node: Node, at: Site, weight: Tensor) -> bool:
        bias, shape = node.input(2), weight.shape
        if at.first != 1 or any(node.attrs.get("pads", ())) or shape is None:
            return False
        if node.attrs.get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
            return False
        if bias is not None and not can_be_edited(bias, self.constants):
            return False
        outputs, groups = shape[0], node.attrs.get("group", 1)
        if not isinstance(outputs, int):
            return False

        def values() -> Array:
            inputs = self.start.width // groups
            taps = self.wide(weight).reshape(groups, outputs // groups, inputs, -1).sum(-1)
            folded = np.einsum("goc,gc->go", taps, self.vector().reshape(groups, -1))
            return np.asarray(folded.reshape(-1))

        self.note(node, 2, node, self.addend(node, outputs, values, node.y.dtype))
        return True

    def note(self, holder: Node, place: int, linear: Node, change: Change) -> None:
        self.found.append(Fold(holder, place, change, (*self.passed, linear, holder)))

    def addend(
        self, linear: Node, width: int, values: Callable[[], Array], dtype: int = 0
    ) -> Change:
        return added((self.start.tensor, linear), values, (width,), dtype)

    def times(self, weight: Tensor, *, transposed: bool = False) -> Array:
        """Multiply the bias with a matrix, in double, of which it makes a few rows at a time."""
        matrix = self.constants.values(weight)
        matrix = matrix.T if transposed else matrix
        vector = self.vector()
        rows = max(1, _BLOCK // max(1, matrix.shape[1]))
        result: Array = np.zeros(matrix.shape[1])
        for start in range(0, len(vector), rows):
            part = slice(start, start + rows)
            result += vector[part] @ matrix[part].astype(np.float64)
        return result

    def wide(self, tensor: Tensor) -> Array:
        return self.constants.values(tensor).astype(np.float64)
