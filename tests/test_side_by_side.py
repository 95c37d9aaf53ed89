"""Processes side by side: order, deaths and lateness."""

import time
from pathlib import Path

import pytest
from errands import work

from normlint.config import Resolver
from normlint.discover import Target
from normlint.plugins import load_cards
from normlint.run import check_all, plan
from normlint.side_by_side import Lost, side_by_side


def test_results_come_in_the_order_of_the_items() -> None:
    items = ["slow", "a", "b", "slow", "c"]

    assert list(side_by_side(work, items, workers=2)) == [item.upper() for item in items]


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_dies_does_not_lose_the_rest(workers: int) -> None:
    results = list(side_by_side(work, ["a", "die", "b", "slow", "c"], workers=workers))

    assert [r for r in results if isinstance(r, str)] == ["A", "B", "SLOW", "C"]
    assert isinstance(results[1], Lost)
    assert "died" in results[1].reason


def test_one_that_is_late_does_not_lose_the_rest() -> None:
    start = time.monotonic()

    results = list(side_by_side(work, ["a", "sleep", "b", "c"], workers=2, timeout=8))

    assert results == ["A", Lost("it took longer than 8 seconds"), "B", "C"]
    assert time.monotonic() - start < 50


def test_a_bug_is_raised() -> None:
    with pytest.raises(ValueError, match="fail"):
        list(side_by_side(work, ["a", "fail", "b"], workers=2))


def test_a_model_that_takes_too_long_is_reported_and_the_rest_is_checked() -> None:
    samples = Path(__file__).parent.parent / "sample_models"
    names = ["resnet_folded.onnx", "vit_opset_13.onnx"]
    resolver = Resolver()
    config = resolver.for_folder(samples)
    jobs = [
        plan(Target(name, samples / name), config, load_cards(), {"apply": False}) for name in names
    ]
    done: list[None] = []

    late = check_all(jobs, "2", lambda: done.append(None), timeout=0.01)
    whole = check_all(jobs, "2", lambda: done.append(None), timeout=300)

    assert [report.path for report in late] == names
    assert [f.code for report in late for f in report.findings] == ["NL905", "NL905"]
    assert [report.path for report in whole] == names
    assert whole == check_all(jobs, "1", lambda: done.append(None))
    assert len(done) == 6
