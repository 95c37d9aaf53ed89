"""The user's own inputs: an npz file with an array for each input of the model.

An array holds one input, or many: with one axis more than the input has, its first axis counts
them; where the input's batch is fixed to 1, so does an array of a larger batch.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Array = np.ndarray[Any, Any]
    Feed = dict[str, Array]

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


@dataclass(frozen=True)
class Samples:
    """Arrays by the name of the input."""

    arrays: Mapping[str, Array]
    source: str = ""

    @property
    def count(self) -> int:
        """How many samples it seems to hold, for a bar of progress."""
        return max((len(values) for values in self.arrays.values() if values.ndim), default=1)

    def feeds(self, inputs: Sequence[Any]) -> Iterator[Feed]:
        """Give one feed after the other for the inputs of an onnxruntime session.

        Raises UsageError where an input has no array or one of another shape, or where arrays count
        differently.
        """
        wanted = {value.name: value for value in inputs}
        missing = sorted(wanted.keys() - self.arrays.keys())
        if missing:
            held = ", ".join(sorted(self.arrays)) or "nothing"
            raise UsageError(f"{self.source} has no array for the input {missing[0]!r}, but {held}")
        parts = {name: _parts(self.arrays[name], value) for name, value in wanted.items()}
        for name, value in wanted.items():
            self._require_fit(parts[name], value)
        counts = {len(part) for part in parts.values() if len(part) > 1}
        if len(counts) > 1:
            raise UsageError(f"{self.source} holds arrays of {sorted(counts)} samples")
        for index in range(max(counts, default=1)):
            yield {name: part[index if len(part) > 1 else 0] for name, part in parts.items()}

    def _require_fit(self, parts: Sequence[Array], wanted: Any) -> None:
        if not parts:
            raise UsageError(f"the array for the input {wanted.name!r} in {self.source} is empty")
        part = parts[0]
        # An input of unknown rank looks like a scalar.
        fits = not wanted.shape or (
            part.ndim == len(wanted.shape)
            and all(
                extent == other or not isinstance(other, int)
                for extent, other in zip(part.shape, wanted.shape, strict=True)
            )
        )
        if not fits:
            raise UsageError(
                f"the array for the input {wanted.name!r} in {self.source} has the shape "
                f"{[*self.arrays[wanted.name].shape]}, and the model wants {wanted.shape}"
            )


def read_samples(path: Path) -> Samples:
    """Read an npz file. Raises UsageError where there is none, or none that can be read safely."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return Samples({name: archive[name] for name in archive.files}, str(path))
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror or fault}") from fault
    except (ValueError, AttributeError, TypeError, EOFError, zipfile.BadZipFile) as fault:
        raise UsageError(f"{path} is no npz file of plain arrays") from fault


def _parts(values: Array, wanted: Any) -> list[Array]:
    dtype = _TYPES.get(wanted.type)
    if dtype is not None:
        values = values.astype(dtype, copy=False)
    rank = len(wanted.shape)
    if values.ndim == rank + 1:
        return [np.asarray(part) for part in values]
    fixed = rank > 0 and wanted.shape[0] == 1
    if values.ndim == rank and fixed and values.shape[0] > 1:
        return [values[index : index + 1] for index in range(values.shape[0])]
    return [values]
