"""A running dask cluster, by its `concurrent.futures` executor.

https://distributed.dask.org/en/stable/api.html#distributed.Client.get_executor . The scheduler
gives what a dead worker had to another one; a work whose workers die again and again fails alone.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from concurrent.futures import CancelledError, Future, wait
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from normlint.side_by_side.place import DiedError, GoneError, LateError
from normlint.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from distributed import Client

Item = TypeVar("Item")
Result = TypeVar("Result")

_CONNECT = 10.0
"""Seconds that the scheduler may take to answer."""
_RETURN = 60.0
"""Seconds without any worker after which no more is hoped for: nannies start dead ones anew."""
_SILENCE = "the scheduler of the cluster does not answer any more"
_GOODBYE = 1.0
"""Seconds that a worker goes on after a work was late, to tell the scheduler so."""


class Cluster:
    """A place for a crew: the workers of a cluster, one item for each worker process at a time.

    `codes` are the rules that each worker must have, `most` bounds the items that are under way,
    `timeout` is in seconds for each, from when a worker takes it up; the worker keeps the time.
    Raises `UsageError` where there is no such cluster.
    """

    timeout = None
    look = 5.0

    def __init__(
        self,
        address: str,
        *,
        codes: AbstractSet[str] = frozenset(),
        most: int | None = None,
        timeout: float | None = None,
    ) -> None:
        self._most = most
        self._seconds = timeout
        self._client = _client(address, codes)
        self._executor = self._client.get_executor(pure=False)
        self._workers = 0
        self._asked = self._seen = time.monotonic()

    def room(self, running: int) -> int:
        """Return how many items can be under way: as many as there are workers now.

        Raises `GoneError` where there are none for a minute.
        """
        while not self._count():
            if running:
                return 0
            time.sleep(1)
        return self._workers if self._most is None else min(self._workers, self._most)

    def _count(self) -> int:
        """Ask for the workers, once a second."""
        now = time.monotonic()
        if self._workers and now - self._asked < 1:
            return self._workers
        self._workers = self._answer()
        self._asked = now
        if self._workers:
            self._seen = now
        elif now - self._seen > _RETURN:
            raise GoneError("the cluster has no workers any more")
        return self._workers

    def _answer(self) -> int:
        """Ask the scheduler; a client that lost it answers 0 while it tries to find it again."""
        client = self._client
        if client.status == "connecting":
            return 0
        try:
            return len(client.sync(client.scheduler.ncores, callback_timeout=_CONNECT))
        except (OSError, AttributeError) as error:
            # A client that is closed has no scheduler.
            raise GoneError(_SILENCE) from error

    def submit(self, work: Callable[[Item], Result], item: Item) -> Future[Result]:
        """Have work done on an item by whichever worker the scheduler gives it to."""
        future: Future[Result] = self._executor.submit(within, self._seconds, work, item)
        return future

    def result(self, future: Future[Result]) -> Result:
        """Return a result."""
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except KilledWorker as killed:
            raise DiedError(surely=True) from killed
        except CancelledError as cancelled:
            raise GoneError(_SILENCE) from cancelled

    def dismiss(self) -> None:
        """Take back what is under way, and leave the cluster as it is."""
        self._client.close()


def within(seconds: float | None, work: Callable[[Item], Result], item: Item) -> Result:
    """Do work, on a worker. Raises `LateError` after so many seconds, and what the work raises.

    Nothing can end a thread: a worker whose work is late ends itself, and its nanny starts it anew.
    (Its `close_gracefully` was seen to leave it without a successor.)
    """
    if seconds is None:
        return work(item)
    outcome: Future[Result] = Future()
    Thread(target=_do, args=(outcome, work, item), daemon=True).start()
    if wait([outcome], seconds).done:
        return outcome.result()
    from distributed import get_worker

    get_worker().loop.add_callback(get_worker().loop.call_later, _GOODBYE, os._exit, 1)
    raise LateError(seconds)


def _do(outcome: Future[Result], work: Callable[[Item], Result], item: Item) -> None:
    try:
        outcome.set_result(work(item))
    except BaseException as error:  # noqa: BLE001 - it is raised where the outcome is read
        outcome.set_exception(error)


def _client(address: str, codes: AbstractSet[str]) -> Client:
    """Connect to a scheduler whose workers have this normlint and rules. Raises `UsageError`."""
    try:
        from distributed import Client
        from distributed.comm import get_address_host_port
    except ImportError as error:
        raise UsageError(
            f"--scheduler {address}: what speaks with a cluster is not installed: "
            'pip install "normlint[cluster]"'
        ) from error
    # What is lost is said in the report; its log would be tracebacks between the findings.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        # A client that fails to connect waits for its whole time, and cannot be closed.
        socket.create_connection(get_address_host_port(address), _CONNECT).close()
        client = Client(address, timeout=_CONNECT, set_as_default=False)
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(f"no scheduler can be reached at {address}: {error}") from error
    try:
        _require_same(client, address, codes)
    except UsageError:
        client.close()
        raise
    return client


def _require_same(client: Client, address: str, codes: AbstractSet[str]) -> None:
    """Raise `UsageError` unless there are workers, each with this version and these rules."""
    try:
        client.wait_for_workers(1, timeout=_CONNECT)
    except TimeoutError as error:
        raise UsageError(f"the cluster at {address} has no workers") from error
    version, _ = edition()
    for worker, theirs in client.run(edition, on_error="return").items():
        if isinstance(theirs, OSError):
            continue  # It died meanwhile.
        if isinstance(theirs, Exception):
            raise UsageError(f"the worker {worker} has no normlint: {theirs}")
        if theirs[0] != version:
            raise UsageError(f"the worker {worker} has normlint {theirs[0]}, but this is {version}")
        if missing := sorted(codes - theirs[1]):
            raise UsageError(f"the worker {worker} lacks the rules {', '.join(missing)}")


def edition() -> tuple[str, frozenset[str]]:
    """Return the version of normlint in this process, and the codes of the rules that it has."""
    from normlint import __version__
    from normlint.plugins import load_cards

    return __version__, frozenset(card.code for card in load_cards())
