"""What a crew asks of the place where it works: processes of this machine, or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


class DiedError(Exception):
    """A process died under the work; `surely` says that no other work can be to blame."""

    def __init__(self, *, surely: bool) -> None:
        super().__init__("its process died; was there memory enough?")
        self.surely = surely


class LateError(Exception):
    """The work took longer than so many seconds and was given up."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)

    def __str__(self) -> str:
        return f"it took longer than {self.args[0]:g} seconds"


class GoneError(Exception):
    """There is nothing left to work with; the message says why."""


class Place(Protocol):
    """Where work is done, one item in a process at a time."""

    @property
    def timeout(self) -> float | None:
        """Seconds after which the crew gives up an item, by ending all; None where it need not."""

    @property
    def look(self) -> float | None:
        """Seconds after which to ask for room again, though nothing is done; None for never."""

    def room(self, running: int) -> int:
        """Return how many items can be under way, while `running` are. Raises `GoneError`."""

    def submit(self, work: Callable[[Item], Result], item: Item) -> Future[Result]:
        """Have work done on an item."""

    def result(self, future: Future[Result]) -> Result:
        """Return what a finished future holds.

        Raises `DiedError`, `LateError`, `GoneError`, or what the work raised.
        """

    def dismiss(self) -> None:
        """End all that is under way, at once."""
