"""Pool: several endpoints behind one model. Each request goes to the one with the least in flight.

An endpoint that fails (no reply, 5xx, 429 after its own retries) rests and the request goes to the next; it is
tried again when its rest is over, or when no other is left. Where none is there, requests wait and go out again
(outage.py). An endpoint that does not answer at the start is left out, and asked again and again until it joins.
Endpoints must agree in what decides results; what may differ (version) is kept for each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Protocol, TypeVar

import msgspec

from logproof.client.connect import Announce, Connection, Options, connect, open_endpoint
from logproof.client.outage import SHARED_FACTS, Ask, Outage, Read, answers, facts_now, is_absent
from logproof.client.tokenizer import Tokenizer
from logproof.dialects.call import Call
from logproof.errors import EndpointError, LogproofError, RateLimited, ServerFault, TransportError, UsageError
from logproof.http.retry import RetryPolicy
from logproof.ir.facts import Facts
from logproof.ir.request import Request

MAX_CONCURRENCY = 4096
"""Most samples at a time: each is a task of its own."""

ENDPOINT_ERRORS = (TransportError, ServerFault, RateLimited)
"""Errors of an endpoint, not of a request: another one may do better."""

REST_S = 5.0
"""First rest of an endpoint that failed; it doubles with each failure in a row up to MAX_REST_S."""
MAX_REST_S = 60.0

ROUNDS = 2
"""How often a request goes round all endpoints."""

RESENDS = 2
"""How often a request goes out again after an outage: one that ends the engine itself must come to an end.

