"""Recorder: carries exchanges to the sink in a thread of its own, in order, over a queue of bounded size.

When the queue is full, or the sink's disk is: `open` serves the call and counts the loss, `closed` refuses the next
calls with 503. A slot is taken before a call is forwarded, so that in `closed` every call that is served is recorded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from logproof.errors import LogproofError, StoreError, clip
from logproof.proxy.captured_exchange import CapturedExchange

OnFull = Literal["open", "closed"]


class Sink(Protocol):
    """Where exchanges go. Called from one thread at a time, never from the event loop's."""

    def write(self, exchange: CapturedExchange) -> None:
        """Keep one exchange. Raises StoreError for the disk, another LogproofError for what cannot be recorded."""
        ...

    def tick(self) -> None:
        """Called about once a second while nothing comes. Raises StoreError."""
        ...

    def close(self) -> None:
        """Make everything durable. Raises StoreError."""
        ...


class RecorderCounts(msgspec.Struct):
    """captured: calls handed over. recorded: kept by the sink. lost: served but not kept. refused: answered 503.

    unreadable: kept by nobody because the reply is no record (cut, foreign). last_error: of the sink, clipped.
    """

    captured: int = 0
    recorded: int = 0
    lost: int = 0
    refused: int = 0
    unreadable: int = 0
    last_error: str | None = None


class Recorder:
    """capacity: most exchanges held or expected; max_bytes: most bytes held. tick_s: seconds between ticks."""

    def __init__(
        self, sink: Sink, on_full: OnFull, *, capacity: int = 1024, max_bytes: int = 256 << 20, tick_s: float = 1.0
    ) -> None:
        self.on_full = on_full
        self.counts = RecorderCounts()
        self.capacity = capacity
        self._sink = sink
        self._max_bytes = max_bytes
        self._tick_s = tick_s
        self._queue: deque[CapturedExchange] = deque()
        self._bytes = 0
        self._expected = 0
        self._broken = False
        self._closing = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Exchanges that wait for the sink."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether another exchange has no place."""
        busy = len(self._queue) + self._expected
        return self._broken or busy >= self.capacity or self._bytes >= self._max_bytes

    def admit(self) -> bool:
        """Take a slot before a call is forwarded; False: refuse the call. A slot is given up by `offer` or `leave`."""
        if self.on_full == "closed" and self.full:
            self.counts.refused += 1
            return False
        self._expected += 1
        return True

    def leave(self) -> None:
        """Give up a slot: the call brought nothing to record."""
        self._expected -= 1

    def offer(self, exchange: CapturedExchange) -> None:
        """Hand over the exchange of an admitted call; it is lost where the queue is full (`open` only)."""
        self.leave()
        self.counts.captured += 1
        if self.on_full == "open" and self.full:
            self.counts.lost += 1
            return
        self._queue.append(exchange)
        self._bytes += exchange.size
        self._wake.set()

    def start(self) -> None:
        """Begin to carry; needs a running event loop."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Carry what is held, then close the sink; a disk that refuses is told by `counts.last_error`."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        await self._settled(self._sink.close)

    async def _run(self) -> None:
        while True:
            if self._queue:
                await self._carry(self._queue[0])
            elif self._closing:
                return
            elif await self._pause():
                await self._settled(self._sink.tick)

    async def _carry(self, exchange: CapturedExchange) -> None:
        """Hand the oldest exchange to the sink; where calls are refused until it is kept, keep it and wait."""
        error = await self._written(exchange)
        self._broken = error is not None and self.on_full == "closed"
        if self._broken and not self._closing:
            await self._pause()
            return
        self.counts.lost += error is not None
        self._queue.popleft()
        self._bytes -= exchange.size

    async def _written(self, exchange: CapturedExchange) -> StoreError | None:
        try:
            await asyncio.to_thread(self._sink.write, exchange)
            self.counts.recorded += 1
        except StoreError as error:
            self.counts.last_error = clip(str(error))
            return error
        except LogproofError as error:
            self.counts.unreadable += 1
            self.counts.last_error = clip(str(error))
        except Exception as error:
            # A fault of the sink's own code must not end the recording of the calls after it.
            self.counts.unreadable += 1
            self.counts.last_error = _internal(error)
        return None

    async def _pause(self) -> bool:
        """Wait for the next exchange or the end; True where a second passed instead."""
        self._wake.clear()
        try:
            await asyncio.wait_for(self._wake.wait(), self._tick_s)
        except TimeoutError:
            return True
        return False

    async def _settled(self, act: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(act)
        except StoreError as error:
            self.counts.last_error = clip(str(error))
        except Exception as error:
            self.counts.last_error = _internal(error)


def _internal(error: Exception) -> str:
    return clip(f"internal error, {type(error).__name__}: {error}")
