"""Running the whole model before and after its repairs, besides the proof of each rewrite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from normlint.graph import Variable, build_graph
from normlint.model import SaveError, ValuesUnavailable, save_bytes
from normlint.runtime import session_of
from normlint.verify.region import TOLERANCES
from normlint.verify.samples import assignments, feeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from onnx import ModelProto

    from normlint.model import ModelFile

    Array = np.ndarray[Any, Any]


def compare_models(
    model: ModelFile,
    repaired: ModelProto,
    new_values: Sequence[Callable[[], Array]],
    inputs: Path | None,
) -> str | None:
    """Run a model and its repaired form without optimisation; say what moved, if anything did.

    `inputs` is an npz file with one array for each graph input; without it inputs are made up.
    A model that no message of 2 GiB holds cannot be run here, and that is what is said.
    """
    try:
        before = runtime_of(model, save_bytes(model, model.proto, ()))
        after = runtime_of(model, save_bytes(model, repaired, new_values))
    except (SaveError, ValuesUnavailable, RuntimeError) as fault:
        return f"it cannot be run: {fault}"
    tried = 0
    for feed in _feeds(model, inputs):
        try:
            old = before.run(None, feed)
        except Exception:  # noqa: BLE001, S112 - extents that the model does not take
            continue
        tried += 1
        problem = _moved(before, old, after.run(None, feed))
        if problem:
            return problem
    return None if tried else "no inputs were found that it accepts; give some with --inputs"


def runtime_of(model: ModelFile, data: bytes) -> Any:
    """Load a model, or a changed form of it, into onnxruntime without optimisation.

    Raises RuntimeError with the first line of what the runtime says.
    """
    folder = "" if model.path is None else str(model.path.parent)
    try:
        return session_of(data, folder=folder)
    except Exception as fault:
        raise RuntimeError(str(fault).splitlines()[0]) from fault


def _feeds(model: ModelFile, inputs: Path | None) -> Iterator[dict[str, Array]]:
    if inputs is not None:
        with np.load(inputs, allow_pickle=False) as archive:
            yield {name: archive[name] for name in archive.files}
        return
    graph = build_graph(model.proto, model.values)
    tensors = [t for t in graph.inputs if isinstance(t, Variable) and t.default is None]
    for sizes in assignments(tensors):
        for _, feed in feeds(tensors, sizes):
            yield feed


def _moved(session: Any, before: list[Array], after: list[Array]) -> str | None:
    for value, old, new in zip(session.get_outputs(), before, after, strict=True):
        if not isinstance(old, np.ndarray) or old.dtype.kind not in "fV" or old.size == 0:
            continue
        reference = old.astype(np.float64)
        usable = np.isfinite(reference)
        if not usable.any():
            continue
        scale = float(np.abs(reference[usable]).max()) or 1.0
        error = float(np.abs(new.astype(np.float64) - reference)[usable].max()) / scale
        # An error grows over the depth of a network; a region's tolerance is for a few nodes.
        limit = 100 * {8: TOLERANCES[11], 4: TOLERANCES[1], 2: TOLERANCES[10]}[old.dtype.itemsize]
        if not error <= limit:
            return f"{value.name} by {error:.2e} of its scale"
    return None
