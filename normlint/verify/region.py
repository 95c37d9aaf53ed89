"""Comparing a region before and after a rewrite, against float64 where an engine has it."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto

from normlint.deferred import dataclass
from normlint.graph import Variable
from normlint.model import ValuesUnavailable
from normlint.results import Verification
from normlint.rule import OutOfRange, Reason
from normlint.verify.conditioning import is_ill_conditioned
from normlint.verify.cut import Cut, cut_out
from normlint.verify.parts import (
    LARGEST_IN_DOUBLE,
    is_large,
    of_centred,
    pieces,
    weights_of,
    without_means,
)
from normlint.verify.runner import CannotRun, double, own_types, single
from normlint.verify.samples import assignments, feeds, share_of_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnx import ModelProto

    from normlint.context.constants import Constants
    from normlint.rule import Rewrite
    from normlint.verify.runner import Run
    from normlint.verify.samples import Sizes

    Array = np.ndarray[Any, Any]

TOLERANCES: dict[int, float] = {
    # The epsilon of every normalisation operator is a float, also where the tensors are double.
    TensorProto.DOUBLE: 1e-7,
    TensorProto.FLOAT: 1e-5,
    TensorProto.FLOAT16: 1e-2,
    TensorProto.BFLOAT16: 5e-2,
}
"""Error relative to the largest magnitude of an output, by the region's narrowest float."""

_MOST_HINTS = 8
_MOST_TARGETS = 64

_NOT_FINITE = "no longer finite"
"""In half precision that is no fault of the rewrite: a step on the way leaves the range sooner."""


@dataclass(frozen=True)
class Failure:
    """Why a rewrite was not proved."""

    detail: str
    moved: bool
    """Whether the numbers moved; False where no engine runs the region."""
    reason: Reason = Reason.VERIFICATION


@dataclass
class _Worst:
    absolute: float = 0.0
    relative: float = 0.0
    inputs: int = 0


def verify_rewrite(rewrite: Rewrite, constants: Constants, opset: int) -> Verification | Failure:
    """Run the region of a rewrite before and after on several inputs, without optimisation.

    The error of the new nodes against float64 may be twice that of the old ones, or the tolerance
    of the type, whichever is larger: the old ones may be the inaccurate ones.
    """
    if is_large(rewrite, constants):
        return _in_pieces(rewrite, constants, opset)
    return _verify(replace(rewrite, centred={}), constants, opset)


def _in_pieces(rewrite: Rewrite, constants: Constants, opset: int) -> Verification | Failure:
    """Prove a rewrite piece by piece; give the worst of their errors."""
    worst = Verification("region", 0.0, 0.0, 0.0, 0)
    for piece in pieces(rewrite):
        found = _verify(piece, constants, opset)
        if isinstance(found, Failure):
            return found
        worst = Verification(
            "region",
            max(worst.max_abs, found.max_abs),
            max(worst.max_rel, found.max_rel),
            max(worst.tolerance, found.tolerance),
            found.inputs,
        )
    return worst


def _verify(rewrite: Rewrite, constants: Constants, opset: int) -> Verification | Failure:
    try:
        cut = cut_out(rewrite, constants, opset)
    except OutOfRange as fault:
        return Failure(str(fault), moved=False, reason=Reason.WOULD_OVERFLOW)
    except (ValuesUnavailable, ValueError) as fault:
        return Failure(f"the changed nodes cannot be run: {fault}", moved=False)
    _complete(cut, constants)
    try:
        return _compare(rewrite, cut)
    except (CannotRun, ValuesUnavailable, ValueError) as fault:
        if rewrite.invalid_before and _loads(cut.after):
            return Verification("load", 0.0, 0.0, 0.0, 0)
        return Failure(f"the changed nodes cannot be run: {fault}", moved=False)


def _complete(cut: Cut, constants: Constants) -> None:
    """Give the inputs the shapes that follow from the operators before them.

    Where inference left even their rank open, the old nodes may run at a rank that never occurs.
    """
    for tensor in cut.region.inputs:
        if isinstance(tensor, Variable) and tensor.shape is None:
            tensor.shape = constants.shapes.of(tensor)


def _loads(model: ModelProto) -> bool:
    try:
        own_types(model)
    except CannotRun:
        return False
    return True


