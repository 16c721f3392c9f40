"""A request through a real transport, as the tests of this room send it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from logproof.http.endpoint import Endpoint, Timeouts, endpoint
from logproof.http.exchange import WireReply, WireRequest
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Transport

T = TypeVar("T")
ROUTE = "/v1/completions"
ASK = WireRequest(ROUTE, b'{"prompt":"Hi"}')
ONCE = RetryPolicy(attempts=1)
KEY = "sk-test-ABC123"
Job = Callable[[Transport], Awaitable[T]]


def at(url: str, **limits: float) -> Endpoint:
    return endpoint(url, env={}, timeouts=Timeouts(**limits))


def work(
    where: Endpoint | str,
    job: Job[T],
    *,
    policy: RetryPolicy | None = None,
    limit: int | None = None,
    max_reply_bytes: int = 2**20,
    waits: list[float] | None = None,
) -> T:
    """Run a job on a transport whose waits between attempts take no time and are noted."""

    async def nap(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    async def run() -> T:
        target = where if isinstance(where, Endpoint) else at(where)
        async with Transport(
            target, policy=policy, limit=limit, max_reply_bytes=max_reply_bytes, rng=random.Random(1), sleep=nap
        ) as transport:
            return await job(transport)

    return asyncio.run(run())


def send(
    where: Endpoint | str,
    request: WireRequest = ASK,
    *,
    policy: RetryPolicy | None = None,
    max_reply_bytes: int = 2**20,
    waits: list[float] | None = None,
) -> WireReply:
    return work(where, lambda t: t.send(request), policy=policy, max_reply_bytes=max_reply_bytes, waits=waits)
