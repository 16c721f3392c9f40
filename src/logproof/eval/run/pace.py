"""Pace: how many samples run at a time, fixed by the user or found by what the endpoint bears.

Found: replies are counted in windows, and a step lets in half as many samples more. Where the window after it is
faster, the next step follows; where it is not, the step only filled the server's queue and is taken back, and
another is tried HOLD windows later. A reply that needed a repetition (429, 5xx, a lost connection) halves the
number at once, at most once a window.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Literal

START = 8
MOST = 128
"""Samples at a time where the pace is found: at first, and at most."""

GAIN = 1.05
"""A step up is kept where replies come at this many times the best rate."""
HOLD = 8
"""Windows between a step that did not pay and the next."""
WINDOW = 16
"""Fewest replies of a window; it has at least two for each sample at a time."""

Width = int | Literal["auto"]
"""Samples at a time, or auto: found by what the endpoint bears."""

OnChange = Callable[[int, int, str], None]


def most_at_a_time(width: Width) -> int:
    """The most samples that ever run at a time."""
    return MOST if width == "auto" else width


class Pace:
    """The limit of one run. width: samples at a time, or auto. on_change: called with (before, after, why)."""

    def __init__(
        self,
        width: Width,
        *,
        on_change: OnChange = lambda before, after, why: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.adaptive = width == "auto"
        self.limit = START if width == "auto" else width
        self.most = most_at_a_time(width)
        self._on_change = on_change
        self._clock = clock
        self._opened = asyncio.Event()
        self._ended = False
        self._best, self._before, self._wait = 0.0, self.limit, 0
        self._replies, self._since, self._eased = 0, clock(), False

    async def turn(self, worker: int) -> None:
        """Wait until the worker of this number, from 0, may take a sample."""
        while worker >= self.limit and not self._ended:
            self._opened.clear()
            await self._opened.wait()

    def end(self) -> None:
        """Nothing is left to take: all waiting workers go on, and find that out."""
        self._ended = True
        self._opened.set()

    def replied(self, attempts: int) -> None:
        """A request was answered after this many sends."""
        if not self.adaptive:
            return
        if attempts > 1:
            self.overloaded()
        self._replies += 1
        if self._replies >= max(WINDOW, 2 * self.limit):
            self._judge()

    def overloaded(self) -> None:
        """The endpoint refused or lost a request for its load."""
        if self.adaptive and not self._eased:
            self._set(max(1, self.limit // 2), "the endpoint refuses requests")
            self._begin()
            self._eased, self._wait = True, HOLD

    def _begin(self) -> None:
        self._replies, self._since, self._eased = 0, self._clock(), False

    def _judge(self) -> None:
        """End of a window."""
        rate = self._replies / max(self._clock() - self._since, 1e-9)
        if self._wait:
            self._wait -= 1
            self._best = rate
            if not self._wait:
                self._step()
        elif rate > self._best * GAIN:
            self._best = rate
            self._step()
        else:
            self._wait = HOLD
            self._set(self._before, "more only wait")
        self._begin()

    def _step(self) -> None:
        self._before = self.limit
        self._set(min(self.most, math.ceil(self.limit * 1.5)), "to see whether replies come faster")

    def _set(self, limit: int, why: str) -> None:
        before, self.limit = self.limit, limit
        if limit != before:
            self._on_change(before, limit, why)
        if limit > before:
            self._opened.set()