def _compare(rewrite: Rewrite, cut: Cut) -> Verification | Failure:
    refused = ""
    for found in _engines(cut):
        engines = _at_border(found, rewrite, cut)
        for sizes in assignments(cut.region.inputs, _hints(cut), _kept(cut)):
            trial = next(feeds(cut.region.inputs, sizes))[1]
            try:
                engines.before(trial)
            except Exception:  # noqa: BLE001, S112 - it refuses these extents, in its own words
                continue
            try:
                engines.after(trial)
            except Exception as fault:  # noqa: BLE001 - it may be the extents, or the rewrite
                refused = str(fault).splitlines()[0]
                continue
            return _judge(rewrite, cut, engines, sizes)
    if refused and not rewrite.invalid_before:
        # Extents that were guessed may be some that never occur; what is declared must run.
        return Failure(f"the new nodes do not run: {refused}", moved=not _has_open_extent(cut))
    unknown = ", and not even the rank of its inputs is known" if _has_open_rank(cut) else ""
    raise CannotRun(f"no extents were found that it accepts{unknown}")


def _at_border(engines: Engines, rewrite: Rewrite, cut: Cut) -> Engines:
    """Give engines that compare a piece of a rewrite without the means at its border."""
    centred, outputs = rewrite.centred, cut.region.outputs
    if not centred:
        return engines

    def compared(run: Run) -> Run:
        return without_means(run, outputs, centred)

    return replace(
        engines,
        before=compared(engines.before),
        after=of_centred(engines.after, cut.region.inputs, centred),
        exact=engines.exact and compared(engines.exact),
        compared=compared,
    )


def _kept(cut: Cut) -> set[int]:
    """Give all extents that the nodes rely on: those of constants, and what is in small ones."""
    kept: set[int] = set()
    for model in (cut.before, cut.after):
        for tensor in model.graph.initializer:
            kept.update(tensor.dims)
            if tensor.data_type == TensorProto.INT64 and math.prod(tensor.dims) <= _MOST_TARGETS:
                kept.update(onnx.numpy_helper.to_array(tensor).reshape(-1).tolist())
    return kept


def _hints(cut: Cut) -> list[int]:
    """Give extents that those of the inputs may have to fit: of the constants, and of each other.

    A weight of a convolution in groups asks for as many channels as all groups have.
    """
    extents: set[int] = set()
    for model in (cut.before, cut.after):
        for tensor in model.graph.initializer:
            extents.update(tensor.dims)
    for node in cut.region.nodes:
        weight = node.inputs[1].shape if node.op == "Conv" and len(node.inputs) > 1 else None
        if weight is not None and len(weight) > 1 and isinstance(weight[1], int):
            extents.add(weight[1] * int(node.attrs.get("group", 1)))
    for value in cut.region.inputs:
        extents.update(extent for extent in value.shape or () if isinstance(extent, int))
    wanted = sorted((extent for extent in extents if extent > 1), reverse=True)
    return [*wanted[:_MOST_HINTS], 1]


@dataclass(frozen=True)
class Engines:
    """Ways to run a region before and after, and before in double."""

    before: Run
    after: Run
    exact: Run | None
    dtype: int
    compared: Callable[[Run], Run] = lambda run: run
    """Gives of the results of old nodes what the new ones are compared with."""


def _engines(cut: Cut) -> Iterator[Engines]:
    """Give the ways to run it, the one nearest to its own types first. Raises CannotRun."""
    dtype = _narrowest(cut)
    exact = None
    if weights_of(cut.before) <= LARGEST_IN_DOUBLE:
        with contextlib.suppress(CannotRun):
            exact = double(cut.before)
    # What runs in float is as inexact as float, also where its types are double.
    floats = [TensorProto.FLOAT, dtype] if _is_rounded(cut) else [TensorProto.FLOAT]
    ways = [(own_types, dtype), (single, max(floats, key=lambda kind: TOLERANCES[kind]))]
    # No engine runs whole models of bfloat16; what is computed from constants was computed in it.
    if dtype == TensorProto.BFLOAT16 and cut.region.inputs:
        ways.pop(0)
    reasons: list[CannotRun] = []
    for lift, narrowest in ways:
        try:
            engines = Engines(lift(cut.before), lift(cut.after), exact, narrowest)
        except CannotRun as fault:
            reasons.append(fault)
            continue
        yield engines
    if exact is not None:
        yield Engines(exact, double(cut.after), exact, TensorProto.DOUBLE)
    elif len(reasons) == len(ways):
        raise reasons[0]


def _is_rounded(cut: Cut) -> bool:
    """Whether constants come or go: those of a narrow type are rounded in any engine.

    One that goes may be a rounded 1/n, which the new operator knows exactly; it is as rounded where
    an earlier rewrite computes with it in float.
    """
    old, new = (
        {tensor.name for tensor in model.graph.initializer if tensor.data_type in TOLERANCES}
        for model in (cut.before, cut.after)
    )
    return old != new


