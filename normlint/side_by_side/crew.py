"""Hand out items, and take results in order, wherever the work is done."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Generic, TypeVar

from normlint.deferred import dataclass
from normlint.side_by_side.place import DiedError, GoneError, LateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from normlint.side_by_side.place import Place

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Lost:
    """There is no result, and why."""

    reason: str


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], place: Place
) -> Iterator[Result | Lost]:
    """Do work on items at a place; give the results in the order of the items.

    `work` and the items must be picklable. What the work raises is raised.
    """
    crew: _Crew[Item, Result] = _Crew(work, items, place)
    try:
        for index in range(len(items)):
            while index not in crew.results:
                crew.step()
            yield crew.results.pop(index)
    finally:
        place.dismiss()


class _Crew(Generic[Item, Result]):
    def __init__(self, work: Callable[[Item], Result], items: Sequence[Item], place: Place) -> None:
        self.work = work
        self.items = items
        self.place = place
        self.waiting = deque(range(len(items)))
        self.alone: deque[int] = deque()
        """Items that were under way when a process died: each is tried again by itself."""
        self.running: dict[Future[Result], tuple[int, float]] = {}
        self.results: dict[int, Result | Lost] = {}

    def step(self) -> None:
        """Hand out work, and wait until something is done, dead or late."""
        try:
            self.hand_out()
            done, _ = wait(self.running, self.patience(), FIRST_COMPLETED)
            if not done:
                self.give_up_late()
            for future in done:
                if not self.take(future):
                    return
        except GoneError as gone:
            self.lose_rest(gone)

    def hand_out(self) -> None:
        """Give each process one item, so that the time of an item starts when it is given."""
        queue = self.alone or self.waiting
        while queue and len(self.running) < self.room():
            index = queue.popleft()
            future = self.place.submit(self.work, self.items[index])
            self.running[future] = (index, time.monotonic())

    def room(self) -> int:
        return 1 if self.alone else self.place.room(len(self.running))

    def patience(self) -> float | None:
        """Return how many seconds to wait for a result; None for ever."""
        if self.place.timeout is None:
            return self.place.look
        started = min(start for _, start in self.running.values())
        return max(started + self.place.timeout - time.monotonic(), 0)

    def take(self, future: Future[Result]) -> bool:
        """Take a result; say whether what else is under way still is."""
        index, _ = self.running[future]
        try:
            self.results[index] = self.place.result(future)
        except LateError as late:
            self.results[index] = Lost(str(late))
        except DiedError as death:
            if not death.surely:
                self.bury(death)
                return False
            self.results[index] = Lost(str(death))
        del self.running[future]
        return True

    def bury(self, death: DiedError) -> None:
        """Note a death that any of the items under way may have caused."""
        under_way = sorted(index for index, _ in self.running.values())
        self.dismiss()
        if len(under_way) > 1:
            self.alone.extend(under_way)
        else:
            self.results[under_way[0]] = Lost(str(death))

    def give_up_late(self) -> None:
        """Drop the items that took too long; what ran beside them starts again."""
        timeout = self.place.timeout
        if timeout is None:
            return
        now = time.monotonic()
        for index, start in self.running.values():
            if now - start >= timeout:
                self.results[index] = Lost(str(LateError(timeout)))
            else:
                self.waiting.appendleft(index)
        self.dismiss()

    def lose_rest(self, gone: GoneError) -> None:
        """Give up all that there is no result of."""
        under_way = [index for index, _ in self.running.values()]
        for index in (*under_way, *self.alone, *self.waiting):
            self.results[index] = Lost(str(gone))
        self.alone.clear()
        self.waiting.clear()
        self.dismiss()

    def dismiss(self) -> None:
        """End what is under way."""
        self.running.clear()
        self.place.dismiss()
