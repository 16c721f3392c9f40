"""openai_chat and openai_responses against the official SDK: its request types, its replies, its own bodies.

The SDK's request types are open dictionaries, so a key that they do not name is looked for by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseInputItemParam, ToolParam
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

from dialects.openai_chat import chat_cases, chat_wires
from dialects.openai_responses import responses_cases, responses_wires
from dialects.wires import events_of, load, names
from logproof.dialects.dialect import Dialect
from logproof.errors import LogproofError
from logproof.ir.message import (
    ImagePart,
    Message,
    Opaque,
    OpaquePart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    text_message,
)
from logproof.ir.request import (
    Function,
    Hosted,
    Output,
    Reasoning,
    Request,
    Sampling,
    Schedule,
    Scoring,
    Session,
    Tools,
)

HI = text_message("user", "Hi")
SCHEMA: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
TALK = (
    text_message("system", "Be brief."),
    text_message("developer", "Be kind."),
    Message("user", (TextPart("See"), ImagePart(url="https://x.test/a.png", detail="low"))),
    Message("assistant", (TextPart("Wait"), ToolCallPart("c1", "f", '{"a":1}'))),
    Message("tool", (ToolResultPart("c1", "1"),)),
    HI,
)
BOTH: dict[str, Request] = {
    "plain": chat_cases.ask(),
    "talk": chat_cases.ask(*TALK),
    "sampling": chat_cases.ask(sampling=Sampling(max_tokens=9, temperature=0.5, top_p=0.5, n=1, stop=())),
    "scored": chat_cases.ask(scoring=Scoring(sampled=5)),
    "schema": chat_cases.ask(output=Output(json_schema=SCHEMA, name="n", strict=True)),
    "object": chat_cases.ask(output=Output(json_object=True)),
    "effort": chat_cases.ask(reasoning=Reasoning(effort="low")),
    "tools": chat_cases.ask(
        tools=Tools(functions=(Function("f", "d", SCHEMA, True),), choice="function:f", parallel=False)
    ),
    "search": chat_cases.ask(tools=Tools(hosted=(Hosted("web_search"),))),
    "store": chat_cases.ask(session=Session(store=True)),
    "stream": chat_cases.ask(schedule=Schedule(stream=True)),
}
CHAT = BOTH | {
    "penalties": chat_cases.ask(
        sampling=Sampling(n=2, seed=7, stop=("x",), frequency_penalty=0.5, presence_penalty=0.5, logit_bias={5: 2.0})
    ),
    "refused": chat_cases.ask(HI, Message("assistant", (OpaquePart(Opaque("openai_chat", "refusal", "No")),)), HI),
}
RESPONSES = BOTH | {
    "session": responses_cases.ask(session=Session(previous_response_id="resp_1")),
    "summary": responses_cases.ask(reasoning=Reasoning(effort="low", summary="concise")),
    "items": responses_cases.ask(
        HI,
        Message("assistant", (OpaquePart(Opaque("openai_responses", "web_search_call", SEARCH)), TextPart("So"))),
        HI,
    ),
}


@pytest.mark.parametrize("name", CHAT)
def test_chat_bodies_are_what_the_sdk_types_say(name: str) -> None:
    body = chat_cases.sent(CHAT[name], chat_cases.OPENAI)
    kind = CompletionCreateParamsStreaming if body.get("stream") else CompletionCreateParamsNonStreaming
    assert set(body) <= set(kind.__annotations__)
    TypeAdapter(kind).validate_python(body, strict=True)
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(body["messages"])


@pytest.mark.parametrize("name", RESPONSES)
def test_responses_bodies_are_what_the_sdk_types_say(name: str) -> None:
    body = responses_cases.sent(RESPONSES[name], responses_cases.OPENAI)
    kind = ResponseCreateParamsStreaming if body.get("stream") else ResponseCreateParamsNonStreaming
    assert set(body) <= set(kind.__annotations__)
    TypeAdapter(list[ResponseInputItemParam]).validate_python(body["input"])
    TypeAdapter(list[ToolParam]).validate_python(body.get("tools", []))
    plain = {k: v for k, v in body.items() if k not in ("input", "tools")}
    TypeAdapter(kind).validate_python(plain, strict=True)


def lifted(dialect: Dialect, folder: str, name: str) -> tuple[Any, Any]:
    """(our Response, the plain reply that the SDK will read), or (None, None) for a recording that is refused."""
    found = load(folder, name)
    wires = chat_wires if folder == "openai_chat" else responses_wires
    asked = wires.request_of(found.request, sampled=0) if "logprobs" in str(found.request) else None
    body = dialect.reply_body(found.reply)
    try:
        return dialect.lift(asked or wires.request_of(found.request), body), json.loads(body)
    except LogproofError:
        return None, None


CHAT_NAMES = [n for n in names("openai_chat") if lifted(chat_cases.DIALECT, "openai_chat", n)[0] is not None]
RESPONSES_NAMES = [
    n for n in names("openai_responses") if lifted(responses_cases.DIALECT, "openai_responses", n)[0] is not None
]


@pytest.mark.parametrize("name", CHAT_NAMES)
def test_recorded_chat_replies_mean_the_same_to_the_sdk(name: str) -> None:
    """Less SGLang's metadata, where the SDK expects texts and a list stands."""
    ours, reply = lifted(chat_cases.DIALECT, "openai_chat", name)
    reply = {"created": 0, "object": "chat.completion", "model": "m", **reply}
    for choice in reply["choices"]:
        choice["message"]["role"] = "assistant"
        for call in choice["message"].get("tool_calls") or ():
            call["type"] = "function"
    reply.pop("metadata", None)
    theirs = ChatCompletion.model_validate(reply)
    assert [c.index for c in ours.choices] == [c.index for c in theirs.choices]
    for mine, other in zip(ours.choices, theirs.choices, strict=True):
        assert mine.text == (other.message.content or "")
        assert mine.finish.raw == other.finish_reason
        calls = [c for c in other.message.tool_calls or () if c.type == "function"]
        assert [(c.id, c.name, c.arguments) for c in mine.tool_calls] == [
            (c.id, c.function.name, c.function.arguments) for c in calls
        ]
        if mine.tokens is not None:
            assert other.logprobs is not None
            assert mine.tokens.logprobs.tolist() == [e.logprob for e in other.logprobs.content or ()]
    if theirs.usage is not None:
        assert (ours.usage.prompt, ours.usage.completion) == (
            theirs.usage.prompt_tokens,
            theirs.usage.completion_tokens,
        )


