"""Processes side by side: order, deaths, lateness and memory."""

import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from errands import work

from normlint.config import Resolver
from normlint.discover import Target
from normlint.plugins import load_cards
from normlint.run import check_all, plan
from normlint.side_by_side import capacity, processes
from normlint.side_by_side.crew import Lost, side_by_side
from normlint.side_by_side.place import GoneError
from normlint.side_by_side.processes import Processes


def test_results_come_in_the_order_of_the_items() -> None:
    items = ["slow", "a", "b", "slow", "c"]

    assert list(side_by_side(work, items, Processes(2))) == [item.upper() for item in items]


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_dies_does_not_lose_the_rest(workers: int) -> None:
    results = list(side_by_side(work, ["a", "die", "b", "slow", "c"], Processes(workers)))

    assert [r for r in results if isinstance(r, str)] == ["A", "B", "SLOW", "C"]
    assert isinstance(results[1], Lost)
    assert "died" in results[1].reason


def test_one_that_is_late_does_not_lose_the_rest() -> None:
    start = time.monotonic()

    results = list(side_by_side(work, ["a", "sleep", "b", "c"], Processes(2, timeout=8)))

    assert results == ["A", Lost("it took longer than 8 seconds"), "B", "C"]
    assert time.monotonic() - start < 50


def test_a_bug_is_raised() -> None:
    with pytest.raises(ValueError, match="fail"):
        list(side_by_side(work, ["a", "fail", "b"], Processes(2)))


def test_where_there_is_nothing_left_to_work_with_the_rest_is_lost() -> None:
    class Vanishing(Processes):
        def result(self, future: Future[str]) -> str:
            if future.result() == "B":
                raise GoneError("the place is gone")
            return future.result()

    results = list(side_by_side(work, ["slow", "a", "b", "c", "d"], Vanishing(1)))

    assert results == ["SLOW", "A", *[Lost("the place is gone")] * 3]


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


def test_there_are_no_more_processes_than_memory_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "free_memory", lambda: 3 * capacity.MEMORY_OF_ONE)
    place = Processes(8)
    plenty = [place.room(running) for running in range(5)]
    monkeypatch.setattr(processes, "free_memory", lambda: capacity.MEMORY_OF_ONE - 1)
    short = [place.room(running) for running in range(5)]

    assert plenty == [1, 2, 3, 3, 3]
    # One at a time goes on whatever happens; what is under way is left to end.
    assert short == [1, 1, 2, 3, 3]
    assert Processes(8).workers == 1


def test_results_are_the_same_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "free_memory", lambda: 0)

    assert list(side_by_side(work, ["slow", "a", "b"], Processes(4))) == ["SLOW", "A", "B"]


def test_few_models_are_checked_in_one_process() -> None:
    assert [capacity.auto_workers(count) for count in (1, 3)] == [1, 1]
    assert capacity.auto_workers(1000) == capacity.processors()


@pytest.mark.parametrize(
    ("limit", "left"),
    [("4000000", 1_500_000), ("max", 9_000 << 10), ("90000000", 9_000 << 10), ("", 9_000 << 10)],
)
def test_a_container_may_have_less_memory_than_its_machine(
    limit: str, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 10000 kB\nMemAvailable:     9000 kB\n")
    if limit:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("3000000\n")
        (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500000\nactive_file 7\n")
    monkeypatch.setattr(capacity, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(capacity, "_GROUP", tmp_path)

    assert capacity.free_memory() == left


def test_a_system_that_does_not_tell_its_memory_has_plenty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(capacity, "_GROUP", tmp_path)

    assert capacity.free_memory() > 100 * capacity.MEMORY_OF_ONE
