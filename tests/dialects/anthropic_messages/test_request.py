from __future__ import annotations

import json

import msgspec
import pytest

from logproof.client.client import Lowered
from logproof.client.connect import with_version
from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.message import (
    ImagePart,
    Message,
    Opaque,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    text_message,
)
from logproof.ir.request import Function, Hosted, Input, Output, Request, Sampling, Tools

DIALECT = get_dialect("anthropic_messages")
USER = text_message("user", "Hi")
VLLM = Facts(engine="vllm")
NEW_API = Facts(api_version="2026-10-21")


def chat(*messages: Message, **groups: msgspec.Struct) -> Request:
    base = Request("claude", Input(messages=messages or (USER,)), sampling=Sampling(max_tokens=16))
    return msgspec.structs.replace(base, **groups)


def sent(asked: Request, facts: Facts | None = None) -> dict[str, object]:
    """The body of a request that passes, without the fields that all of them have."""
    body: dict[str, object] = json.loads(lower(asked, DIALECT, facts or Facts()).wire.body)
    return {k: v for k, v in body.items() if k not in ("model", "max_tokens")}


def turns(*messages: Message) -> object:
    return sent(chat(*messages))["messages"]


def refusal(asked: Request, facts: Facts | None = None) -> dict[str, str]:
    with pytest.raises(RequestRefused) as caught:
        lower(asked, DIALECT, facts or Facts())
    return dict(caught.value.refusals)


def with_leaf(leaf: str, value: object) -> Request:
    group, name = leaf.split(".", 1)
    base = chat()
    if group == "options":
        return msgspec.structs.replace(base, options={name: value})
    return msgspec.structs.replace(base, **{group: msgspec.structs.replace(getattr(base, group), **{name: value})})


def decision(lowered: Lowered, leaf: str) -> tuple[str, str | None]:
    found = next(d for d in lowered.decisions if d.leaf == leaf)
    return found.kind, found.pointer


def test_golden_body() -> None:
    asked = Request(
        "claude",
        Input(messages=(text_message("system", "Be brief."), USER)),
        sampling=Sampling(max_tokens=5, temperature=0.5, stop=("x",)),
    )
    lowered = lower(asked, DIALECT, Facts())
    assert json.loads(lowered.wire.body) == {
        "model": "claude",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "max_tokens": 5,
        "temperature": 0.5,
        "stop_sequences": ["x"],
    }
    assert (lowered.wire.path, lowered.wire.headers) == ("/v1/messages", (("anthropic-version", "2023-06-01"),))


def test_the_api_version_is_the_callers() -> None:
    assert lower(chat(), DIALECT, NEW_API).wire.headers == (("anthropic-version", "2026-10-21"),)


def test_a_limit_always_goes_out() -> None:
    lowered = lower(chat(sampling=Sampling()), DIALECT, Facts())
    assert json.loads(lowered.wire.body)["max_tokens"] == 4096
    assert [c.pointer for c in lowered.constants] == ["/max_tokens"]


@pytest.mark.parametrize(
    ("leaf", "value", "pointer", "wire"),
    [
        ("sampling.temperature", 1.0, "/temperature", 1.0),
        ("sampling.top_p", 0.9, "/top_p", 0.9),
        ("sampling.top_k", 5, "/top_k", 5),
        ("sampling.stop", (), "/stop_sequences", []),
        ("output.json_schema", {"type": "object"}, "/output_config/format/schema", {"type": "object"}),
        ("reasoning.effort", "max", "/output_config/effort", "max"),
        ("reasoning.effort", "none", "/thinking/type", "disabled"),
        ("reasoning.summary", "auto", "/thinking/display", "summarized"),
        ("schedule.stream", True, "/stream", True),
        ("options.metadata", {"user_id": "u"}, "/metadata", {"user_id": "u"}),
        (
            "tools.hosted",
            (Hosted("web_search_20250305"),),
            "/tools",
            [{"type": "web_search_20250305", "name": "web_search"}],
        ),
        ("tools.hosted", (Hosted("browser_toolset_20260801"),), "/tools", [{"type": "browser_toolset_20260801"}]),
        (
            "tools.functions",
            (Function("f", "d", {"type": "object", "properties": {"a": {}}}, strict=True), Function("g")),
            "/tools",
            [
                {
                    "name": "f",
                    "input_schema": {"type": "object", "properties": {"a": {}}},
                    "description": "d",
                    "strict": True,
                },
                {"name": "g", "input_schema": {"type": "object", "properties": {}}},
            ],
        ),
    ],
)
def test_anthropic_messages_sends(leaf: str, value: object, pointer: str, wire: object) -> None:
    lowered = lower(with_leaf(leaf, value), DIALECT, Facts())
    node: object = json.loads(lowered.wire.body)
    for key in pointer.split("/")[1:]:
        assert isinstance(node, dict)
        node = node[key]
    assert node == wire
    assert decision(lowered, leaf) == ("sent", pointer)


