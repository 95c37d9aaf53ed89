"""A real dask cluster of two workers: order, deaths, lateness, and the same reports as here."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dask
import distributed
import pytest
from commandline import CLEAN, SPELLED, Outcome, normlint, write
from errands import work

import normlint as package
from normlint.side_by_side import cluster as room
from normlint.side_by_side.cluster import Cluster
from normlint.side_by_side.crew import Lost, side_by_side
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).parent.parent / "sample_models"


@contextmanager
def two_workers() -> Iterator[distributed.LocalCluster]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=60
        ) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with two_workers() as made:
        yield made.scheduler_address


@pytest.fixture
def doomed() -> Iterator[distributed.LocalCluster]:
    """Give a cluster for one test alone, which kills its workers."""
    with two_workers() as made:
        yield made


@pytest.fixture
def brittle() -> Iterator[distributed.LocalCluster]:
    """Give a cluster of one worker, which nothing starts anew."""
    with distributed.LocalCluster(
        n_workers=1, processes=False, protocol="tcp", dashboard_address=":0", silence_logs=60
    ) as made:
        yield made


def test_results_come_in_the_order_of_the_items(address: str) -> None:
    items = ["slow", "a", "a", "b", "slow", "c"]

    assert list(side_by_side(work, items, Cluster(address))) == [item.upper() for item in items]
    assert list(side_by_side(work, items, Cluster(address, most=1))) == [i.upper() for i in items]


def test_a_worker_killed_in_the_middle_loses_nothing(
    doomed: distributed.LocalCluster,
) -> None:
    results = side_by_side(work, ["slow"] * 12, Cluster(doomed.scheduler_address))

    first = next(results)
    os.kill(doomed.workers[0].pid, signal.SIGKILL)

    assert [first, *results] == ["SLOW"] * 12


def test_one_that_kills_its_workers_does_not_lose_the_rest(
    doomed: distributed.LocalCluster,
) -> None:
    place = Cluster(doomed.scheduler_address)

    results = list(side_by_side(work, ["a", "die", "b", "slow", "c"], place))

    assert [r for r in results if isinstance(r, str)] == ["A", "B", "SLOW", "C"]
    assert results[1] == Lost("its process died; was there memory enough?")


def test_one_that_is_late_does_not_lose_the_rest_and_its_worker_ends(
    doomed: distributed.LocalCluster,
) -> None:
    before = set(doomed.scheduler.workers)
    place = Cluster(doomed.scheduler_address, timeout=2)

    results = list(side_by_side(work, ["a", "sleep", "b", "c"], place))

    assert results == ["A", Lost("it took longer than 2 seconds"), "B", "C"]
    patience = time.monotonic() + 30
    while before <= set(doomed.scheduler.workers):
        assert time.monotonic() < patience
        time.sleep(0.05)


def test_a_bug_is_raised(address: str) -> None:
    with pytest.raises(ValueError, match="fail"):
        list(side_by_side(work, ["a", "fail", "b"], Cluster(address, timeout=60)))


def test_reports_are_those_of_one_process_here(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths too, though the workers are in another folder; and repairs come back."""
    monkeypatch.chdir(tmp_path)

    here = outcomes(tmp_path, "--jobs", "1")
    there = outcomes(tmp_path, "--scheduler", address)

    assert here == there
    assert here[0].out.count("NL201") == 2
    assert "out/spelled.onnx" in here[1].out
    assert "nothing was written: models/locked.onnx is read-only" in here[0].err + here[0].out


def outcomes(folder: Path, *flags: str) -> tuple[Outcome, Outcome, dict[Path, bytes]]:
    """Repair models in place and into another folder; give what is said and what is written."""
    models = folder / "models"
    shutil.rmtree(models, ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    for name, text in (("clean", CLEAN), ("locked", SPELLED), ("spelled", SPELLED)):
        write(models / f"{name}.onnx", text)
    (models / "cut.onnx").write_bytes((models / "spelled.onnx").read_bytes()[:-9])
    (models / "locked.onnx").chmod(0o444)
    shutil.copy(SAMPLES / "resnet_batch_norm.onnx", models)
    command = ["check", "--isolated", "--apply", "--output-format", "json", "models", *flags]
    elsewhere = normlint(*command, "--output-dir", "out")
    in_place = normlint(*command)
    files = {path: path.read_bytes() for path in folder.rglob("*.onnx")}
    return in_place, elsewhere, files


def test_a_cluster_without_workers_is_a_mistake_of_the_caller(
    brittle: distributed.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_CONNECT", 1)
    brittle.scale(0)
    while brittle.scheduler.workers:
        time.sleep(0.05)

    with pytest.raises(UsageError, match="no workers"):
        Cluster(brittle.scheduler_address)


def test_workers_that_go_for_good_end_the_wait(
    brittle: distributed.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_RETURN", 0.5)
    monkeypatch.setattr(Cluster, "look", 0.1)
    results = side_by_side(work, ["a", "slow", "slow", "slow"], Cluster(brittle.scheduler_address))

    first = next(results)
    brittle.scale(0)

    assert first == "A"
    assert list(results)[-1] == Lost("the cluster has no workers any more")


def test_a_scheduler_that_goes_ends_the_wait(
    brittle: distributed.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_CONNECT", 3)
    place = Cluster(brittle.scheduler_address)
    results = side_by_side(work, ["a", "slow", "slow", "slow"], place)

    first = next(results)
    brittle.close()

    assert first == "A"
    assert list(results)[-1] == Lost("the scheduler of the cluster does not answer any more")


def test_workers_of_another_version_are_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "__version__", "0.0.1")

    with pytest.raises(UsageError, match=r"has normlint .*, but this is 0\.0\.1"):
        Cluster(address)


def test_workers_without_a_pack_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="lacks the rules ACME1, ACME2"):
        Cluster(address, codes={"NL201", "ACME2", "ACME1"})


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere", "foo://host:1"])
def test_an_address_where_no_scheduler_answers_is_a_mistake_of_the_caller(
    address: str, tmp_path: Path
) -> None:
    outcome = normlint("check", "--scheduler", address, write(tmp_path / "m.onnx", CLEAN))

    assert outcome.code == 2
    assert f"no scheduler can be reached at {address}" in outcome.err


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    path = write(tmp_path / "m.onnx", CLEAN)

    outcome = normlint("check", "--scheduler", "tcp://127.0.0.1:8786", path)

    assert outcome.code == 2
    assert "normlint[cluster]" in outcome.err
