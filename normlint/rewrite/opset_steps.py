"""What a node says at one opset, said as a later one does: a converter for each change of meaning.

Sources: the operators' change logs (https://onnx.ai/onnx/operators/) and the version converter of
onnx, which leaves out some of these (the parameters of GroupNormalization, for example).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from normlint.deferred import dataclass
from normlint.graph import Constant
from normlint.rule import Computed, NewNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from normlint.graph import Node
    from normlint.rule import Operand

    Convert = Callable[["Draft"], None]


class Unfaithful(Exception):  # noqa: N818 - a reason, no error of the user's
    """A newer opset cannot say what the node computes; the message says why."""


@dataclass
class Draft:
    """A node while it is rephrased."""

    node: Node
    op: str
    inputs: list[Operand]
    attrs: dict[str, Any]
    changed: bool = False
    keeps_outputs: bool = True
    """Whether all outputs stay; otherwise the first one only."""
    flattened: int | None = None
    """Axis before and behind which the input is flattened to two axes, and the output back."""

    @classmethod
    def of(cls, node: Node) -> Draft:
        """Begin with the node as it is."""
        inputs: list[Operand] = [tensor if tensor.name else None for tensor in node.inputs]
        return cls(node, node.op, inputs, dict(node.attrs))

    def take(self, name: str, default: Any = None) -> Any:
        """Take an attribute away."""
        if name in self.attrs:
            self.changed = True
        return self.attrs.pop(name, default)

    def set(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self.changed = True
        self.attrs[name] = value

    def put(self, index: int, operand: Operand) -> None:
        """Set an input; those between are omitted."""
        self.changed = True
        self.inputs.extend([None] * (index + 1 - len(self.inputs)))
        self.inputs[index] = operand

    def finished(self, outputs: int) -> NewNode:
        """Give the new node."""
        if self.flattened is None:
            return NewNode(self.op, tuple(self.inputs), self.attrs, self.node, outputs=outputs)
        x = self.inputs[0]
        shape = NewNode("Shape", (x,), like=self.node)
        flat = NewNode("Flatten", (x,), {"axis": self.flattened}, self.node)
        made = NewNode(self.op, (flat, *self.inputs[1:]), self.attrs, self.node)
        return NewNode("Reshape", (made, shape), like=self.node)


def _integers(values: Sequence[int]) -> Computed:
    return Computed((len(values),), TensorProto.INT64, lambda: np.asarray(values, np.int64))


def _number(value: float, dtype: int) -> Computed:
    return Computed((), dtype, lambda: np.asarray(value, np.float64))


def _attribute_to_input(name: str, index: int) -> Convert:
    """Convert a list of integers, or one integer, from an attribute to an input."""

    def convert(draft: Draft) -> None:
        value = draft.take(name)
        if value is not None:
            draft.put(index, _integers(value if isinstance(value, list) else [value]))

    return convert


def _clip(draft: Draft) -> None:
    dtype = draft.node.inputs[0].dtype
    for index, name in ((1, "min"), (2, "max")):
        value = draft.take(name)
        if value is None:
            continue
        if not dtype:
            raise Unfaithful("the type of its input is not known")
        draft.put(index, _number(value, dtype))


def _pad(draft: Draft) -> None:
    draft.put(1, _integers(draft.take("pads", [])))
    value = draft.take("value", 0.0)
    if value:
        dtype = draft.node.inputs[0].dtype
        if not dtype:
            raise Unfaithful("the type of its input is not known")
        draft.put(2, _number(value, dtype))


def _slice(draft: Draft) -> None:
    starts, ends, axes = draft.take("starts"), draft.take("ends"), draft.take("axes")
    if starts is None or ends is None:
        raise Unfaithful("it has no starts or ends")
    draft.put(1, _integers(starts))
    draft.put(2, _integers(ends))
    if axes is not None:
        draft.put(3, _integers(axes))


def _dropout(draft: Draft) -> None:
    _only_first_output(draft)
    ratio = draft.take("ratio")
    if ratio is not None:
        draft.put(1, _number(ratio, TensorProto.FLOAT))


def _only_first_output(draft: Draft) -> None:
    """Drop outputs that nobody reads and that mean another thing above."""
    for tensor in draft.node.outputs[1:]:
        if tensor.name and (tensor.consumers or tensor.is_output):
            raise Unfaithful(f"its output {tensor.name} is read and means another thing there")
        draft.changed = draft.changed or bool(tensor.name)
        draft.keeps_outputs = False


def _is_test(draft: Draft) -> None:
    if not draft.take("is_test", 0):
        raise Unfaithful("it trains, for its is_test is not set")
    draft.take("consumed_inputs")


def _spatial(draft: Draft) -> None:
    if not draft.take("spatial", 1):
        raise Unfaithful("its spatial is 0")


def _upsample(draft: Draft) -> None:
    scales = draft.take("scales")
    values = [float(scale) for scale in scales or ()]
    draft.put(1, Computed((len(values),), TensorProto.FLOAT, lambda: np.asarray(values)))


def _upsample_to_resize(draft: Draft) -> None:
    draft.op, draft.changed = "Resize", True


def _resize(draft: Draft) -> None:
    """Say that coordinates are asymmetric, as they were before they could be chosen."""
    if len(draft.inputs) < 2:
        raise Unfaithful("it has no scales")
    empty = Computed((0,), TensorProto.FLOAT, lambda: np.zeros(0))
    draft.inputs = [draft.inputs[0], empty, draft.inputs[1]]
    draft.set("coordinate_transformation_mode", "asymmetric")
    if draft.attrs.get("mode", "nearest") == "nearest":
        draft.set("nearest_mode", "floor")


def _resize_to_sizes(draft: Draft) -> None:
    """Leave out the scales, which had to be there and empty where there are sizes."""
    if len(draft.inputs) > 3 and draft.inputs[3] is not None and draft.inputs[2] is not None:
        draft.put(2, None)


def _scatter(draft: Draft) -> None:
    draft.op, draft.changed = "ScatterElements", True


def _softmax(draft: Draft) -> None:
    """Normalise over all axes from one on, of which newer opsets know the one only."""
    rank = draft.node.inputs[0].rank
    axis = draft.attrs.get("axis", 1)
    if rank is not None and axis % rank == rank - 1:
        draft.set("axis", -1)
        return
    draft.flattened = axis
    draft.set("axis", -1)


def _split(draft: Draft) -> None:
    if len(draft.inputs) < 2 or draft.inputs[1] is None:
        draft.set("num_outputs", len(draft.node.outputs))


def _roi_align(draft: Draft) -> None:
    draft.set("coordinate_transformation_mode", "output_half_pixel")


def _grid_sample(draft: Draft) -> None:
    mode = draft.attrs.get("mode", "bilinear")
    draft.set("mode", {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _dft(draft: Draft) -> None:
    axis = draft.take("axis", 1)
    draft.put(2, Computed((), TensorProto.INT64, lambda: np.asarray(axis, np.int64)))


def _pool(draft: Draft) -> None:
    """Refuse what rounds up: a window that begins beyond the end is left out since then."""
    if draft.attrs.get("ceil_mode", 0):
        raise Unfaithful("its ceil_mode counts padding in another way there")


def _group_norm(draft: Draft) -> None:
    """Repeat the scale and the bias of each group for each of its channels."""
    for index in (1, 2):
        repeated = repeated_for_channels(draft.node, index)
        if repeated is not draft.node.inputs[index]:
            draft.put(index, repeated)


def repeated_for_channels(node: Node, index: int) -> Operand:
    """Give an input of GroupNormalization with a value for each channel. Raises Unfaithful."""
    tensor = node.input(index)
    groups = node.attrs.get("num_groups", 0)
    extents = node.inputs[0].shape or ()
    channels = extents[1] if len(extents) > 1 and isinstance(extents[1], int) else 0
    if tensor is None or channels < 1 or groups < 1 or channels % groups:
        raise Unfaithful("the number of its channels is not known")
    if tensor.shape == (channels,):
        return tensor
    if tensor.shape != (groups,):
        raise Unfaithful(f"{tensor.name} has no value for each group")
    if isinstance(tensor, Constant):
        constant, each = tensor, channels // groups
        return Computed(
            (channels,), tensor.dtype, lambda: np.repeat(constant.values, each), tensor.name
        )
    # [G] to [G, 1] to [G, C/G] to [C]: right also where a caller may override the values.
    column = NewNode("Unsqueeze", (tensor, _integers([1])), like=node)
    spread = NewNode("Expand", (column, _integers([groups, channels // groups])), like=node)
    return NewNode("Reshape", (spread, _integers([channels])), like=node)


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")

CONVERTERS: dict[tuple[str, int], Convert] = {
    ("BatchNormalization", 7): _is_test,
    ("BatchNormalization", 9): _spatial,
    ("BatchNormalization", 14): _only_first_output,
    ("Upsample", 9): _upsample,
    ("Resize", 10): _upsample_to_resize,
    ("Resize", 11): _resize,
    ("Resize", 13): _resize_to_sizes,
    ("Slice", 10): _slice,
    ("TopK", 10): _attribute_to_input("k", 1),
    ("Clip", 11): _clip,
    ("Pad", 11): _pad,
    ("ScatterElements", 11): _scatter,
    ("Dropout", 10): _only_first_output,
    ("Dropout", 12): _dropout,
    ("Softmax", 13): _softmax,
    ("LogSoftmax", 13): _softmax,
    ("Hardmax", 13): _softmax,
    ("Squeeze", 13): _attribute_to_input("axes", 1),
    ("Unsqueeze", 13): _attribute_to_input("axes", 1),
    ("ReduceSum", 13): _attribute_to_input("axes", 1),
    ("Split", 13): _attribute_to_input("split", 1),
    ("RoiAlign", 16): _roi_align,
    ("Split", 18): _split,
    **{(f"Reduce{what}", 18): _attribute_to_input("axes", 1) for what in _REDUCTIONS},
    ("AveragePool", 19): _pool,
    ("MaxPool", 22): _pool,
    ("LpPool", 22): _pool,
    ("GridSample", 20): _grid_sample,
    ("DFT", 20): _dft,
    ("GroupNormalization", 21): _group_norm,
}
"""By operator and the version whose definition changes the meaning."""
