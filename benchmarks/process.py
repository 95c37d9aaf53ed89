"""Time and memory of whole processes, as the operating system counts them."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

GIVEN_UP = -9
"""The status of a command that took too long and was killed."""


class Once(NamedTuple):
    """One run of a command."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of user and system time."""
    memory: float
    """Peak resident memory in MiB."""
    status: int


@dataclass(frozen=True)
class Measured:
    """Medians over several runs of one command."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of user and system time."""
    memory: float
    """Peak resident memory in MiB."""
    spread: float
    """Largest wall time over the smallest."""
    runs: int
    status: int


def measure(
    commands: Sequence[Sequence[str]],
    runs: int = 5,
    *,
    patience: float | None = None,
    limits: Sequence[float] | None = None,
) -> list[Measured]:
    """Run commands in turn, A B A B, after one run of each that does not count.

    A command that has taken `patience` seconds by then is not run again; where that is the run that
    should not count, it counts all the same. One that takes longer than its limit is killed, and
    not run again.
    """
    results: list[list[Once]] = [[] for _ in commands]
    for _ in range(runs + 1):
        for index, command in enumerate(commands):
            taken = sum(run.wall for run in results[index])
            if not results[index] or patience is None or taken < patience:
                limit = None if limits is None else limits[index]
                results[index].append(once(command, limit))
    return [_summary(result) for result in results]


def once(command: Sequence[str], limit: float | None = None) -> Once:
    """Run a command; kill it after so many seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    killer = threading.Timer(limit or threading.TIMEOUT_MAX, process.kill)
    killer.daemon = True
    killer.start()
    _, status, usage = os.wait4(process.pid, 0)
    killer.cancel()
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Once(wall, cpu, usage.ru_maxrss / 1024, process.returncode)


def _summary(runs: list[Once]) -> Measured:
    counted = runs[1:] or runs
    walls = [run.wall for run in counted]
    return Measured(
        statistics.median(walls),
        statistics.median(run.cpu for run in counted),
        statistics.median(run.memory for run in counted),
        max(walls) / min(walls),
        len(counted),
        counted[-1].status,
    )
