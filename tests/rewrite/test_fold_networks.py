"""Networks with every attribute and neighbour: folded or refused with a reason, never wrong."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fold_networks import fold_network, overrides
from folding import feeds, repaired, session
from onnx import TensorProto
from scopes import in_branch, in_function

if TYPE_CHECKING:
    import onnx
    from fold_networks import FoldNetwork

COUNT = int(os.environ.get("NORMLINT_FOLDS", "32"))
"""NORMLINT_FOLDS=2000 tries so many networks of each kind."""
TOLERANCES = {TensorProto.FLOAT: 2e-4, TensorProto.FLOAT16: 3e-2, TensorProto.DOUBLE: 1e-7}
_ROUNDINGS = 50


def runs(model: onnx.ModelProto, layers: FoldNetwork) -> bool:
    try:
        loaded = session(model)
        for feed in feeds(model, layers.shapes):
            loaded.run(None, feed)
    except Exception:  # noqa: BLE001 - a network that the runtime has no kernel for
        return False
    return True


def hold(before: onnx.ModelProto, after: onnx.ModelProto, layers: FoldNetwork) -> None:
    """Hold two models to the same outputs, also where a caller overrides weights."""
    old, new = session(before), session(after)
    given = overrides(before)
    for feed in feeds(before, layers.shapes):
        for values in (feed, feed | given) if given else (feed,):
            pairs = zip(old.run(None, values), new.run(None, values), strict=True)
            for index, (expected, got) in enumerate(pairs):
                error, scale = distance(expected, got)
                allowed = TOLERANCES[layers.dtype] * scale
                if error > allowed:
                    # Where roundings of the input move it as far, nobody can ask for more.
                    nudged = old.run(None, nudge(values))[index]
                    allowed = _ROUNDINGS * distance(expected, nudged)[0]
                assert error <= allowed, f"{error:.3g} at a scale of {scale:.3g}"


def distance(expected: np.ndarray, got: np.ndarray) -> tuple[float, float]:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    with np.errstate(invalid="ignore"):
        wanted, given = expected.astype(np.float64), got.astype(np.float64)
        usable = np.isfinite(wanted)
        error = np.abs(wanted - given)[usable].max(initial=0)
    return float(error), max(float(np.abs(wanted[usable]).max(initial=0)), 1e-6)


def nudge(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Move every float by one rounding."""
    random = np.random.default_rng(0)
    return {
        name: np.nextafter(
            values, random.choice([-np.inf, np.inf], values.shape), dtype=values.dtype
        )
        if values.dtype.kind == "f"
        else values
        for name, values in feed.items()
    }


def check(model: onnx.ModelProto, layers: FoldNetwork, *, bias_maps: bool = False) -> bool:
    """Fold and compare; say whether anything was folded."""
    report, after = repaired(model, bias_maps=bias_maps)
    hold(model, after, layers)
    for finding in report.findings:
        assert finding.not_fixed is not None or (finding.fix is not None and finding.fix.applied)
    return any(finding.fix is not None for finding in report.findings)


def network(seed: int) -> tuple[FoldNetwork, onnx.ModelProto]:
    """Build a network of any type and opset."""
    random = np.random.default_rng(seed)
    dtype = random.choice([TensorProto.FLOAT] * 5 + [TensorProto.FLOAT16, TensorProto.DOUBLE])
    opsets = (7, 8, 9, 11, 13, 14, 15, 17, 17, 18, 21, 22) if dtype == 1 else (13, 15, 17, 18, 21)
    layers = fold_network(seed, dtype=int(dtype), opset=int(random.choice(opsets)))
    return layers, layers.model()


@pytest.mark.parametrize("block", range(4))
def test_it_computes_the_same_and_comes_to_rest(block: int) -> None:
    folded = 0
    for seed in range(block, 4 * COUNT, 4):
        layers, model = network(seed)
        if not runs(model, layers):
            continue
        maps = seed % 8 < 4
        folded += check(model, layers, bias_maps=maps)
        _, once = repaired(model, bias_maps=maps)
        _, twice = repaired(once, bias_maps=maps)
        assert twice.SerializeToString() == once.SerializeToString(), f"seed {seed}"
    assert folded >= COUNT // 6, "the networks should give it something to do"


def test_the_proof_agrees() -> None:
    for seed in range(10_000, 10_000 + COUNT):
        layers, model = network(seed)
        if not runs(model, layers):
            continue
        report, _ = repaired(model, verify="region", bias_maps=True)
        assert "NL990" not in [finding.code for finding in report.findings], f"seed {seed}"
        reasons = [f.not_fixed.reason for f in report.findings if f.not_fixed is not None]
        assert "verification" not in reasons, f"seed {seed}"


@pytest.mark.parametrize("scope", ["outer", "inner", "function"])
def test_in_scopes(scope: str) -> None:
    for seed in range(20_000, 20_000 + COUNT):
        layers, model = network(seed)
        if layers.opset < 13 or not runs(model, layers):
            continue
        if scope == "function":
            inside = in_function(model)
        else:
            inside = in_branch(model, outer_weights=scope == "outer")
        check(inside, layers)


def test_with_weights_that_may_be_overridden() -> None:
    for seed in range(30_000, 30_000 + COUNT):
        layers, model = network(seed)
        if runs(model, layers):
            check(layers.overridable(model), layers)
