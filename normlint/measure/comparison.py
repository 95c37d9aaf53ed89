"""How far the outputs of a model are from those of the float model that it was made from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.deferred import dataclass
from normlint.measure.running import loaded, run
from normlint.model import FileFault, open_model
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from normlint.measure.calibration import Samples
    from normlint.model import ModelFile

    Array = np.ndarray[Any, Any]
    NewValues = Sequence[Callable[[], Array]]


@dataclass(frozen=True)
class Distance:
    """Over all float outputs and samples together."""

    relative_error: float
    """Length of the difference over the length of the reference."""
    cosine: float
    sqnr: float
    """Signal to quantisation noise, in decibel."""

    @classmethod
    def of(cls, got: Array, truth: Array) -> Distance:
        """Compare two vectors."""
        size, noise = float(np.linalg.norm(truth)), float(np.linalg.norm(got - truth))
        beside = size * float(np.linalg.norm(got))
        return cls(
            noise / size if size else math.inf,
            float(got @ truth) / beside if beside else 0.0,
            20 * math.log10(size / noise) if size and noise else math.inf,
        )


@dataclass(frozen=True)
class Comparison:
    """A model before and after its repairs, against the float model."""

    reference: str
    samples: int
    before: Distance
    after: Distance

    @property
    def helps(self) -> bool:
        """Whether the repairs bring the outputs nearer to those of the float model."""
        return self.after.relative_error < self.before.relative_error


class Judge:
    """Compares forms of one model with the float model, on the user's data."""

    def __init__(self, model: ModelFile, reference: Path | None, samples: Samples) -> None:
        """Take the model itself, as it was read, for the reference where none is given."""
        self.model = model
        self.reference = reference
        self.samples = samples
        self.truth = self._of_reference()
        self.before = self.distance(model.proto, ())

    def compare(self, proto: ModelProto, new_values: NewValues) -> Comparison:
        """Compare a repaired form, and the model as it was. Raises UsageError."""
        after = self.distance(proto, new_values)
        name = self.model.name if self.reference is None else str(self.reference)
        return Comparison(name, len(self.truth), self.before, after)

    def distance(self, proto: ModelProto, new_values: NewValues) -> Distance:
        """Say how far the outputs of a form are from the float model's. Raises UsageError."""
        got = _outputs(loaded(self.model, proto, new_values), self.samples)
        pairs = [_paired(mine, other) for mine, other in zip(got, self.truth, strict=True)]
        return Distance.of(*(np.concatenate(part) for part in zip(*pairs, strict=True)))

    def _of_reference(self) -> list[dict[str, Array]]:
        if self.reference is None:
            return _outputs(loaded(self.model, self.model.proto, ()), self.samples)
        try:
            reference = open_model(self.reference, name=str(self.reference))
        except FileFault as fault:
            raise UsageError(f"--reference {self.reference}: {fault.message}") from fault
        return _outputs(loaded(reference, reference.proto, ()), self.samples)


def _outputs(session: Any, samples: Samples) -> list[dict[str, Array]]:
    names = [value.name for value in session.get_outputs()]
    return [
        dict(zip(names, run(session, names, feed), strict=True))
        for feed in samples.feeds(session.get_inputs())
    ]


def _paired(mine: dict[str, Array], other: dict[str, Array]) -> tuple[Array, Array]:
    """Give the float outputs of both as vectors: by name, else in their order."""
    names = list(mine) if mine.keys() == other.keys() else None
    theirs = [other[name] for name in names] if names else list(other.values())
    got, truth = [], []
    for a, b in zip(mine.values(), theirs, strict=False):
        if a.dtype.kind in "fV" and a.shape == b.shape:
            got.append(a.astype(np.float64).reshape(-1))
            truth.append(b.astype(np.float64).reshape(-1))
    if not got:
        raise UsageError("the reference has no float output in common with the model")
    return np.concatenate(got), np.concatenate(truth)
