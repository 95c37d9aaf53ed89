"""Processes of this machine, as many as there are processors and memory for."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TYPE_CHECKING, TypeVar

from normlint.patience import be_patient
from normlint.side_by_side.capacity import MEMORY_OF_ONE, free_memory
from normlint.side_by_side.place import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


class Processes:
    """A place for a crew: at most so many processes, fewer while memory is short.

    `timeout` is in seconds for each item, from when a process takes it up.
    """

    look = None

    def __init__(self, workers: int, timeout: float | None = None) -> None:
        self.workers = max(min(workers, free_memory() // MEMORY_OF_ONE), 1)
        self.timeout = timeout
        self._pool: ProcessPoolExecutor | None = None

    def room(self, running: int) -> int:
        """Return how many items can be under way: one at least, one more while memory is free."""
        one_more = not running or free_memory() >= MEMORY_OF_ONE
        return min(running + one_more, self.workers)

    def submit(self, work: Callable[[Item], Result], item: Item) -> Future[Result]:
        """Have work done on an item in a process of its own."""
        if self._pool is None:
            # A forked process would inherit locks of the runtime's threads, not the threads.
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=get_context("spawn"), initializer=be_patient
            )
        return self._pool.submit(work, item)

    def result(self, future: Future[Result]) -> Result:
        """Return a result. A pool cannot tell which of its processes died: that breaks all."""
        try:
            return future.result()
        except BrokenProcessPool as broken:
            raise DiedError(surely=False) from broken

    def dismiss(self) -> None:
        """End all processes at once."""
        if self._pool is None:
            return
        # Before Python 3.14 there is no public way to end the processes of a pool.
        for process in list((self._pool._processes or {}).values()):  # noqa: SLF001
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
