"""What a rule is, what it says, and the repairs that it may propose.

A rule is stateless: it reads facts from a `Context`, yields diagnostics and never changes a graph.
A repair is a description (`Rewrite`) that the engine verifies before it carries it out.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from normlint.deferred import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np

    from normlint.context import Context
    from normlint.graph import Node, Tensor


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Wrong, or will fail."""
    WARNING = "warning"
    """Costs accuracy, time or portability."""
    INFO = "info"
    """Worth knowing."""

    @property
    def rank(self) -> int:
        """0 for info, 2 for error."""
        return ("info", "warning", "error").index(self.value)


class Applicability(StrEnum):
    """Who decides whether a repair is made."""

    SAFE = "safe"
    """The same function up to rounding: `--apply` makes it."""
    UNSAFE = "unsafe"
    """Changes the function or needs a judgement: `--unsafe-fixes` besides."""


class Reason(StrEnum):
    """Why a thing is not rewritten."""

    ACTIVATION_BETWEEN = "activation-between"
    OTHER_READER = "other-reader"
    GRAPH_OUTPUT = "graph-output"
    SHARED_WEIGHTS = "shared-weights"
    WEIGHTS_NOT_CONSTANT = "weights-not-constant"
    OVERRIDABLE_INPUT = "overridable-input"
    PADDING = "padding"
    BATCH_STATISTICS = "batch-statistics"
    QUANTIZED_BETWEEN = "quantized-between"
    CHANNEL_AXIS_MOVED = "channel-axis-moved"
    SHAPE_UNKNOWN = "shape-unknown"
    TYPE_MISMATCH = "type-mismatch"
    WOULD_OVERFLOW = "would-overflow"
    NO_LINEAR_NEIGHBOUR = "no-linear-neighbour"
    NOT_ZERO_MEAN = "not-zero-mean"
    READER_NOT_SHIFT_INVARIANT = "reader-not-shift-invariant"
    WRITER_NOT_LINEAR = "writer-not-linear"
    TIED_WEIGHTS = "tied-weights"
    OPSET = "opset"
    TARGET = "target"
    BROADCAST = "broadcast"
    VERIFICATION = "verification"


class OutOfRange(ValueError):  # noqa: N818 - it is a reason and no error
    """A new constant cannot be held by its element type."""


@dataclass(frozen=True, eq=False)
class NotFixed:
    """Why there is no repair, and the node or tensor that causes it."""

    reason: Reason
    at: Node | Tensor | None = None
    detail: str = ""


@dataclass(frozen=True, eq=False)
class Computed:
    """A new constant whose values are computed when they are needed, and not kept.

    `compute` returns an array of exactly `shape`, in any float type; it is cast once to `dtype` (a
    TensorProto.DataType). Compute in float64. It may raise OutOfRange.
    """

    shape: tuple[int, ...]
    dtype: int
    compute: Callable[[], np.ndarray[Any, Any]]
    name: str = ""
    """Wish for a name, for example that of the tensor it stands in for; made unique."""


@dataclass(frozen=True, eq=False)
class NewNode:
    """A node that a rewrite adds.

    An input is a tensor of the graph, a new constant, another new node (its first output), or None
    where it is omitted. `like` names the node whose name, module path and source line it takes
    over.
    """

    op: str
    inputs: tuple[Operand, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    like: Node | None = None
    domain: str = ""
    outputs: int = 1


Operand: TypeAlias = "Tensor | Computed | NewNode | None"


@dataclass(frozen=True, eq=False)
class Replace:
    """The outputs of a new node take over these tensors, their names and all their readers.

    None stands for an output of the new node that nobody read before.
    """

    tensors: tuple[Tensor | None, ...]
    by: NewNode


@dataclass(frozen=True, eq=False)
class Redirect:
    """All readers of a tensor read another one instead, in its own type and shape."""

    tensor: Tensor
    to: Tensor


Edit: TypeAlias = "Replace | Redirect"


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A repair: edits that are verified together and made together, or not at all."""

    title: str
    """What it does, as in `replace by LayerNormalization(axis=-1, epsilon=1e-05)`."""
    applicability: Applicability
    edits: tuple[Edit, ...]
    region: tuple[Node, ...]
    """The nodes that computed the replaced values: what verification runs before, and cuts out."""
    opset: int = 0
    """The least opset that the new nodes need; 0 where the model's own will do."""
    targets: frozenset[str] = frozenset()
    """Runtimes that must be among the targets for it to be made; empty for standard operators."""
    approximate: bool = False
    """Whether the numbers move on purpose (unsafe rewrites), so that equality is not asked."""
    invalid_before: bool = False
    """Whether the old nodes break their operator's definition, so that maybe none runs them."""
    tolerance: float = 0.0
    """Relative error that the new operator's own definition has where the mean is 100 deviations;
    where it is less, it is taken to be less in proportion."""
    centred: Mapping[Tensor, tuple[int, ...]] = field(default_factory=dict)
    """Tensors from which it takes the mean over some axes (negative): a proof may be cut there."""
    rounding: float = 0.0
    """Relative error that new weights leave which are rounded to half precision."""


@dataclass(frozen=True, eq=False)
class Diagnostic:
    """What a rule says of one place in one model."""

    message: str
    node: Node | None = None
    """The node that it is about."""
    nodes: tuple[Node, ...] = ()
    """All nodes that it is about."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Plain values (str, int, float, list, dict) for machine-readable output."""
    rewrite: Rewrite | None = None
    not_fixed: NotFixed | None = None
    severity: Severity | None = None
    """Where it differs from the rule's own."""
    output: Tensor | None = None
    """The tensor it is about; the first output of `node` by default."""

    def without_rewrite(self, reason: NotFixed) -> Diagnostic:
        """Give the same diagnostic with the reason why its rewrite is not made."""
        return replace(self, rewrite=None, not_fixed=reason)


ExampleText: TypeAlias = "str | tuple[str, dict[str, Any]]"
"""A graph in ONNX text, or with fields of `Settings` under which a rule is to see it."""


class Rule:
    """A rule: a subclass in a file of its own, named as the rule is (with underscores).

    The docstring is the rule's page: its first line says what is complained of, headings follow
    (`## Why is this bad?`, `## Example`, `## When not to follow it`, `## References`).
    """

    code: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING
    applicability: ClassVar[Applicability | None] = None
    """The applicability of its repair, None where it has none; each Rewrite bears its own."""
    preview: ClassVar[bool] = False
    bad: ClassVar[tuple[ExampleText, ...]] = ()
    """Graphs in ONNX text that it reports once, and repairs where it can; see `testing`."""
    good: ClassVar[tuple[ExampleText, ...]] = ()
    """Graphs in ONNX text about which it is silent."""

    @property
    def name(self) -> str:
        """The rule's name, after its file: what is complained of, not the cure."""
        return type(self).__module__.rpartition(".")[2].replace("_", "-")

    def check(self, context: Context) -> Iterable[Diagnostic]:
        """Yield a diagnostic for each place in the model that the rule complains of."""
        raise NotImplementedError
