"""The table of runtimes: every entry has its source, and what is said missing is reported."""

from __future__ import annotations

import pytest
from graphs import context_of

from normlint.plugins import rule_of
from normlint.support import TABLE, Support, gap

RUNTIMES = {"onnx", "onnxruntime", "tensorrt", "openvino", "qnn", "tflite", "coreml"}


@pytest.mark.parametrize("entry", TABLE, ids=lambda e: f"{e.runtime}-{e.operator}")
def test_an_entry_names_its_source(entry: Support) -> None:
    assert entry.runtime in RUNTIMES
    assert entry.source.startswith("https://")
    assert entry.since or entry.missing


def test_a_gap_counts_from_its_opset_on() -> None:
    tensorrt = frozenset({"tensorrt"})

    assert gap(tensorrt, "GroupNormalization", 18) is None
    assert gap(tensorrt, "GroupNormalization", 21) is not None
    assert gap(frozenset({"onnxruntime"}), "GroupNormalization", 21) is None
    assert gap(frozenset(), "SimplifiedLayerNormalization", 17) is None


@pytest.mark.parametrize("targets", [set(), {"onnxruntime"}, {"openvino"}])
def test_what_one_rule_makes_no_other_complains_of(targets: set[str]) -> None:
    """NL202 writes RMSNormalization exactly where NL605 would not report it."""
    spelled = """
        g (float[2,8] x) => (float[2,8] y)
        <float eps = {1e-6}, int64[1] at = {-1}, float[8] w = {1,2,3,4,5,6,7,8}> {
            q = Mul(x, x) v = ReduceMean(q, at) e = Add(v, eps) o = Sqrt(e) n = Div(x, o)
            y = Mul(n, w)
        }
    """
    fused = """
        g (float[2,8] x) => (float[2,8] y) <float[8] w = {1,2,3,4,5,6,7,8}> {
            y = RMSNormalization(x, w)
        }
    """
    makes, complains = rule_of("NL202"), rule_of("NL605")
    assert makes is not None
    assert complains is not None
    chosen = frozenset(targets)
    (said,) = makes.check(context_of(spelled, 23, targets=chosen))
    reported = list(complains.check(context_of(fused, 23, targets=chosen)))

    written = said.rewrite is not None and "RMSNormalization" in said.rewrite.title
    assert written is not bool(reported)
