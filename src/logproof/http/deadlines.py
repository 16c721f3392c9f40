"""The time limits of one attempt on one timer that is moved along: head, then piece by piece, total always."""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Self

from logproof.errors import TimeoutFired
from logproof.http.endpoint import Timeouts

_HINTS = {
    "connect": "is the host right, and does a firewall drop the connection?",
    "first_byte": "the engine may be queueing or the output long: raise the limit, stream, or lower the concurrency",
    "idle": "the server stopped in the middle of its reply: see its log",
    "total": "ask for less in one request, or raise the limit",
}


class Deadlines:
    """Clock of one attempt, which runs inside it as a context; first_byte_s is None before the head.

    A piece of the reply only moves the time at which the attempt ends. The one timer looks there when it is due,
    and again later if the end has moved: scheduling anew for each piece would cost more than reading it.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._start = self._now()
        self._last = inf if timeouts.total is None else self._start + timeouts.total
        self._idle = inf if timeouts.idle is None else timeouts.idle
        self._which = "total"
        self._end = self._next("first_byte", inf if timeouts.first_byte is None else timeouts.first_byte)
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None
        self.first_byte_s: float | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def head(self) -> None:
        """The head of the reply is here."""
        self.first_byte_s = self.elapsed()
        self.piece()

    def piece(self) -> None:
        """A piece of the reply is here; the idle limit begins anew."""
        self._end = self._next("idle", self._idle)

    def elapsed(self) -> float:
        """Seconds since the attempt began."""
        return self._now() - self._start

    def timeout_error(self, which: str | None = None) -> TimeoutFired:
        """The error of the limit that ended the attempt; `which` where another timer fired."""
        name = which or self._which
        return TimeoutFired(name, getattr(self._timeouts, name), hint=_HINTS[name])

    def _next(self, which: str, seconds: float) -> float:
        """Time at which the attempt ends unless something comes; remembers which limit that is."""
        end = self._now() + seconds
        self._which = which if end < self._last else "total"
        return min(end, self._last)

    def _look(self) -> None:
        """End the attempt if it is time, else look again before any limit that may hold by then."""
        now = self._now()
        if now >= self._end:
            self._timeout.reschedule(now)
            return
        again = min(self._end, now + self._idle)
        self._timer = self._loop.call_at(again, self._look) if again < inf else None
