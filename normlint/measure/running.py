"""Running a model with what its norms read as outputs besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx

from normlint.context.quantized import has_statistics
from normlint.graph import build_graph
from normlint.measure.calibration import read_samples
from normlint.measure.statistics import NormStatistics
from normlint.model import SaveError, ValuesUnavailable, save_bytes
from normlint.usage import UsageError
from normlint.verify.whole import runtime_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from normlint.context import Context
    from normlint.graph import Graph, Tensor
    from normlint.measure.calibration import Samples
    from normlint.model import ModelFile
    from normlint.normalization import Normalization


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
    """Run a model on samples and give what its norms saw; those in subgraphs are not measured.

    Raises UsageError where the model does not run on them.
    """
    norms = [norm for norm in context.norms if is_visible(norm.x, context.graph)]
    norms = [norm for norm in norms if has_statistics(norm)]
    names = list(dict.fromkeys(norm.x.name for norm in norms))
    measured = Measured({norm.y.name: NormStatistics() for norm in norms})
    session = open_session(model, names)
    for feed in samples.feeds(session.get_inputs()):
        values = dict(zip(names, run(session, names, feed), strict=True))
        for norm in norms:
            measured.norms[norm.y.name].add(values[norm.x.name], norm)
        measured.samples += 1
        done()
    return measured


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


def is_visible(tensor: Tensor, graph: Graph) -> bool:
    """Whether a tensor can be an output of the model: not in a subgraph nor in a function."""
    if tensor.graph is not graph or tensor.is_constant:
        return False
    node = tensor.producer
    return node is None or node.origin is None or not node.origin.functions


def open_session(model: ModelFile, extra_outputs: list[str]) -> Any:
    """Load a model into onnxruntime, without optimisation. Raises UsageError."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    known = {value.name for value in proto.graph.output}
    given = {value.name for value in proto.graph.input}
    for name in extra_outputs:
        if name not in known and name not in given:
            proto.graph.output.append(onnx.ValueInfoProto(name=name))
    return session_of(model, proto, ())


def session_of(model: ModelFile, proto: onnx.ModelProto, new_values: Any) -> Any:
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
        reason = str(fault).splitlines()[0]
        raise UsageError(f"the model does not run on the data: {reason}") from fault
    values = dict(zip(wanted, found, strict=True)) | feed
    return [values[name] for name in names]