@pytest.mark.parametrize(
    ("leaf", "value", "word"),
    [
        ("sampling.max_tokens", 0, "ask for 1"),
        ("sampling.temperature", 1.5, "0 to 1"),
        ("sampling.seed", 1, "openai_chat"),
        ("sampling.n", 2, "one choice"),
        ("sampling.frequency_penalty", 0.5, "openai_chat"),
        ("sampling.presence_penalty", 0.5, "openai_chat"),
        ("sampling.logit_bias", {1: 1.0}, "openai_chat"),
        ("sampling.stop", ("\n\n",), "white space"),
        ("scoring.prompt", 0, "vllm_native"),
        ("scoring.sampled", 0, "openai_chat"),
        ("scoring.label_ids", (1,), "vllm_native"),
        ("replay.token_ids", (1,), "vllm_native"),
        ("replay.logprobs_mode", "raw", "vllm_native"),
        ("output.json_object", True, "json_schema"),
        ("output.json_schema", {"type": "nope"}, "invalid JSON Schema"),
        ("output.regex", "a", "json_schema"),
        ("output.choice", ("a",), "enum"),
        ("output.grammar", "a", "vllm_native"),
        ("output.strict", False, "always held"),
        ("reasoning.effort", "minimal", "low"),
        ("reasoning.budget_tokens", 100, "1024"),
        ("reasoning.budget_tokens", 2048, "below"),
        ("reasoning.summary", "concise", "auto"),
        ("tools.functions", (Function("f", None, {"type": "array"}),), "type object"),
        ("tools.hosted", (Hosted("web_search"),), "date"),
        ("tools.hosted", (Hosted("frobnicate_20250305"),), "no tool"),
        ("tools.choice", "auto", "no tools"),
        ("tools.parallel", False, "no tools"),
        ("session.previous_response_id", "r", "openai_responses"),
        ("session.store", True, "openai_responses"),
        ("options.temperature", 1, "sampling.temperature"),
        ("options.frobnicate", 1, "no field"),
    ],
)
def test_anthropic_messages_refuses(leaf: str, value: object, word: str) -> None:
    assert word in refusal(with_leaf(leaf, value))[leaf]


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        ("sampling.n", 1),
        ("sampling.frequency_penalty", 0.0),
        ("sampling.presence_penalty", 0.0),
        ("sampling.logit_bias", {}),
        ("scoring.top_by", "id"),
        ("output.name", "n"),
        ("output.strict", True),
        ("session.store", False),
    ],
)
def test_noop(leaf: str, value: object) -> None:
    assert decision(lower(with_leaf(leaf, value), DIALECT, Facts()), leaf) == ("no-op", None)


@pytest.mark.parametrize(
    ("source", "leaf"),
    [
        (Input(text="a"), "input.text"),
        (Input(token_ids=(1,)), "input.token_ids"),
        (Input(text="a", suffix="b"), "input.suffix"),
    ],
)
def test_text_and_ids_are_refused(source: Input, leaf: str) -> None:
    assert leaf in refusal(Request("claude", source, sampling=Sampling(max_tokens=5)))


