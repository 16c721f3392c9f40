"""anthropic_messages against the official SDK: its request types, its replies, and the body that it sends itself.

The SDK's request types are open dictionaries read lazily, so blocks are checked one by one, and keys by hand.
"""

from __future__ import annotations

import json
from typing import Any, get_args

import httpx2
import pytest
from anthropic import Anthropic
from anthropic.types import ContentBlockParam, Message, ToolParam, ToolUnionParam
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from pydantic import BaseModel, TypeAdapter

from dialects.anthropic_messages.test_reply import ASKED, CITED, FOUND, REDACTED, REPLIES, SEARCH, THINKING, body, reply
from dialects.anthropic_messages.test_request import DIALECT, USER, chat
from logproof.dialects.lower import lower
from logproof.errors import LogproofError
from logproof.ir import message as ir
from logproof.ir.facts import Facts
from logproof.ir.request import Function, Hosted, Output, Reasoning, Request, Sampling, Schedule, Tools

SCHEMA: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
OLDER = {"temperature", "top_p", "top_k"}
"""Fields of API version 2023-06-01 that this SDK has no more."""


def blob(kind: str, value: object) -> ir.Opaque:
    return ir.Opaque("anthropic_messages", kind, value)


TALK = (
    ir.text_message("system", "Be brief."),
    ir.Message(
        "user",
        (ir.TextPart("See"), ir.ImagePart(url="https://x/a.png"), ir.ImagePart(data="aGk=", media_type="image/png")),
    ),
    ir.Message(
        "assistant",
        (
            ir.ReasoningPart("hm", blob("signature", "c2ln")),
            ir.OpaquePart(blob("redacted_thinking", REDACTED)),
            ir.OpaquePart(blob("server_tool_use", SEARCH)),
            ir.TextPart("Wait", blob("citations", CITED["citations"])),
            ir.ToolCallPart("toolu_1", "f", '{"a": 1}'),
        ),
    ),
    ir.Message("tool", (ir.ToolResultPart("toolu_1", "no", is_error=True),)),
    ir.text_message("user", "Go on"),
)
BODIES: dict[str, Request] = {
    "plain": chat(),
    "talk": chat(*TALK),
    "sampling": chat(sampling=Sampling(max_tokens=9, temperature=0.5, top_p=0.9, top_k=3, stop=("x",))),
    "schema": chat(output=Output(json_schema=SCHEMA)),
    "effort": chat(reasoning=Reasoning(effort="high", summary="auto")),
    "no_thinking": chat(reasoning=Reasoning(effort="none")),
    "budget": chat(sampling=Sampling(max_tokens=2000), reasoning=Reasoning(budget_tokens=1024)),
    "tools": chat(
        tools=Tools(functions=(Function("f", "d", SCHEMA, strict=True),), choice="function:f", parallel=False)
    ),
    "hosted": chat(tools=Tools(hosted=(Hosted("web_search_20260318", {"max_uses": 2}), Hosted("memory_20250818")))),
    "stream": chat(schedule=Schedule(stream=True)),
}


def sent(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lower(BODIES[name], DIALECT, Facts()).wire.body)
    return found


def kinds_of(union: object) -> dict[str, Any]:
    """{type tag: request type} of a union of them."""
    found: dict[str, Any] = {}
    for kind in get_args(union):
        if isinstance(kind, type) and not issubclass(kind, BaseModel) and hasattr(kind, "__required_keys__"):
            hints = TypeAdapter(kind).json_schema()["properties"].get("type", {})
            found.update(dict.fromkeys([*hints.get("enum", ()), hints.get("const")], kind))
    return found


BLOCKS, TOOLS = kinds_of(ContentBlockParam), kinds_of(ToolUnionParam)


@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_what_the_sdk_types_say(name: str) -> None:
    found = sent(name)
    kind = MessageCreateParamsStreaming if found.get("stream") else MessageCreateParamsNonStreaming
    assert (
        set(found)
        <= set(kind.__annotations__) | set(MessageCreateParamsNonStreaming.__mro__[0].__annotations__) | OLDER
    )
    TypeAdapter(kind).validate_python(found)
    for message in found["messages"]:
        for block in message["content"]:
            assert set(block) <= set(BLOCKS[block["type"]].__annotations__)
            TypeAdapter(BLOCKS[block["type"]]).validate_python(block, strict=True)
    for tool in found.get("tools", ()):
        shape = TOOLS[tool["type"]] if "type" in tool else ToolParam
        assert set(tool) <= set(shape.__annotations__)
        TypeAdapter(shape).validate_python(tool)


@pytest.mark.parametrize("name", ["plain", "talk", "schema", "budget", "tools", "stream"])
def test_the_sdk_sends_the_same_body(name: str) -> None:
    """Given the same arguments, the SDK's request is ours; its Bearer key and newer version are its own."""
    caught: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        caught.append(request)
        return httpx2.Response(200, json=json.loads(reply({"type": "text", "text": "a"})))

    arguments = sent(name)
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        Anthropic(api_key="k", base_url="http://x", http_client=http).messages.create(**arguments)
    assert json.loads(caught[0].content) == arguments
    assert caught[0].url.path == DIALECT.path(ASKED)


WHOLE = sorted(p.stem for p in REPLIES.glob("*.json") if "overflow" not in p.stem and "err" not in p.stem)


@pytest.mark.parametrize("name", WHOLE)
def test_recordings_hold_what_the_sdk_reads(name: str) -> None:
    raw = json.loads(body(name))
    if raw.get("type") != "message":
        with pytest.raises(LogproofError):
            DIALECT.lift(ASKED, body(name))
        return
    sdk, ours = Message.construct(**raw), DIALECT.lift(ASKED, body(name))
    choice = ours.choices[0]
    assert choice.text == "".join(b.text for b in sdk.content if b.type == "text")
    assert (choice.finish.raw, choice.finish.matched) == (sdk.stop_reason, sdk.stop_sequence)
    assert (ours.model, ours.response_id) == (sdk.model, sdk.id)
    assert (ours.usage.prompt, ours.usage.completion) == (sdk.usage.input_tokens, sdk.usage.output_tokens)
    assert [c.id for c in choice.tool_calls] == [b.id for b in sdk.content if b.type == "tool_use"]


def test_a_reply_of_every_kind_reads_alike() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}}
    raw = reply(THINKING, REDACTED, SEARCH, FOUND, CITED, call, stop_reason="tool_use")
    sdk, ours = Message.construct(**json.loads(raw)), DIALECT.lift(ASKED, raw).choices[0]
    assert [b.type for b in sdk.content] == [b["type"] for b in json.loads(raw)["content"]]
    assert ours.reasoning == sdk.content[0].thinking
    assert ours.opaque[0].blob == sdk.content[0].signature
    assert ours.citations[0].url == sdk.content[4].citations[0].url
    assert json.loads(ours.tool_calls[0].arguments) == sdk.content[5].input
    assert USER.role == "user"