def _narrowest(cut: Cut) -> int:
    types = {tensor.dtype for tensor in (*cut.region.inputs, *cut.region.outputs)}
    for node in cut.region.nodes:
        types.update(tensor.dtype for tensor in (*node.inputs, *node.outputs) if tensor.name)
    return max(types & TOLERANCES.keys(), key=lambda t: TOLERANCES[t], default=TensorProto.FLOAT)


def _judge(rewrite: Rewrite, cut: Cut, engines: Engines, sizes: Sizes) -> Verification | Failure:
    tolerance = max(TOLERANCES[engines.dtype], rewrite.rounding)
    worst = _Worst()
    for kind, feed in feeds(cut.region.inputs, sizes):
        try:
            old, new = engines.before(feed), engines.after(feed)
        except Exception as fault:  # noqa: BLE001 - the engine's own exceptions
            return Failure(f"on {kind} inputs: {str(fault).splitlines()[0]}", moved=True)
        exact = _exactly(engines, feed, old)
        allowed = max(tolerance, rewrite.tolerance * share_of_mean(kind))
        for index, tensor in enumerate(cut.region.outputs):
            problem = _difference(worst, old[index], new[index], exact[index], allowed)
            if not problem or rewrite.approximate:
                continue
            if is_ill_conditioned(engines, cut, feed, index, new[index]):
                continue
            # Where the new operator's own definition cancels, it is too inexact here, and no bug.
            cancels = rewrite.tolerance > 0 and share_of_mean(kind) > 0
            guessed = old[index].shape != new[index].shape and _has_open_rank(cut)
            detail = f"{tensor.name} moved on {kind} inputs: {problem}"
            if problem == _NOT_FINITE and engines.dtype == TensorProto.FLOAT16:
                return Failure(detail, moved=False, reason=Reason.WOULD_OVERFLOW)
            if guessed:
                detail += f", at a rank of {sizes.rank}, which may never occur"
            return Failure(detail, moved=not (cancels or guessed))
        worst.inputs += 1
    return Verification("region", worst.absolute, worst.relative, tolerance, worst.inputs)


def _has_open_rank(cut: Cut) -> bool:
    """Whether not even the rank of an input is known, so that one was assumed."""
    return any(tensor.shape is None for tensor in cut.region.inputs)


def _has_open_extent(cut: Cut) -> bool:
    """Whether an extent of an input is not known, so that several were tried."""
    shapes = [tensor.shape for tensor in cut.region.inputs]
    return any(
        shape is None or any(not isinstance(extent, int) for extent in shape) for shape in shapes
    )


def _exactly(engines: Engines, feed: dict[str, Array], old: list[Array]) -> list[Array]:
    if engines.exact is None:
        return old
    try:
        exact = engines.exact(feed)
    except Exception:  # noqa: BLE001 - no engine for this operator in double
        return old
    # onnx's reference evaluator has extents of its own where a window ends beyond a padding.
    return [e if e.shape == o.shape else o for e, o in zip(exact, old, strict=True)]


def _difference(worst: _Worst, old: Array, new: Array, exact: Array, tolerance: float) -> str:
    """Note the error of one output; say what is wrong with it, if anything is."""
    if old.shape != new.shape:
        return f"shape {old.shape} became {new.shape}"
    if old.dtype != new.dtype:
        return f"type {old.dtype} became {new.dtype}"
    if new.dtype.kind in "biu":
        return "" if bool((old == new).all()) else "integers differ"
    if new.size == 0:
        return ""
    before, after, truth = (a.astype(np.float64) for a in (old, new, exact))
    return _moved(worst, before, after, truth, tolerance)


def _moved(worst: _Worst, before: Array, after: Array, truth: Array, tolerance: float) -> str:
    """Compare an output in float64, where it was finite before."""
    usable = np.isfinite(truth) & np.isfinite(before)
    if not bool(np.isfinite(after[usable]).all()):
        return _NOT_FINITE
    if not usable.any():
        return ""
    scale = float(np.abs(truth[usable]).max()) or 1.0
    old_error = float(np.abs(before - truth)[usable].max())
    new_error = float(np.abs(after - truth)[usable].max())
    worst.absolute = max(worst.absolute, new_error)
    worst.relative = max(worst.relative, new_error / scale)
    if new_error <= max(2 * old_error, tolerance * scale):
        return ""
    return f"error {new_error:.3g} at a scale of {scale:.3g}, was {old_error:.3g}"
