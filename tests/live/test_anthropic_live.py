"""anthropic_messages against the Messages route of a real vLLM."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from logproof.client.connect import Options, connect
from logproof.errors import ContextOverflow, ModelNotFound, RequestRefused, StatusError
from logproof.ir.message import Message, text_message
from logproof.ir.request import Function, Input, Output, Request, Sampling, Schedule, Scoring, Tools
from logproof.ir.response import Response
from logproof.ir.turn import to_message

SYSTEM = text_message("system", "Answer shortly.")
USER = text_message("user", "What is 2+2?")


def ask(url: str, *requests: Request) -> list[Response]:
    """Send requests one after the other over one connection."""

    async def run() -> list[Response]:
        async with connect(url, Options(dialect="anthropic_messages", model="smollm2")) as connection:
            return [(await connection.client.call(r)).response for r in requests]

    return asyncio.run(run())


def chat(*messages: Message, max_tokens: int = 24, **groups: msgspec.Struct) -> Request:
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0)
    return msgspec.structs.replace(Request("smollm2", Input(messages=messages), sampling=sampling), **groups)


def test_plain_and_streamed_replies_are_equal(engine_url: str) -> None:
    plain = chat(SYSTEM, USER)
    one, other = ask(engine_url, plain, msgspec.structs.replace(plain, schedule=Schedule(stream=True)))
    first, second = (msgspec.structs.asdict(r.choices[0]) for r in (one, other))
    assert first == second
    assert (one.usage.prompt, one.usage.completion) == (other.usage.prompt, other.usage.completion)
    assert one.model == other.model == "smollm2"
    assert one.choices[0].text


def test_the_prompt_count_includes_the_cache(engine_url: str) -> None:
    """A repeated prompt costs the same tokens, whether or not the server counts the cached ones apart."""
    request = chat(text_message("user", "the quick brown fox " * 60), max_tokens=2)
    first, second = ask(engine_url, request, request)
    assert first.usage.prompt == second.usage.prompt


def test_a_stop_and_a_limit(engine_url: str) -> None:
    stop = msgspec.structs.replace(chat(SYSTEM, USER), sampling=Sampling(max_tokens=24, temperature=0.0, stop=("is",)))
    stopped, cut = ask(engine_url, stop, chat(SYSTEM, USER, max_tokens=2))
    assert "is" not in stopped.choices[0].text
    assert (stopped.choices[0].finish.raw, stopped.choices[0].finish.matched) == ("stop_sequence", "is")
    assert (cut.choices[0].finish.reason, cut.usage.completion) == ("length", 2)


def test_a_turn_goes_on(engine_url: str) -> None:
    (first,) = ask(engine_url, chat(USER))
    (second,) = ask(engine_url, chat(USER, to_message(first.choices[0]), text_message("user", "And 3+3?")))
    assert second.usage.prompt is not None
    assert first.usage.prompt is not None
    assert second.usage.prompt > first.usage.prompt


def test_structured_output(engine_url: str) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}},
        "required": ["name"],
        "additionalProperties": False,
    }
    request = chat(text_message("user", "Name a person."), max_tokens=60, output=Output(json_schema=schema))
    (response,) = ask(engine_url, request)
    assert isinstance(response.choices[0].parsed, dict)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (chat(text_message("user", "word " * 2100)), ContextOverflow),
        (msgspec.structs.replace(chat(USER), model="nope"), ModelNotFound),
        (chat(USER, tools=Tools(functions=(Function("f"),), choice="required")), StatusError),
    ],
)
def test_errors_are_typed(engine_url: str, request_: Request, error: type[StatusError]) -> None:
    with pytest.raises(error):
        ask(engine_url, request_)


@pytest.mark.parametrize(
    "request_",
    [
        chat(USER, text_message("assistant", "The answer is")),
        msgspec.structs.replace(chat(USER), sampling=Sampling(max_tokens=4, seed=7)),
        chat(USER, scoring=Scoring(sampled=3)),
        msgspec.structs.replace(chat(USER), options={"logprobs": 3}),
    ],
)
def test_what_this_server_ignores_is_refused(engine_url: str, request_: Request) -> None:
    with pytest.raises(RequestRefused):
        ask(engine_url, request_)
