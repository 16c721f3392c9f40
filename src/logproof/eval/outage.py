"""Outage: no endpoint of a run answers any more, found out once for all its requests.

A request that found nobody, in all its attempts at every endpoint, asks here. GET /health goes to every endpoint;
where one gives any answer but that no server is behind it (502, 503, 504), the failure is the request's own. Else
whoever asks waits, nothing further is sent, and the question is repeated until an endpoint answers; then the requests
go out again. After `patience` seconds the run ends with EngineGone, and no sample of it counts as failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from logproof.errors import EndpointError, EngineGone, ServerFault, TimeoutFired, TransportError
from logproof.models.connect import UNREACHED, Connection, Options, asking
from logproof.wire.message import WireRequest
from logproof.wire.retry import RetryPolicy

PATIENCE_S = 120.0
"""Most seconds that a run waits for an endpoint: restarts of small engines take less."""

POLL_S = 2.0
"""Between two questions."""

_ONCE = Options(retry=RetryPolicy(attempts=1))

Ask = Callable[[Connection], Awaitable[bool]]


def nobody(error: EndpointError) -> bool:
    """Whether a failure is that of an absent server. One that is only slow took the connection."""
    if isinstance(error, TimeoutFired):
        return error.which == "connect"
    if isinstance(error, ServerFault):
        return error.status in UNREACHED
    return isinstance(error, TransportError)


async def answers(connection: Connection) -> bool:
    """Whether a server is there, sent once and past the limit of requests in flight."""
    try:
        async with asking(connection.endpoint, _ONCE) as sender:
            await sender.send(WireRequest("/health", method="GET"))
    except EndpointError as error:
        return not nobody(error)
    return True


class Outage:
    """The outages of one run. connections: all endpoints, may grow. listeners: told of each begin and end, in words.

    count: outages that are over. patience: seconds; 0 ends a wait that is going on.
    """

    def __init__(
        self,
        connections: Sequence[Connection],
        *,
        ask: Ask = answers,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.patience = PATIENCE_S
        self.count = 0
        self.listeners: list[Callable[[str], None]] = []
        self._connections, self._ask = connections, ask
        self._clock, self._sleep = clock, sleep
        self._lock = asyncio.Lock()
        self._gone: str | None = None

    async def passed(self, since: int, error: EndpointError) -> bool:
        """Whether an outage explains a failure, and is over: the request may go out again.

        since: `count` when the request went out. Raises EngineGone.
        """
        async with self._lock:
            if self.count == since and self._gone is None:
                if await self._anybody():
                    return False
                await self._wait(error)
            if self._gone is not None:
                raise EngineGone(self._gone, hint="start it again, and resume the run")
            return True

    async def _wait(self, error: EndpointError) -> None:
        where = ", ".join(c.endpoint.display for c in self._connections)
        begun = self._clock()
        self._tell(f"no answer from {where}: {error.message}; waiting up to {self.patience:g} s for it")
        while (waited := self._clock() - begun) < self.patience:
            await self._sleep(POLL_S)
            if await self._anybody():
                self.count += 1
                self._tell(f"{where} answers again after {self._clock() - begun:.0f} s; the run goes on")
                return
        self._gone = f"the engine at {where} is gone: no answer for {waited:.0f} s"

    async def _anybody(self) -> bool:
        return any(await asyncio.gather(*(self._ask(c) for c in self._connections)))

    def _tell(self, line: str) -> None:
        for listener in self.listeners:
            listener(line)
