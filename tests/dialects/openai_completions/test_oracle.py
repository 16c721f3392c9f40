"""openai_completions against the official SDK: its request types, its replies, and the body that it sends itself."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types import Completion
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from dialects import contract, wires
from dialects.openai_completions.test_reply import FOLDER, REFUSED
from logproof.dialects.lower import lower
from logproof.dialects.openai_completions import OpenAICompletions
from logproof.errors import InvalidRequest, RequestRefused
from logproof.ir.facts import Facts

DIALECT = OpenAICompletions()
OPENAI = Facts(engine="openai")


@pytest.mark.parametrize("leaf", contract.leaves())
def test_bodies_are_what_the_sdk_types_say(leaf: str) -> None:
    for value in contract.samples(leaf):
        try:
            body = json.loads(lower(contract.request_with(DIALECT, OPENAI, leaf, value), DIALECT, OPENAI).wire.body)
        except (InvalidRequest, RequestRefused):
            continue
        kind = CompletionCreateParamsStreaming if body.get("stream") else CompletionCreateParamsNonStreaming
        assert set(body) <= set(kind.__annotations__)
        TypeAdapter(kind).validate_python(body)


WHOLE = [n for n in wires.names(FOLDER) if n not in REFUSED and not wires.load(FOLDER, n).stream]


@pytest.mark.parametrize("name", WHOLE)
def test_recorded_replies_mean_the_same_to_the_sdk(name: str) -> None:
    """The SDK knows no prompt channel: the scored echo is the beginning of its one list.

    It reads replies without validating them; its types have no room for the null of the first echoed token.
    """
    exchange = wires.load(FOLDER, name)
    ours, raw = wires.lifted(DIALECT, exchange), exchange.json()
    theirs = Completion.construct(**raw)
    assert theirs.usage is not None
    assert (ours.usage.prompt, ours.usage.completion) == (theirs.usage.prompt_tokens, theirs.usage.completion_tokens)
    echoed = len(ours.prompt) if ours.prompt is not None else 0
    for mine, other in zip(ours.choices, theirs.choices, strict=True):
        assert (mine.index, mine.finish.raw) == (other.index, other.finish_reason)
        assert other.text.endswith(mine.text)
        values = other.logprobs.token_logprobs or [] if other.logprobs is not None else []
        if ours.prompt is not None:
            assert ours.prompt.logprobs[1:].tolist() == values[1:echoed]
        if mine.tokens is not None:
            assert mine.tokens.logprobs.tolist() == values[echoed:]


def test_a_common_body_is_the_sdk_s() -> None:
    """Given the same arguments the SDK posts our body to our path."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json={"choices": []})

    request = contract.request_with(DIALECT, OPENAI, "scoring.prompt", 3)
    body: dict[str, Any] = json.loads(lower(request, DIALECT, OPENAI).wire.body)
    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with OpenAI(api_key="k", base_url="http://x.test/v1", http_client=http) as client:
        client.completions.create(**body)
    assert json.loads(seen[0].content) == body
    assert seen[0].url.path == DIALECT.path(request)