# What depends on the server and the version.


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_the_newer_api_takes_no_sampling(name: str) -> None:
    assert "2026-10-21" in refusal(with_leaf(f"sampling.{name}", 1), NEW_API)[f"sampling.{name}"]
    assert sent(with_leaf(f"sampling.{name}", 1))[name] == 1


def test_local_servers_have_limits_of_their_own() -> None:
    assert sent(with_leaf("sampling.temperature", 1.5), VLLM)["temperature"] == 1.5
    assert "4 stop" in refusal(with_leaf("sampling.stop", tuple("abcde")), VLLM)["sampling.stop"]
    hosted = with_leaf("tools.hosted", (Hosted("web_search_20250305"),))
    assert "no tools of its own" in refusal(hosted, VLLM)["tools.hosted"]
    prefill = chat(USER, text_message("assistant", "Yes"))
    assert "anew" in refusal(prefill, VLLM)["input.messages.prefill"]
    assert sent(prefill)["messages"]


def test_a_field_that_the_server_does_not_list_is_refused() -> None:
    facts = Facts(engine="vllm", fields={"/v1/messages": ("model", "messages", "max_tokens", "cache_salt")})
    assert "does not read top_k" in refusal(with_leaf("sampling.top_k", 3), facts)["sampling.top_k"]
    assert sent(with_leaf("options.cache_salt", "s"), facts)["cache_salt"] == "s"
    assert "no field" in refusal(with_leaf("options.metadata", {}), facts)["options.metadata"]


def test_dropped_leaves_leave_no_trace() -> None:
    asked = msgspec.structs.replace(with_leaf("sampling.seed", 7), output=Output(json_schema={"type": "nope"}))
    lowered = lower(asked, DIALECT, Facts(), drop=("sampling.seed", "output.json_schema"))
    assert set(json.loads(lowered.wire.body)) == {"model", "messages", "max_tokens"}


# Thinking and tools.


