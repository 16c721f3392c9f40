"""google_genai against a LiteLLM proxy in front of a real vLLM, the one server of this wire that runs anywhere.

The same proxy also serves the other wires, behind a key.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from fakes.gateway import KEY
from logproof.client.connect import Options, best_dialect, connect
from logproof.dialects.registry import fitting
from logproof.errors import (
    BadReply,
    ContextOverflow,
    MissingChannel,
    ModelNotFound,
    OutputContractError,
    RequestRefused,
    StatusError,
)
from logproof.ir.facts import Facts
from logproof.ir.message import Message, text_message
from logproof.ir.request import Input, Output, Request, Sampling, Schedule, Scoring
from logproof.ir.response import Response
from logproof.ir.turn import to_message

USER = text_message("user", "What is 2+2? Answer shortly.")


def ask(url: str, *requests: Request, key: str | None = KEY) -> list[Response]:
    """Send requests one after the other, as to an endpoint of which nothing is known."""

    async def run() -> list[Response]:
        options = Options(dialect="google_genai", model="smollm2", key=key, facts=Facts())
        async with connect(url, options) as connection:
            return [(await connection.client.call(r)).response for r in requests]

    return asyncio.run(run())


def chat(*messages: Message, **groups: msgspec.Struct) -> Request:
    sampling = Sampling(max_tokens=16, temperature=0.0)
    return msgspec.structs.replace(Request("smollm2", Input(messages=messages or (USER,)), sampling=sampling), **groups)


def test_plain_and_streamed_replies_are_equal(gateway_url: str) -> None:
    plain = chat(text_message("system", "Be brief."), USER)
    one, other = ask(gateway_url, plain, msgspec.structs.replace(plain, schedule=Schedule(stream=True)))
    first, second = (msgspec.structs.asdict(r.choices[0]) for r in (one, other))
    assert first == second
    assert one.usage == other.usage
    assert one.choices[0].text


def test_a_turn_goes_on(gateway_url: str) -> None:
    (first,) = ask(gateway_url, chat())
    (second,) = ask(gateway_url, chat(USER, to_message(first.choices[0]), text_message("user", "And 3+3?")))
    assert (second.usage.prompt or 0) > (first.usage.prompt or 0)


def test_a_stop_and_a_limit(gateway_url: str) -> None:
    stop = chat(sampling=Sampling(max_tokens=16, temperature=0.0, stop=("answer",)))
    stopped, cut = ask(gateway_url, stop, chat(sampling=Sampling(max_tokens=2, temperature=0.0)))
    assert "answer" not in stopped.choices[0].text
    assert (cut.choices[0].finish.reason, cut.choices[0].finish.raw) == ("length", "MAX_TOKENS")


def test_structured_output(gateway_url: str) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}},
        "required": ["name"],
        "additionalProperties": False,
    }
    sampling = Sampling(max_tokens=60, temperature=0.0)
    (response,) = ask(gateway_url, chat(sampling=sampling, output=Output(json_schema=schema)))
    assert isinstance(response.choices[0].parsed, dict)
    with pytest.raises(OutputContractError):
        ask(gateway_url, chat(output=Output(json_object=True)))


def test_what_the_gateway_drops_is_noticed(gateway_url: str) -> None:
    with pytest.raises(MissingChannel):
        ask(gateway_url, chat(scoring=Scoring(sampled=3)))
    with pytest.raises(BadReply, match="2 asked"):
        ask(gateway_url, chat(sampling=Sampling(max_tokens=4, n=2)))
    (seeded,) = ask(gateway_url, chat(sampling=Sampling(max_tokens=4, seed=7)))
    assert seeded.notes == ("unconfirmed, as a gateway may drop it: sampling.seed",)


def test_errors_are_typed(gateway_url: str) -> None:
    with pytest.raises(ContextOverflow):
        ask(gateway_url, chat(text_message("user", "word " * 2100)))
    with pytest.raises(ModelNotFound):
        ask(gateway_url, msgspec.structs.replace(chat(), model="nope"))
    with pytest.raises(StatusError):
        ask(gateway_url, chat(), key="wrong")


def probed(url: str, dialect: str) -> tuple[Facts, Response]:
    """What the probe finds, and the reply to a short question over one wire."""

    async def run() -> tuple[Facts, Response]:
        async with connect(url, Options(dialect=dialect, key=KEY)) as connection:
            return connection.facts, (await connection.client.call(chat())).response

    return asyncio.run(run())


@pytest.mark.parametrize("dialect", ["google_genai", "openai_chat", "anthropic_messages", "openai_responses"])
def test_the_probe_sees_a_gateway_and_each_wire_is_answered_behind_the_key(gateway_url: str, dialect: str) -> None:
    facts, response = probed(gateway_url, dialect)
    assert (facts.engine, facts.version, facts.models, facts.fields) == ("litellm", "1.108.7", ("smollm2",), {})
    assert dialect in fitting(facts)
    assert best_dialect(facts).id == "openai_chat"
    assert response.text.strip()
    assert (response.usage.completion or 0) > 0


def test_what_a_gateway_may_drop_is_refused_where_nothing_would_show_it(gateway_url: str) -> None:
    """The fields of the engine behind are not the gateway's: label scores need a proof that they are read."""

    async def run() -> None:
        async with connect(gateway_url, Options(dialect="openai_chat", key=KEY)) as connection:
            await connection.client.call(chat(scoring=Scoring(label_ids=(1, 2))))

    with pytest.raises(RequestRefused, match="does not list"):
        asyncio.run(run())
