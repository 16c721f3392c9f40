"""One call of the client, and a recorded one that its tests begin with."""

from __future__ import annotations

import asyncio

from dialects import wires
from fakes.server import FakeServer
from logproof.client.client import Client
from logproof.dialects.call import Call
from logproof.dialects.openai_completions import OpenAICompletions
from logproof.dialects.vllm_native import VLLMNative
from logproof.http.endpoint import endpoint
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Transport
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Sampling, Scoring

SCORE = Request("smollm2", Input(text="The capital of France is"), sampling=Sampling(1, 0.0), scoring=Scoring(prompt=3))
RECORDED = wires.REPLIES / "vllm_native" / "comp_score_en_pl3_ids.json"


def call(
    fake: FakeServer, request: Request, facts: Facts | None = None, *, drop: tuple[str, ...] = (), echo: bool = False
) -> Call:
    async def run() -> Call:
        place = endpoint(fake.url, key="sk-test-ABC123", env={})
        async with Transport(place, policy=RetryPolicy(attempts=1)) as transport:
            dialect = OpenAICompletions() if echo else VLLMNative()
            return await Client(transport, dialect, facts, drop=drop).call(request)

    return asyncio.run(run())