The last time it goes alone of those lost so often, so that what one of them ends is not held against the others."""

SHARED_RETRY = RetryPolicy(attempts=2)
"""Sends at one endpoint before a request moves to the next."""

T = TypeVar("T")


class PoolReply(msgspec.Struct, frozen=True, eq=False):
    """A call or its failure. endpoint: the last that was asked, as shown."""

    result: Call | LogproofError
    endpoint: str


class _Member(msgspec.Struct, eq=False):
    connection: Connection
    in_flight: int = 0
    failures: int = 0
    rests_until: float = 0.0


class PoolListener(Protocol):
    """Who hears what becomes of the endpoints."""

    def outage(self, line: str) -> None:
        """No endpoint answers any more, or one does again; in words."""

    def rest(self, endpoint: str, error: EndpointError, seconds: float) -> None:
        """An endpoint failed and gets no request for so long, as others are left."""


class Pool:
    """Connections to one model. announce: takes a line at begin and end of each outage.

    connections: in the order of joining; grows where an endpoint joins later. ask: whether an endpoint answers;
    read: what it is now (outage.py).
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
        check_agreement(connections)
        self.connections = list(connections)
        self.outage = Outage(self.connections, announce=self._outage, ask=ask, read=read, clock=clock, sleep=sleep)
        self._announce = announce
        self._listeners: list[PoolListener] = []
        self._members = [_Member(c) for c in connections]
        self._clock, self._sleep = clock, sleep
        self._alone = asyncio.Lock()

    def subscribe(self, listener: PoolListener) -> None:
        """Let one more listener hear of outages and rests from now on."""
        self._listeners.append(listener)

    def _outage(self, line: str) -> None:
        self._announce(line)
        for listener in self._listeners:
            listener.outage(line)

    @property
    def first(self) -> Connection:
        """The connection that the run was planned with."""
        return self.connections[0]

    @property
    def tokenizer(self) -> Pool | None:
        """The endpoints' tokenizer, where they have one."""
        return self if self.first.tokenizer is not None else None

    @property
    def secrets(self) -> list[str]:
        """Keys, to be masked in whatever is written."""
        return [c.endpoint.key.reveal() for c in self.connections if c.endpoint.key is not None]

    def join(self, connection: Connection) -> None:
        """One more endpoint. Raises UsageError where it differs from the others, also in its fingerprint."""
        check_agreement([*self.connections, connection])
        fingerprints = {c.facts.fingerprint for c in self.connections}
        if connection.facts.fingerprint not in fingerprints:
            raise UsageError(f"its fingerprint {connection.facts.fingerprint!r} is none of this run's")
        self.connections.append(connection)
        self._members.append(_Member(connection))

    async def call(self, request: Request) -> PoolReply:
        """Send a request; its error is returned, not raised."""
        last = [self.first]

        async def send(connection: Connection) -> Call:
            last[0] = connection
            return await connection.client.call(request)

        try:
            return PoolReply(await self._reach(send), last[0].endpoint.display)
        except LogproofError as error:
            return PoolReply(error, last[0].endpoint.display)

    async def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text. Raises UsageError where the endpoints have no tokenizer."""
        return await self._reach(lambda connection: _tokenizer(connection).encode(text))

    async def _reach(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """Do it where an endpoint answers, again after an outage. Raises the last error, or EngineGone."""
        resends = RESENDS
        while True:
            async with nullcontext() if resends else self._alone:
                outages = self.outage.count
                try:
                    return await self._round(act)
                except ENDPOINT_ERRORS as error:
                    if not is_absent(error) or not await self.outage.passed(outages, error) or not resends:
                        raise
            resends -= 1

    async def _round(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        """Do it at one endpoint after another until one answers. Raises the last error."""
        last: EndpointError | None = None
        for round_ in range(ROUNDS if len(self._members) > 1 else 1):
            if round_:
                await self._sleep(max(0.0, min(m.rests_until for m in self._members) - self._clock()))
            for member in self._order():
                try:
                    return await self._try(member, act)
                except ENDPOINT_ERRORS as error:
                    last = error
        raise last or EndpointError("no endpoint was asked")

    def _order(self) -> list[_Member]:
        now = self._clock()
        return sorted(self._members, key=lambda m: (m.rests_until > now, m.in_flight))

    async def _try(self, member: _Member, act: Callable[[Connection], Awaitable[T]]) -> T:
        member.in_flight += 1
        try:
            result = await act(member.connection)
        except ENDPOINT_ERRORS as error:
            self._rest(member, error)
            raise
        finally:
            member.in_flight -= 1
        member.failures, member.rests_until = 0, 0.0
        return result

    def _rest(self, member: _Member, error: EndpointError) -> None:
        """Requests that were in flight together count as one failure."""
        now = self._clock()
        if len(self._members) > 1 and member.rests_until <= now:
            seconds = min(REST_S * 2.0**member.failures, MAX_REST_S)
            member.failures += 1
            member.rests_until = now + seconds
            for listener in self._listeners:
                listener.rest(member.connection.endpoint.display, error, seconds)


def _tokenizer(connection: Connection) -> Tokenizer:
    if connection.tokenizer is None:
        raise UsageError(f"{connection.endpoint.display} has no tokenizer", hint="name a local one with --tokenizer")
    return connection.tokenizer


def check_agreement(connections: Sequence[Connection]) -> None:
    """Raise UsageError, naming the first difference, where endpoints are not interchangeable."""
    first = connections[0]
    _refuse_twins([c.endpoint.display for c in connections])
    for other in connections[1:]:
        mine, theirs = _deciding(first), _deciding(other)
        unlike = next((name for name in mine if mine[name] != theirs[name]), None)
        if unlike is not None:
            raise UsageError(
                f"{first.endpoint.display} and {other.endpoint.display} differ in {unlike}: "
                f"{_short(mine[unlike])} and {_short(theirs[unlike])}",
                hint="endpoints of one run must serve the same model in the same way",
            )


def _deciding(connection: Connection) -> dict[str, object]:
    facts: Facts = connection.facts
    return {
        "model": connection.model,
        "dialect": connection.client.dialect.id,
        "engine": facts.engine,
        **{name: getattr(facts, name) for name in SHARED_FACTS},
    }


def _refuse_twins(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise UsageError("an endpoint is named twice", hint="name each base URL once")


def _short(value: object) -> str:
    return repr(value) if not isinstance(value, dict) else f"{len(value)} routes"


def check_urls(urls: Sequence[str], options: Options) -> None:
    """Raise UsageError for a URL that is none, or is named twice. Nothing is sent."""
    _refuse_twins([open_endpoint(url, options, "bearer").display for url in urls])


@asynccontextmanager
async def open_pool(
    urls: Sequence[str], options: Options | None = None, announce: Announce = lambda line: None
) -> AsyncIterator[Pool]:
    """Connect to every URL; of several, those that do not answer may join later. announce: takes a line for the user.

    Raises what `connect` raises where none answers, and UsageError where the endpoints differ.
    """
    options = options or Options()
    check_urls(urls, options)
    if len(urls) > 1:
        options = msgspec.structs.replace(options, retry=SHARED_RETRY)
    async with AsyncExitStack() as stack:
        connections, failures = await _opened(urls, options, announce, stack)
        pool = Pool(connections, announce=announce)
        for url, error in failures.items():
            announce(f"{url} is left out until it answers: {error.message}")
        seeking = asyncio.create_task(_seek(list(failures), options, pool, announce, stack))
        try:
            yield pool
        finally:
            seeking.cancel()
            await asyncio.wait([seeking])


async def _opened(
    urls: Sequence[str], options: Options, announce: Announce, stack: AsyncExitStack
) -> tuple[list[Connection], dict[str, EndpointError]]:
    """Connections, at least one, and why the others did not come about."""
    connections: list[Connection] = []
    failures: dict[str, EndpointError] = {}
    for url in urls:
        try:
            connections.append(await stack.enter_async_context(connect(url, options, announce)))
        except ENDPOINT_ERRORS as error:
            failures[url] = error
    if not connections:
        raise next(iter(failures.values()))
    return connections, failures


async def _seek(urls: list[str], options: Options, pool: Pool, announce: Announce, stack: AsyncExitStack) -> None:
    """Ask endpoints that were left out until each has joined, or turned out to be another."""
    pause = REST_S
    while urls:
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_REST_S)
        for url in list(urls):
            try:
                pool.join(await stack.enter_async_context(connect(url, options)))
            except ENDPOINT_ERRORS:
                continue
            except LogproofError as error:
                announce(f"{url} stays out: {error.message}")
            else:
                announce(f"{url} answers now and takes its share")
            urls.remove(url)
