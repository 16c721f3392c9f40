"""The time limits of one attempt on one timer that is moved along: head, then piece by piece, total always."""

from __future__ import annotations

import asyncio
from math import inf

from logproof.errors import TimeoutFired
from logproof.wire.endpoint import Timeouts

_HINTS = {
    "connect": "is the host right, and does a firewall drop the connection?",
    "first_byte": "the engine may be queueing or the output long: raise the limit, stream, or lower the concurrency",
    "idle": "the server stopped in the middle of its reply: see its log",
    "total": "ask for less in one request, or raise the limit",
}


class Limits:
    """Clock of one attempt. `timer` is the context in which it runs; first_byte_s is None before the head."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._now = asyncio.get_running_loop().time
        self._start = self._now()
        self._last = inf if timeouts.total is None else self._start + timeouts.total
        self._which = "total"
        self.first_byte_s: float | None = None
        self.timer = asyncio.timeout_at(self._next("first_byte", timeouts.first_byte))

    def head(self) -> None:
        """The head of the reply is here."""
        self.first_byte_s = self.elapsed()
        self.piece()

    def piece(self) -> None:
        """A piece of the reply is here; the idle limit begins anew."""
        self.timer.reschedule(self._next("idle", self._timeouts.idle))

    def elapsed(self) -> float:
        """Seconds since the attempt began."""
        return self._now() - self._start

    def fired(self, which: str | None = None) -> TimeoutFired:
        """The error of the limit that ended the attempt; `which` where another timer fired."""
        name = which or self._which
        return TimeoutFired(name, getattr(self._timeouts, name), hint=_HINTS[name])

    def _next(self, which: str, seconds: float | None) -> float | None:
        """Time at which the attempt ends unless something comes; remembers which limit that is."""
        end = inf if seconds is None else self._now() + seconds
        self._which = which if end < self._last else "total"
        end = min(end, self._last)
        return end if end < inf else None
