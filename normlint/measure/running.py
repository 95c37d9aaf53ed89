"""Running a model with what its norms read as outputs besides."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import onnx

from normlint.context.quantized import has_statistics
from normlint.deferred import dataclass
from normlint.graph import build_graph
from normlint.measure.calibration import read_samples
from normlint.measure.exposing import expose
from normlint.measure.statistics import NormStatistics
from normlint.model import SaveError, ValuesUnavailable, save_bytes
from normlint.usage import UsageError
from normlint.verify.whole import runtime_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np

    from normlint.context import Context
    from normlint.measure.calibration import Samples
    from normlint.model import ModelFile
    from normlint.normalization import Normalization

    Array = np.ndarray[Any, Any]


@dataclass
class Measured:
    """Statistics by the name of the tensor that a norm reads."""

    norms: dict[str, NormStatistics] = field(default_factory=dict)
    samples: int = 0

    def of(self, norm: Normalization) -> NormStatistics | None:
        """Give what a norm saw; None where it was not measured."""
        found = self.norms.get(norm.y.name)
        return found if found is not None and found.rows else None


def measure_norms(
    model: ModelFile,
    context: Context,
    samples: Samples,
    done: Callable[[], None] = lambda: None,
) -> Measured:
    """Run a model on samples and give what its norms saw, in loops once for each iteration.

    Raises UsageError where the model does not run on them.
    """
    norms = [norm for norm in context.norms if has_statistics(norm) and not norm.x.is_constant]
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    exposed = expose(proto, {norm.x.name: norm.x.dtype or norm.dtype for norm in norms})
    norms = [norm for norm in norms if norm.x.name in exposed]
    names = list(dict.fromkeys(exposed[norm.x.name].name for norm in norms))
    measured = Measured({norm.y.name: NormStatistics() for norm in norms})
    session = loaded(model, proto, ())
    for feed in samples.feeds(session.get_inputs()):
        values = dict(zip(names, run(session, names, feed), strict=True))
        for norm in norms:
            where = exposed[norm.x.name]
            for part in _iterations(values[where.name], where.loops):
                measured.norms[norm.y.name].add(part, norm)
        measured.samples += 1
        done()
    return measured


def _iterations(values: Array, loops: int) -> Iterator[Array]:
    """Give the values of each iteration, which axes in front count."""
    yield from values.reshape(-1, *values.shape[loops:]) if loops and values.size else (values,)


@dataclass
class MeasureOnce:
    """Measures a model when somebody first asks, for all contexts of it that follow."""

    model: ModelFile
    data: Path
    _found: Measured | None = None

    def __call__(self, context: Context) -> Measured:
        """Give the statistics of the model as it was read. Raises UsageError."""
        if self._found is None:
            graph = build_graph(self.model.proto, self.model.values)
            before = type(context)(graph, context.settings)
            self._found = measure_norms(self.model, before, read_samples(self.data))
        return self._found


def loaded(model: ModelFile, proto: onnx.ModelProto, new_values: Any) -> Any:
    """Load a model, or a changed form of it, into onnxruntime. Raises UsageError."""
    try:
        return runtime_of(model, save_bytes(model, proto, new_values))
    except (SaveError, ValuesUnavailable) as fault:
        raise UsageError(f"{model.name} cannot be run: {fault}") from fault
    except RuntimeError as fault:
        raise UsageError(f"{model.name} does not load in onnxruntime: {fault}") from fault


def run(session: Any, names: list[str], feed: dict[str, Any]) -> list[Any]:
    """Run a session; inputs are given back as they are. Raises UsageError."""
    wanted = [name for name in names if name not in feed]
    try:
        found = session.run(wanted, feed) if wanted else []
    except Exception as fault:
        reason = " ".join(str(fault).split())
        raise UsageError(f"the model does not run on the data: {reason}") from fault
    values = dict(zip(wanted, found, strict=True)) | feed
    return [values[name] for name in names]
