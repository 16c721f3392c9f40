"""The transport against a real server: every reply it may accept, and every fault it must name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from logproof.wire.endpoint import Endpoint, Timeouts, endpoint
from logproof.wire.message import WireReply, WireRequest
from logproof.wire.retry import RetryPolicy
from logproof.wire.transport import Transport
from tests.fakes.server import FakeServer, Reply

ROUTE = "/v1/completions"
ASK = WireRequest(ROUTE, b'{"prompt":"Hi"}')


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def send(
    where: Endpoint | str, *requests: WireRequest, waits: list[float] | None = None, **options: object
) -> list[WireReply]:
    async def nap(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    async def run() -> list[WireReply]:
        target = where if isinstance(where, Endpoint) else endpoint(where, env={})
        async with Transport(target, sleep=nap, **options) as transport:
            return [await transport.send(request) for request in requests]

    return asyncio.run(run())


def test_a_plain_reply_comes_back_whole(fake: FakeServer) -> None:
    fake.on(ROUTE, Reply(json={"ok": "é"}, headers={"X-Request-Id": "r1"}))
    (reply,) = send(fake.url, ASK)
    assert (reply.status, reply.body, reply.header("x-request-id")) == (200, '{"ok": "é"}'.encode(), "r1")
    assert reply.attempts == 1 and reply.events is None
    assert fake.seen[0].body == ASK.body
