"""How many processes this machine has processors and memory for."""

from __future__ import annotations

import os
import re
from pathlib import Path

MEMORY_OF_ONE = 1 << 29
"""Bytes that a process is reckoned to need: a skeleton, its graph, and the runtime for proofs."""
FEW = 3
"""Models that are checked in one process: starting another takes as long as a check."""

_PLENTY = 1 << 40
_GROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits (https://docs.kernel.org/admin-guide/cgroup-v2.html)."""
_MEMINFO = Path("/proc/meminfo")


def auto_workers(items: int) -> int:
    """Return how many processes so many models are worth."""
    if items <= FEW:
        return 1
    return min(processors(), items)


def processors() -> int:
    """Return how many processors this process may use, not how many the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Return the bytes that can still be taken, of the machine and of the container around it.

    Plenty where the system does not say.
    """
    return min(_machine_memory(), _container_memory())


def _machine_memory() -> int:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found[1]) << 10 if found else _PLENTY


def _container_memory() -> int:
    """Return what is left of the limit; the file cache counts as used, though it can be had."""
    try:
        limit = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text())
        statistics = (_GROUP / "memory.stat").read_text()
        cached = re.search(r"^inactive_file (\d+)$", statistics, re.MULTILINE)
        return int(limit) - used + int(cached[1] if cached else 0)
    except (OSError, ValueError):
        # No such group, or no limit, which is written `max`.
        return _PLENTY
