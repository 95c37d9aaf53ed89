"""Tensors without their bytes: what stands in a skeleton where a large tensor was.

A placeholder is a TensorProto with external data, whose location no file can have: `SELF` for bytes
of the model file itself, `NEW` for values that do not exist in any file yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from normlint.model.wire import LENGTH, VARINT, delimited, key, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

MARK = "\0normlint:"
"""No file name holds a NUL character, so no model means a file by it."""
SELF = MARK + "self"
NEW = MARK + "new"

DIMS, FLOAT_DATA, RAW_DATA, DOUBLE_DATA, EXTERNAL_DATA, DATA_LOCATION = 1, 4, 9, 10, 13, 14
"""Field numbers of TensorProto."""

_EXPLICIT = "default"


class Held(NamedTuple):
    """What a `SELF` placeholder stands for."""

    offset: int
    length: int
    field: int
    """The field of TensorProto that the bytes fill: `RAW_DATA`, `FLOAT_DATA` or `DOUBLE_DATA`."""
    explicit: bool
    """Whether `data_location` was written out, with its default."""


def held_fields(held: Held) -> bytes:
    """Encode the fields that make a TensorProto a `SELF` placeholder."""
    entries = {"location": SELF, "offset": str(held.offset), "length": str(held.length)}
    if held.field != RAW_DATA or held.explicit:
        # The one key that onnx knows and that has no meaning for a model that is not being saved.
        entries["basepath"] = f"{held.field} {_EXPLICIT if held.explicit else ''}".strip()
    encoded = [
        delimited(EXTERNAL_DATA, delimited(1, name.encode()) + delimited(2, value.encode()))
        for name, value in entries.items()
    ]
    return b"".join([*encoded, key(DATA_LOCATION, VARINT), varint(1)])


def block_head(field: int, length: int) -> bytes:
    """Encode what stands in front of a tensor's bytes."""
    return key(field, LENGTH) + varint(length)


def new_tensor(name: str, data_type: int, dims: Sequence[int], index: int) -> onnx.TensorProto:
    """Return a tensor whose values `save_model` takes from `new_values[index]` when it writes."""
    import onnx

    tensor = onnx.TensorProto(
        name=name,
        data_type=data_type,
        dims=dims,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for entry, value in (("location", NEW), ("offset", str(index))):
        tensor.external_data.add(key=entry, value=value)
    return tensor


def location(tensor: onnx.TensorProto) -> str | None:
    """Return where the data lies: `SELF`, `NEW`, a side file; None if inside the tensor."""
    if tensor.data_location != 1:
        return None
    return reference(tensor).get("location", "")


def reference(tensor: onnx.TensorProto) -> dict[str, str]:
    """Return the entries of `external_data`; of two with the same key the last counts."""
    return {_text(entry.key): _text(entry.value) for entry in tensor.external_data}


def _text(value: str | bytes) -> str:
    """Give text of a message; what is no UTF-8, protobuf gives as bytes."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def held(tensor: onnx.TensorProto) -> Held:
    """Return what a `SELF` placeholder stands for."""
    entries = reference(tensor)
    number, _, explicit = entries.get("basepath", str(RAW_DATA)).partition(" ")
    return Held(int(entries["offset"]), int(entries["length"]), int(number), bool(explicit))


def new_index(tensor: onnx.TensorProto) -> int:
    """Return which of the new values a `NEW` placeholder stands for."""
    return int(reference(tensor)["offset"])
