"""Signals while an engine starts: noted, and raised at a point where nothing can be left behind.

Raising from within a signal handler could hit the instant between the fork and the note of its process id.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Holds back SIGINT, SIGTERM and SIGHUP inside the block; `check` raises for the first that came.

    SIGINT becomes KeyboardInterrupt, the others SystemExit(128 + number). Outside the main thread, where Python
    installs no handlers, signals stay with the main thread and `check` never raises.
    """

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise if a signal came since the last look."""
        if not self._seen:
            return
        first = self._seen[0]
        self._seen.clear()
        if first == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + first)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._seen.append(number)
