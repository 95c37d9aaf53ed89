"""A sign of life on standard error, on a terminal, when a run takes longer than a second."""

from __future__ import annotations

import os
import sys
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

_PATIENCE = 1.0


class Progress:
    """Counts finished models while it is entered; shows nothing where nobody would see it."""

    def __init__(self, total: int, *, wanted: bool = True) -> None:
        self._total = total
        self._done = 0
        self._status: Any = None
        self._lock = Lock()
        self._timer: Timer | None = None
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._wanted = wanted and terminal and not os.environ.get("CI")

    def __enter__(self) -> Self:
        """Start to wait."""
        if self._wanted:
            self._timer = Timer(_PATIENCE, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take it away again."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._wanted = False
            if self._status is not None:
                self._status.stop()

    def done(self) -> None:
        """Count one model."""
        with self._lock:
            self._done += 1
            if self._status is not None:
                self._status.update(self._text())

    def _text(self) -> str:
        return f"{self._done} of {self._total} checked"

    def _show(self) -> None:
        from rich.console import Console
        from rich.status import Status

        with self._lock:
            if self._wanted:
                self._status = Status(self._text(), console=Console(stderr=True))
                self._status.start()