def test_a_budget_goes_with_thinking() -> None:
    asked = msgspec.structs.replace(with_leaf("reasoning.budget_tokens", 1024), sampling=Sampling(max_tokens=2000))
    assert sent(asked)["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert sent(with_leaf("reasoning.summary", "auto"))["thinking"] == {"type": "adaptive", "display": "summarized"}
    both = msgspec.structs.replace(
        asked, reasoning=msgspec.structs.replace(asked.reasoning, effort="none", summary="auto")
    )
    assert set(refusal(both)) == {"reasoning.budget_tokens", "reasoning.summary"}


@pytest.mark.parametrize(
    ("choice", "parallel", "wire"),
    [
        ("auto", None, {"type": "auto"}),
        ("none", None, {"type": "none"}),
        ("none", False, {"type": "none"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("function:f", None, {"type": "tool", "name": "f"}),
        (None, True, {"type": "auto", "disable_parallel_tool_use": False}),
        (None, None, None),
    ],
)
def test_tool_choice(choice: str | None, parallel: bool | None, wire: object) -> None:
    asked = chat(tools=Tools(functions=(Function("f"),), choice=choice, parallel=parallel))
    assert sent(asked).get("tool_choice") == wire


@pytest.mark.parametrize("choice", ["function:g", "sometimes", "f"])
def test_a_choice_of_no_given_tool_is_refused(choice: str) -> None:
    assert "NAME" in refusal(chat(tools=Tools(functions=(Function("f"),), choice=choice)))["tools.choice"]


def test_functions_and_provider_tools_share_a_list() -> None:
    tools = Tools(functions=(Function("f"),), hosted=(Hosted("web_search_20250305", {"max_uses": 2}),))
    listed = sent(chat(tools=tools))["tools"]
    assert isinstance(listed, list)
    assert [t["name"] for t in listed] == ["f", "web_search"]
    assert listed[1]["max_uses"] == 2


# Messages.


def test_several_system_texts_stand_as_blocks() -> None:
    body = sent(chat(text_message("system", "a"), text_message("system", "b"), USER))
    assert body["system"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_a_tool_turn_keeps_ids_and_arguments_byte_for_byte() -> None:
    arguments = '{"x": 1.0,\n "big": 12345678901234567890, "a": "\\u00e9"}'
    asked = chat(
        USER,
        Message(
            "assistant",
            (TextPart("I look."), ToolCallPart("toolu_1", "f", arguments), ToolCallPart("toolu_2", "f", "{}")),
        ),
        Message("tool", (ToolResultPart("toolu_1", "sunny"),)),
        Message("tool", (ToolResultPart("toolu_2", "no such city", is_error=True),)),
        text_message("user", "And now?"),
    )
    raw = lower(asked, DIALECT, Facts()).wire.body
    assert arguments.encode() in raw
    messages = json.loads(raw)["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "user"]
    assert messages[1]["content"][1]["id"] == "toolu_1"
    assert messages[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no such city", "is_error": True},
        {"type": "text", "text": "And now?"},
    ]


def test_images_and_thinking() -> None:
    signature = Opaque("anthropic_messages", "signature", "c2ln")
    redacted = Opaque("anthropic_messages", "redacted_thinking", {"type": "redacted_thinking", "data": "e"})
    cited = Opaque("anthropic_messages", "citations", [{"type": "char_location"}])
    call = Opaque("anthropic_messages", "tool_use", {"caller": {"type": "direct"}})
    messages = turns(
        Message("user", (ImagePart(url="https://a/b.png"), ImagePart(data="aGk=", media_type="image/png"))),
        Message(
            "assistant",
            (
                ReasoningPart("hm", signature),
                OpaquePart(redacted),
                TextPart("x", cited),
                ToolCallPart("t", "f", "{}", call),
            ),
        ),
        text_message("user", "go on"),
    )
    assert isinstance(messages, list)
    assert messages[0]["content"] == [
        {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    ]
    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "e"},
        {"type": "text", "text": "x", "citations": [{"type": "char_location"}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}},
    ]


@pytest.mark.parametrize(
    ("messages", "leaf", "word"),
    [
        ((USER, text_message("system", "late"), USER), "input.messages.system", "before all turns"),
        ((Message("system", (ImagePart(url="u"),)), USER), "input.messages.system", "text alone"),
        ((Message("system", (TextPart("s"),), name="n"), USER), "input.messages.name", "names"),
        ((text_message("developer", "d"), USER), "input.messages.developer", "use system"),
        ((Message("user", (TextPart("a"),), name="bob"),), "input.messages.name", "names"),
        ((USER, Message("assistant", None), USER), "input.messages.null_content", "empty"),
        ((Message("user", ()),), "input.messages", "empty"),
        ((USER, USER), "input.messages", "join them"),
        ((text_message("assistant", "a"), USER), "input.messages", "first turn"),
        ((USER, Message("assistant", (ImagePart(url="u"),)), USER), "input.messages.image", "user turns"),
        ((Message("user", (ImagePart(data="x"),)),), "input.messages.image", "media_type"),
        ((Message("user", (ImagePart(url="u", detail="low"),)),), "input.messages.image_detail", "detail"),
        ((USER, Message("assistant", (ToolCallPart("t", "f", "[1]"),)), USER), "input.messages.tool_call", "object"),
        ((USER, Message("assistant", (ToolCallPart("t", "f", "{"),)), USER), "input.messages.tool_call", "object"),
        ((USER, Message("assistant", (ReasoningPart("hm"),)), USER), "input.messages.reasoning", "signature"),
        (
            (USER, Message("assistant", (TextPart("x", Opaque("google_genai", "thoughtSignature", "s")),)), USER),
            "input.messages.opaque",
            "google_genai",
        ),
        ((USER, text_message("assistant", "The answer is ")), "input.messages.prefill", "white space"),
    ],
)
def test_refused_messages(messages: tuple[Message, ...], leaf: str, word: str) -> None:
    assert word in refusal(chat(*messages))[leaf]


def test_the_version_in_the_callers_headers_decides() -> None:
    assert with_version(Facts(), {"Anthropic-Version": "2026-10-21"}).api_version == "2026-10-21"
    assert with_version(Facts(), {"x-other": "1"}).api_version is None
