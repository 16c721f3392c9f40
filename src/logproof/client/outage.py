"""Outage: no endpoint of a run answers any more, found out once for all its requests.

A request that found nobody, in all its attempts at every endpoint, asks here. GET /health goes to every endpoint;
where one gives any answer but that no server is behind it (502, 503, 504), the failure is the request's own. Else
whoever asks waits, nothing further is sent, and the question is repeated until an endpoint answers steadily and tells
its facts; then the requests go out again. After `patience` seconds the run ends with EngineGone, and no sample of it
counts as failed. It ends so at once where the facts are no longer those that the run was planned with.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from logproof.client.connect import UNREACHED, Announce, Connection, Options, open_probe_sender
from logproof.client.probe import probe
from logproof.errors import EndpointError, EngineGone, ServerFault, TimeoutFired, TransportError, clip
from logproof.http.exchange import WireRequest
from logproof.http.retry import RetryPolicy
from logproof.ir.facts import Facts

PATIENCE_S = 120.0
"""Most seconds that a run waits for an endpoint: restarts of small engines take less."""

POLL_S = 2.0
"""Between two questions."""

STEADY = 2
"""Answers in a row that end an outage: an engine that only flickers would lose the same requests again."""

SHARED_FACTS = ("model_root", "max_model_len", "max_logprobs", "vocab_size", "logprobs_mode", "tokenizer", "fields")
"""Facts that endpoints of one run share."""

LASTING_FACTS = ("engine", "version", *SHARED_FACTS, "fingerprint")
"""Facts that one endpoint keeps as long as a run goes on."""

MAX_SHOWN = 60
"""Most characters of a fact in a message."""

_ONCE = Options(retry=RetryPolicy(attempts=1))

Ask = Callable[[Connection], Awaitable[bool]]
Read = Callable[[Connection], Awaitable[Facts]]


def is_absent(error: EndpointError) -> bool:
    """Whether a failure is that of an absent server. One that is only slow took the connection."""
    if isinstance(error, TimeoutFired):
        return error.which == "connect"
    if isinstance(error, ServerFault):
        return error.status in UNREACHED
    return isinstance(error, TransportError)


async def answers(connection: Connection) -> bool:
    """Whether a server is there, sent once and past the limit of requests in flight."""
    try:
        async with open_probe_sender(connection.endpoint, _ONCE) as sender:
            await sender.send(WireRequest("/health", method="GET"))
    except EndpointError as error:
        return not is_absent(error)
    return True


async def facts_now(connection: Connection) -> Facts:
    """Facts of an endpoint, asked again; those at hand where none came from a probe. Raises EndpointError."""
    if not connection.facts.sources:
        return connection.facts
    async with open_probe_sender(connection.endpoint, _ONCE) as sender:
        return await probe(sender)


def difference(connection: Connection, now: Facts) -> str | None:
    """The first fact of an endpoint that has changed, in words. What is unknown, then or now, has not."""
    then = connection.facts
    if then.models and now.models and connection.model not in now.models:
        return f"model {connection.model} then, {_shown(', '.join(now.models))} now"
    for name in LASTING_FACTS:
        before, after = getattr(then, name), getattr(now, name)
        if before and after and before != after:
            label = (then.engine if name == "version" else None) or name
            return f"{label} {_shown(before)} then, {_shown(after)} now"
    return None


def _shown(value: object) -> str:
    return clip(str(value), MAX_SHOWN) if not isinstance(value, dict) else f"of {len(value)} routes"


class Outage:
    """The outages of one run. connections: all endpoints, may grow. announce: takes a line at begin and end of each.

    count: outages that are over. ask: whether an endpoint answers.
    read: its facts now, or EndpointError.
    """

    def __init__(
        self,
        connections: Sequence[Connection],
        *,
        announce: Announce = lambda line: None,
        ask: Ask = answers,
        read: Read = facts_now,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._patience = PATIENCE_S
        self.count = 0
        self._announce = announce
        self._connections, self._ask, self._read = connections, ask, read
        self._clock, self._sleep = clock, sleep
        self._lock = asyncio.Lock()
        self._gone: tuple[str, str] | None = None

    def wait_at_most(self, seconds: float) -> None:
        """Bound each wait, also one that is going on; 0 ends it."""
        self._patience = seconds

    async def passed(self, since: int, error: EndpointError) -> bool:
        """Whether an outage explains a failure, and is over: the request may go out again.

        since: `count` when the request went out. Raises EngineGone.
        """
        async with self._lock:
            if self.count == since and self._gone is None:
                if await self._there():
                    return False
                await self._wait(error)
            if self._gone is not None:
                message, hint = self._gone
                raise EngineGone(message, hint=hint)
            return True

    async def _wait(self, error: EndpointError) -> None:
        """Wait until an outage is over, or the engine gone."""
        where = ", ".join(c.endpoint.display for c in self._connections)
        begun, steady, why = self._clock(), 0, "no answer"
        self._announce(f"no answer from {where}: {error.message}; waiting up to {self._patience:g} s for it")
        while (waited := self._clock() - begun) < self._patience:
            await self._sleep(POLL_S)
            there = await self._there()
            steady = steady + 1 if there else 0
            if steady < STEADY:
                why = "no steady answer" if there else why
                continue
            try:
                changed = await self._changed(there)
            except EndpointError as unread:
                why = f"it does not tell what it is: {unread.message}"
                continue
            if changed is not None:
                self._gone = changed, "start the one that the run was planned with and go on"
                return
            self.count += 1
            self._announce(f"{where} answers again after {self._clock() - begun:.0f} s; the run goes on")
            return
        self._gone = f"the engine at {where} is gone: {why} for {waited:.0f} s", "start it again and go on"

    async def _there(self) -> list[Connection]:
        """The endpoints that answer now."""
        connections = list(self._connections)
        answering = await asyncio.gather(*(self._ask(c) for c in connections))
        return [c for c, there in zip(connections, answering, strict=True) if there]

    async def _changed(self, there: Sequence[Connection]) -> str | None:
        """Which endpoint is another than before, and in what. Raises EndpointError where one does not tell."""
        for connection in there:
            now = await self._read(connection)
            if connection.facts.engine and not now.engine:
                raise EndpointError("no answer tells its kind")
            unlike = difference(connection, now)
            if unlike is not None:
                return f"another engine answers at {connection.endpoint.display}: {unlike}"
        return None