@pytest.mark.parametrize("name", [n for n in CHAT_NAMES if "stream" in n])
def test_recorded_chat_chunks_parse_in_the_sdk(name: str) -> None:
    ours, _ = lifted(chat_cases.DIALECT, "openai_chat", name)
    events = [e for e in events_of(load("openai_chat", name).body) if e.data != "[DONE]"]
    chunks = [ChatCompletionChunk.model_validate_json(e.data) for e in events]
    for choice in ours.choices:
        deltas = [c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == choice.index]
        assert "".join(deltas) == choice.text


@pytest.mark.parametrize("name", RESPONSES_NAMES)
def test_recorded_responses_mean_the_same_to_the_sdk(name: str) -> None:
    ours, reply = lifted(responses_cases.DIALECT, "openai_responses", name)
    theirs = SdkResponse.model_validate(reply)
    (choice,) = ours.choices
    assert choice.text == theirs.output_text
    assert ours.response_id == theirs.id
    assert theirs.usage is not None
    assert (ours.usage.prompt, ours.usage.completion, ours.usage.cached) == (
        theirs.usage.input_tokens,
        theirs.usage.output_tokens,
        theirs.usage.input_tokens_details.cached_tokens,
    )
    calls = [item for item in theirs.output if item.type == "function_call"]
    assert [(c.id, c.name, c.arguments) for c in choice.tool_calls] == [(c.call_id, c.name, c.arguments) for c in calls]


def sdk_body(send: str, arguments: Mapping[str, Any]) -> Any:
    """The body that the SDK posts for these arguments."""
    seen: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(json.loads(request.content))
        return httpx2.Response(200, json={"output": [], "choices": []})

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    with OpenAI(api_key="k", base_url="http://x.test/v1", http_client=http) as client:
        place = client.chat.completions if send == "chat" else client.responses
        place.create(**arguments)
    return seen[0]


def test_a_common_chat_body_is_the_sdk_s() -> None:
    arguments = {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "max_completion_tokens": 9,
        "seed": 7,
        "logprobs": True,
        "top_logprobs": 3,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        "tool_choice": "auto",
    }
    request = chat_cases.ask(
        text_message("system", "Be brief."),
        HI,
        sampling=Sampling(temperature=0.5, max_tokens=9, seed=7),
        scoring=Scoring(sampled=2),
        tools=Tools(functions=(Function("f", parameters=SCHEMA),), choice="auto"),
    )
    assert chat_cases.sent(request, chat_cases.OPENAI) == sdk_body("chat", arguments)


def test_a_common_responses_body_is_the_sdk_s() -> None:
    """The SDK sends what it is told; that nothing is stored, and that a message says its type, is ours."""
    arguments = {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "store": False,
        "temperature": 0.5,
        "max_output_tokens": 9,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 3,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}},
        "reasoning": {"effort": "low"},
    }
    request = responses_cases.ask(
        sampling=Sampling(temperature=0.5, max_tokens=9),
        scoring=Scoring(sampled=2),
        output=Output(json_schema=SCHEMA, name="n", strict=True),
        reasoning=Reasoning(effort="low"),
    )
    assert responses_cases.sent(request, responses_cases.OPENAI) == sdk_body("responses", arguments)
