"""Whatever a file holds: a finding or a clean run."""

import resource
import time

import pytest
from hostile.mutations import bytes_of, model_of
from hostile.running import look, read, repair

from normlint import engine

MOST_SECONDS = 5.0
MOST_GROWTH = 1 << 20
"""Kilobytes that the process may grow by over all inputs."""


@pytest.fixture(autouse=True)
def within_bounds() -> object:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MOST_GROWTH


@pytest.mark.parametrize("block", range(10))
@pytest.mark.filterwarnings("ignore")
def test_the_reader_agrees_with_the_one_of_onnx(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        read(bytes_of(seed))


@pytest.mark.parametrize("block", range(10))
@pytest.mark.filterwarnings("ignore")
def test_a_check_of_anything_ends(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_contradiction", lambda _: None)  # which would hide a traceback
    for seed in range(block * 15, block * 15 + 15):
        start = time.process_time()
        look(model_of(seed).SerializeToString())
        assert time.process_time() - start < MOST_SECONDS, f"seed {seed}"


@pytest.mark.parametrize("block", range(5))
@pytest.mark.filterwarnings("ignore")
def test_a_repair_of_anything_ends(block: int) -> None:
    for seed in range(1000 + block * 10, 1000 + block * 10 + 10):
        repair(model_of(seed).SerializeToString())
