from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fakes.server import FakeServer, Reply
from logproof.client.engine_defaults import ROUTE, told_defaults
from logproof.http.endpoint import endpoint
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Transport
from logproof.ir.facts import Facts

VLLM = Facts(engine="vllm", models=("m",), routes=(ROUTE,))


def told(reply: Any, facts: Facts = VLLM) -> dict[str, float]:
    async def work(url: str) -> dict[str, float]:
        async with Transport(endpoint(url), policy=RetryPolicy(attempts=1)) as transport:
            return await told_defaults(transport, facts)

    with FakeServer() as fake:
        fake.on(ROUTE, reply)
        found = asyncio.run(work(fake.url))
        assert [s.json()["max_output_tokens"] for s in fake.seen] in ([1], [])
    return found


def test_vllm_repeats_the_sampling_it_used() -> None:
    echo = {"id": "r", "temperature": 0.6, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": None}
    assert told(echo) == {"temperature": 0.6, "top_p": 1.0, "presence_penalty": 0.0}


@pytest.mark.parametrize("reply", [Reply(400, json={}), Reply(body="nothing"), Reply(drop=True), {"temperature": "x"}])
def test_an_engine_that_tells_nothing(reply: Any) -> None:
    assert told(reply) == {}


@pytest.mark.parametrize("facts", [Facts(), Facts(engine="vllm", models=("m",)), Facts(engine="vllm", routes=(ROUTE,))])
def test_only_an_engine_that_has_the_route_is_asked(facts: Facts) -> None:
    assert told({"temperature": 0.6}, facts) == {}
