"""The graph that rules see: onnx_graphsurgeon's objects, made exact.

graphsurgeon compares tensors by name and nodes by content. A name may occur twice (subgraphs,
broken files), so here a tensor and a node are equal to themselves only, and can be keys of a
mapping.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx_graphsurgeon as gs  # noqa: TID251 - this package is the door
from onnx import TensorProto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from onnx import NodeProto

# It writes to standard output, which would break every machine-readable format.
gs.logger.G_LOGGER.severity = gs.logger.G_LOGGER.CRITICAL
logging.getLogger("onnx_graphsurgeon").setLevel(logging.CRITICAL)

Shape: TypeAlias = tuple[int | str | None, ...]
"""Extents: a number, the name of a symbolic extent, or None where nothing is known."""

FLOATS = frozenset(
    (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
)
_CACHED_BYTES = 4096


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a node stands in the file."""

    proto: NodeProto
    """The node as it was read; where it stems from a function, renamed for this call."""
    index: int
    """Position of the node, or of the outermost call that it is part of, in its graph."""
    functions: tuple[str, ...] = ()
    """`domain::name` of the functions that the node stands in, outermost first."""
    call: str = ""
    """Name of the outermost call, or its first output where it has no name."""


class Values(gs.ir.tensor.LazyValues):  # type: ignore[misc] # graphsurgeon has no types
    """Values of a constant that are read, or computed, when somebody asks for them."""

    def __init__(
        self, shape: Sequence[int], dtype: int, load: Callable[[], np.ndarray[Any, Any]]
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self._load = load
        self._cached: np.ndarray[Any, Any] | None = None

    def load(self) -> np.ndarray[Any, Any]:
        """Read the values. Large ones are read anew each time and belong to the caller."""
        if self._cached is not None:
            return self._cached
        values = self._load()
        if values.nbytes <= _CACHED_BYTES:
            values.setflags(write=False)
            self._cached = values
        return values


class _Links(gs.util.misc.SynchronizedList):  # type: ignore[misc] # graphsurgeon has no types
    """A list of tensors, or nodes, that keeps their own lists of the other kind in step.

    The constructors below set fields of new objects past graphsurgeon's own setters, which ask of
    each name whether it is such a list and take half of the time of an import.
    """

    def __init__(self, owner: object, field_name: str) -> None:
        self.parent_obj = owner
        self.field_name = field_name


class _Tensor:
    """What variables and constants have in common."""

    name: str
    inputs: list[Node]
    outputs: list[Node]
    graph: Graph
    """The graph or subgraph that defines the tensor."""
    is_constant: bool
    """Whether its values are written in the file."""
    if TYPE_CHECKING:

        @property
        def dtype(self) -> int:
            """Element type, one of TensorProto.DataType; 0 where it is not known."""

        @property
        def shape(self) -> Shape | None:
            """Extents; None where not even their number is known."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def producer(self) -> Node | None:
        """The node that computes it; None for inputs, constants and ambiguous names."""
        return self.inputs[0] if len(self.inputs) == 1 else None

    @property
    def consumers(self) -> list[Node]:
        """Nodes that read it, in this graph and in subgraphs; one that reads twice stands twice."""
        return self.outputs

    @property
    def rank(self) -> int | None:
        """Number of axes, where it is known."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether its elements are float, float16, bfloat16 or double."""
        return self.dtype in FLOATS

    @property
    def is_output(self) -> bool:
        """Whether it is an output of its graph."""
        return self in self.graph.output_set

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Variable(_Tensor, gs.Variable):  # type: ignore[misc] # graphsurgeon has no types
    """A tensor that is computed, or given to the graph."""

    dtype: int
    shape: Shape | None
    type = "tensor_type"
    is_constant = False
    default: Values | None = None
    """Initial values of a graph input that a caller may override (IR version 4 and later)."""

    def __init__(self, name: str, graph: Graph, dtype: int = 0, shape: Shape | None = None) -> None:
        fields = self.__dict__
        fields["name"] = name
        fields["graph"] = graph
        fields["dtype"] = dtype
        fields["shape"] = shape
        fields["inputs"] = _Links(self, "outputs")
        fields["outputs"] = _Links(self, "inputs")


def hidden(name: str, node: Node, like: Tensor) -> Variable:
    """Give a tensor that a node computes on its way and has no output for: nobody reads it."""
    tensor = Variable(name, node.graph, like.dtype, like.shape)
    tensor.__dict__["inputs"] = [node]
    return tensor


class Constant(_Tensor, gs.Constant):  # type: ignore[misc] # graphsurgeon has no types
    """An initializer, or the output of a Constant node."""

    # They stand here because graphsurgeon has properties of these names.
    dtype: int = 0
    shape: tuple[int, ...] = ()
    is_constant = True
    origin: Origin | None = None
    """The Constant node that it stems from, None for an initializer or a new constant."""
    order: tuple[int, ...] = (-1,)
    """Place of that Constant node among the nodes of its graph."""
    new: bool
    """Whether a rewrite made it."""
    data_location = None
    _export_dtype = None

    def __init__(self, name: str, graph: Graph, values: Values, *, new: bool = False) -> None:
        fields = self.__dict__
        fields["name"] = name
        fields["graph"] = graph
        fields["new"] = new
        fields["_values"] = values
        fields["dtype"] = values.dtype
        fields["shape"] = values.shape
        fields["inputs"] = _Links(self, "outputs")
        fields["outputs"] = _Links(self, "inputs")

    @property
    def values(self) -> np.ndarray[Any, Any]:
        """Its values, read anew where they are large. Raises `ValuesUnavailable`."""
        loaded: np.ndarray[Any, Any] = self._values.load()
        return loaded

    @property
    def lazy(self) -> Values:
        """The values, unread."""
        lazy: Values = self._values
        return lazy

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


Tensor: TypeAlias = Variable | Constant


class Node(gs.Node):  # type: ignore[misc] # graphsurgeon has no types
    """An operator with its attributes as Python values; `inputs` and `outputs` are lists.

    An omitted input or output is a tensor whose name is empty. Attributes of types that have no
    plain Python value (tensors, types) stay AttributeProtos; a subgraph is a `Graph`.
    """

    op: str
    name: str
    attrs: dict[str, Any]
    inputs: list[Tensor]
    outputs: list[Tensor]
    graph: Graph
    origin: Origin | None
    like: Node | None
    """The node whose metadata (module path, source line) a new node bears on."""
    order: tuple[int, ...]
    """Key by which nodes are sorted before the topological order has its say."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(
        self,
        op: str,
        graph: Graph,
        *,
        name: str = "",
        domain: str = "",
        attrs: dict[str, Any] | None = None,
        inputs: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        origin: Origin | None = None,
        like: Node | None = None,
    ) -> None:
        fields = self.__dict__
        fields["op"] = op
        fields["name"] = name
        fields["domain"] = domain
        fields["attrs"] = {} if attrs is None else attrs
        fields["graph"] = graph
        fields["origin"] = origin
        fields["like"] = like
        fields["order"] = (-1,)
        fields["inputs"] = read = _Links(self, "outputs")
        fields["outputs"] = written = _Links(self, "inputs")
        list.extend(read, inputs)
        list.extend(written, outputs)
        for tensor in inputs:
            list.append(tensor.outputs, self)
        for tensor in outputs:
            list.append(tensor.inputs, self)

    @property
    def y(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    def input(self, index: int) -> Tensor | None:
        """Give the input at a position; None where it is omitted."""
        if index >= len(self.inputs) or not self.inputs[index].name:
            return None
        return self.inputs[index]

    def output(self, index: int) -> Tensor | None:
        """Give the output at a position; None where it is omitted."""
        if index >= len(self.outputs) or not self.outputs[index].name:
            return None
        return self.outputs[index]

    @property
    def is_standard(self) -> bool:
        """Whether the operator is of the ai.onnx domain."""
        return self.domain in {"", "ai.onnx", None}

    @property
    def proto(self) -> NodeProto | None:
        """The NodeProto that describes it, or the node it replaces; None where there is none."""
        node: Node | None = self
        while node is not None:
            if node.origin is not None:
                return node.origin.proto
            node = node.like
        return None

    def __repr__(self) -> str:
        return f"<{self.op} {self.name or self.outputs}>"


class Graph(gs.Graph):  # type: ignore[misc] # graphsurgeon has no types
    """A graph or subgraph."""

    nodes: list[Node]
    inputs: list[Variable]
    outputs: list[Tensor]
    opset: int

    def __init__(self, name: str, *, opset: int, path: str, parent: Node | None = None) -> None:
        super().__init__(name=name, opset=opset)
        self.path = path
        """`graph`, or for a subgraph `graph/<node>.<attribute>`."""
        self.parent = parent
        """The If, Loop or Scan node that holds it."""
        self.constants: list[Constant] = []
        """Initializers and Constant nodes, in the file's order."""
        self.output_set: frozenset[Tensor] = frozenset()
        self.call_sizes: dict[int, int] = {}
        """Nodes that each expanded call was expanded to, by the call's index."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def subgraphs(self, recursive: bool = False) -> Iterator[Graph]:
        """Give the graphs in the attributes of its nodes, and with `recursive` those within."""
        pending: list[Graph] = [self]
        while pending:
            for node in pending.pop().nodes:
                if not node.attrs:
                    continue
                for value in node.attrs.values():
                    if isinstance(value, Graph):
                        yield value
                        if recursive:
                            pending.append(value)

    def scopes(self) -> Iterator[Graph]:
        """Give this graph and all its subgraphs, outer ones first."""
        yield self
        yield from self.subgraphs(recursive=True)

    def __repr__(self) -> str:
        return f"<graph {self.path}>"
