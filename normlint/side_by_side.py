"""Work in processes of their own: one that dies or takes too long does not lose the rest."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Lost:
    """There is no result, and why."""

    reason: str


def side_by_side(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int,
    timeout: float | None = None,
) -> Iterator[Result | Lost]:
    """Do work on items in several processes; give the results in the order of the items.

    `work` and the items must be picklable. `timeout` is in seconds for each item, from when a
    process takes it up.
    """
    crew: _Crew[Item, Result] = _Crew(work, items, workers, timeout)
    try:
        for index in range(len(items)):
            while index not in crew.results:
                crew.step()
            yield crew.results.pop(index)
    finally:
        crew.dismiss()


class _Crew(Generic[Item, Result]):
    def __init__(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        workers: int,
        timeout: float | None,
    ) -> None:
        self.work = work
        self.items = items
        self.workers = workers
        self.timeout = timeout
        self.waiting = deque(range(len(items)))
        self.alone: deque[int] = deque()
        """Items that were under way when a process died: each is tried again by itself."""
        self.running: dict[Future[Result], tuple[int, float]] = {}
        self.results: dict[int, Result | Lost] = {}
        self.pool: ProcessPoolExecutor | None = None

    def step(self) -> None:
        """Hand out work, and wait until something is done, dead or late."""
        self.hand_out()
        now = time.monotonic()
        patience = None
        if self.timeout is not None:
            started = min(start for _, start in self.running.values())
            patience = max(started + self.timeout - now, 0)
        done, _ = wait(self.running, patience, FIRST_COMPLETED)
        if not done:
            self.give_up_late()
        for future in done:
            if not self.take(future):
                return

    def hand_out(self) -> None:
        """Give each process one item, so that the time of an item starts when it is given."""
        room = 1 if self.alone else self.workers
        queue = self.alone or self.waiting
        while queue and len(self.running) < room:
            index = queue.popleft()
            if self.pool is None:
                # A forked process would inherit locks of the runtime's threads, not the threads.
                self.pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
            future = self.pool.submit(self.work, self.items[index])
            self.running[future] = (index, time.monotonic())

    def take(self, future: Future[Result]) -> bool:
        """Take a result; say whether the processes are still there."""
        index, _ = self.running.pop(future)
        try:
            self.results[index] = future.result()
        except BrokenProcessPool:
            under_way = sorted([index, *(other for other, _ in self.running.values())])
            self.dismiss()
            if len(under_way) > 1:
                self.alone.extend(under_way)
            else:
                self.results[index] = Lost("its process died; was there memory enough?")
            return False
        return True

    def give_up_late(self) -> None:
        """Drop the items that took too long; what ran beside them starts again."""
        now = time.monotonic()
        for index, start in self.running.values():
            if self.timeout is not None and now - start >= self.timeout:
                self.results[index] = Lost(f"it took longer than {self.timeout:g} seconds")
            else:
                self.waiting.appendleft(index)
        self.dismiss()

    def dismiss(self) -> None:
        """End all processes at once."""
        self.running.clear()
        if self.pool is None:
            return
        # Before Python 3.14 there is no public way to end the processes of a pool.
        for process in list((self.pool._processes or {}).values()):  # noqa: SLF001
            process.kill()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.pool = None
