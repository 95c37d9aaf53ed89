"""Whatever the network is like: folded or refused with a reason, never wrong."""

from __future__ import annotations

import pytest
from folding import assert_same, ops, repaired, session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layers import Layers, network
from onnx import ModelProto, TensorProto
from scopes import in_branch, in_function

SEEDS = st.integers(0, 1 << 32)
GENTLY = settings(
    deadline=None,
    derandomize=True,
    max_examples=120,
    suppress_health_check=list(HealthCheck),
)
SOME = settings(GENTLY, max_examples=40)


def loads(model: ModelProto) -> bool:
    try:
        session(model)
    except Exception:  # noqa: BLE001 - a network that the runtime has no kernel for
        return False
    return True


def check(model: ModelProto, layers: Layers, tolerance: float = 2e-4) -> ModelProto:
    report, after = repaired(model)
    assert_same(model, after, tolerance=tolerance, shapes=layers.shapes)
    for finding in report.findings:
        assert finding.not_fixed is not None or (finding.fix is not None and finding.fix.applied)
    stay = [finding for finding in report.findings if finding.code == "NL111"]
    assert len(stay) == ops(after).count("BatchNormalization")
    return after


@GENTLY
@given(SEEDS)
def test_a_network_computes_the_same_after_folding(seed: int) -> None:
    layers = network(seed)
    model = layers.model()
    if loads(model):
        check(model, layers)


@SOME
@given(SEEDS)
def test_folding_comes_to_rest(seed: int) -> None:
    model = network(seed).model()
    if not loads(model):
        return
    _, once = repaired(model)

    report, twice = repaired(once)

    assert twice.SerializeToString() == once.SerializeToString()
    assert not [finding for finding in report.findings if finding.fix is not None]


@SOME
@given(SEEDS)
def test_verification_agrees(seed: int) -> None:
    model = network(seed).model()
    if not loads(model):
        return

    report, _ = repaired(model, verify="region")

    assert not [finding for finding in report.findings if finding.code == "NL990"]
    assert "verification" not in [f.not_fixed.reason for f in report.findings if f.not_fixed]


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 21])
@SOME
@given(seed=SEEDS)
def test_at_every_opset(opset: int, seed: int) -> None:
    layers = network(seed, opset=opset)
    model = layers.model()
    if loads(model):
        check(model, layers)


@SOME
@given(SEEDS)
def test_in_half_precision(seed: int) -> None:
    layers = network(seed, dtype=TensorProto.FLOAT16)
    model = layers.model()
    if loads(model):
        check(model, layers, tolerance=3e-2)


@pytest.mark.parametrize("outer_weights", [True, False])
@SOME
@given(seed=SEEDS)
def test_in_a_branch(outer_weights: bool, seed: int) -> None:
    layers = network(seed)
    if not loads(layers.model()):
        return
    model = in_branch(layers.model(), outer_weights=outer_weights)

    _, after = repaired(model)

    assert_same(model, after, shapes=layers.shapes)


@SOME
@given(SEEDS)
def test_in_a_function(seed: int) -> None:
    layers = network(seed)
    if not loads(layers.model()):
        return
    model = in_function(layers.model())

    _, after = repaired(model)

    assert_same(model, after, shapes=layers.shapes)
