"""Time and memory of whole processes, as the operating system counts them."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    status: int


def measure(commands: Sequence[Sequence[str]], runs: int = 5) -> list[Measured]:
    """Run commands in turn, A B A B, after one run of each that does not count."""
    results: list[list[tuple[float, float, float, int]]] = [[] for _ in commands]
    for turn in range(runs + 1):
        for index, command in enumerate(commands):
            result = once(command)
            if turn:
                results[index].append(result)
    return [_summary(result) for result in results]


def once(command: Sequence[str]) -> tuple[float, float, float, int]:
    """Run a command; give wall and CPU time in seconds, peak memory in MiB, and its status."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return wall, cpu, usage.ru_maxrss / 1024, process.returncode


def _summary(runs: list[tuple[float, float, float, int]]) -> Measured:
    walls = [run[0] for run in runs]
    return Measured(
        statistics.median(walls),
        statistics.median(run[1] for run in runs),
        statistics.median(run[2] for run in runs),
        max(walls) / min(walls),
        runs[0][3],
    )
