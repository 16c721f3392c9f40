from __future__ import annotations

import json

import msgspec
import pytest

from logproof.client.client import Lowered
from logproof.dialects.google_genai.request import model_version
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
from logproof.ir.request import Function, Hosted, Input, Output, Request, Sampling, Schedule, Scoring, Tools

DIALECT = get_dialect("google_genai")
USER = text_message("user", "Hi")
MODEL = "gemini-2.5-flash"


def chat(*messages: Message, model: str = MODEL, **groups: msgspec.Struct) -> Request:
    return msgspec.structs.replace(Request(model, Input(messages=messages or (USER,))), **groups)


def sent(asked: Request) -> dict[str, object]:
    body: dict[str, object] = json.loads(lower(asked, DIALECT, Facts()).wire.body)
    return body


def refusal(asked: Request) -> dict[str, str]:
    with pytest.raises(RequestRefused) as caught:
        lower(asked, DIALECT, Facts())
    return dict(caught.value.refusals)


def with_leaf(leaf: str, value: object, model: str = MODEL) -> Request:
    group, name = leaf.split(".", 1)
    base = chat(model=model)
    if group == "options":
        return msgspec.structs.replace(base, options={name: value})
    return msgspec.structs.replace(base, **{group: msgspec.structs.replace(getattr(base, group), **{name: value})})


def decision(lowered: Lowered, leaf: str) -> tuple[str, str | None]:
    found = next(d for d in lowered.decisions if d.leaf == leaf)
    return found.kind, found.pointer


def test_golden_body() -> None:
    asked = Request(
        MODEL,
        Input(messages=(text_message("system", "Be brief."), USER, text_message("assistant", "Yes?"), USER)),
        sampling=Sampling(max_tokens=5, temperature=0.5, top_k=3),
        scoring=Scoring(sampled=2),
    )
    lowered = lower(asked, DIALECT, Facts())
    assert json.loads(lowered.wire.body) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": "Yes?"}]},
            {"role": "user", "parts": [{"text": "Hi"}]},
        ],
        "generationConfig": {
            "maxOutputTokens": 5,
            "temperature": 0.5,
            "topK": 3,
            "responseLogprobs": True,
            "logprobs": 2,
        },
    }
    assert lowered.wire.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert not lowered.wire.stream


def test_model_and_streaming_stand_in_the_path() -> None:
    lowered = lower(chat(model="models/a/b:c", schedule=Schedule(stream=True)), DIALECT, Facts())
    assert lowered.wire.path == "/v1beta/models/a%2Fb%3Ac:streamGenerateContent?alt=sse"
    assert lowered.wire.stream
    assert json.loads(lowered.wire.body) == json.loads(lower(chat(), DIALECT, Facts()).wire.body)
    assert decision(lowered, "schedule.stream") == ("no-op", None)


@pytest.mark.parametrize(
    ("name", "version"),
    [("gemini-2.5-flash", (2, 5)), ("gemini-3-pro", (3, 0)), ("google/gemini-3.6-flash", (3, 6)), ("smollm2", (0, 0))],
)
def test_model_version(name: str, version: tuple[int, int]) -> None:
    assert model_version(name) == version


@pytest.mark.parametrize(
    ("leaf", "value", "pointer", "wire"),
    [
        ("sampling.top_p", 0.9, "/generationConfig/topP", 0.9),
        ("sampling.seed", 7, "/generationConfig/seed", 7),
        ("sampling.n", 2, "/generationConfig/candidateCount", 2),
        ("sampling.stop", ("a",), "/generationConfig/stopSequences", ["a"]),
        ("sampling.stop", (), "/generationConfig/stopSequences", []),
        ("sampling.frequency_penalty", 0.5, "/generationConfig/frequencyPenalty", 0.5),
        ("sampling.presence_penalty", 0.5, "/generationConfig/presencePenalty", 0.5),
        ("scoring.sampled", 0, "/generationConfig/logprobs", 0),
        ("scoring.sampled", 20, "/generationConfig/logprobs", 20),
        ("output.json_schema", {"type": "object"}, "/generationConfig/responseJsonSchema", {"type": "object"}),
        ("output.json_object", True, "/generationConfig/responseMimeType", "application/json"),
        ("reasoning.effort", "xhigh", "/generationConfig/thinkingConfig/thinkingLevel", "XHIGH"),
        ("reasoning.budget_tokens", 0, "/generationConfig/thinkingConfig/thinkingBudget", 0),
        ("reasoning.summary", "auto", "/generationConfig/thinkingConfig/includeThoughts", True),
        ("tools.hosted", (Hosted("googleSearch"),), "/tools", [{"googleSearch": {}}]),
        (
            "tools.functions",
            (Function("f", "d", {"type": "object"}), Function("g")),
            "/tools",
            [
                {
                    "functionDeclarations": [
                        {"name": "f", "description": "d", "parametersJsonSchema": {"type": "object"}},
                        {"name": "g"},
                    ]
                }
            ],
        ),
        ("options.safetySettings", [{}], "/safetySettings", [{}]),
        ("options.mediaResolution", "M", "/generationConfig/mediaResolution", "M"),
    ],
)
def test_google_genai_sends(leaf: str, value: object, pointer: str, wire: object) -> None:
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
        ("sampling.max_tokens", 0, "1 token"),
        ("sampling.top_k", 0, "1 and more"),
        ("sampling.top_k", -1, "1 and more"),
        ("sampling.stop", tuple("abcdef"), "5 stop"),
        ("sampling.logit_bias", {1: 1.0}, "no bias"),
        ("scoring.prompt", 0, "vllm_native"),
        ("scoring.sampled", 21, "20"),
        ("scoring.label_ids", (1,), "vllm_native"),
        ("replay.token_ids", (1,), "vllm_native"),
        ("replay.logprobs_mode", "raw", "vllm_native"),
        ("output.json_schema", {"type": "nope"}, "invalid JSON Schema"),
        ("output.regex", "a", "json_schema"),
        ("output.choice", ("a",), "enum"),
        ("output.grammar", "a", "vllm_native"),
        ("output.strict", False, "always held"),
        ("reasoning.effort", "none", "budget_tokens 0"),
        ("reasoning.effort", "max", "xhigh"),
        ("reasoning.summary", "detailed", "auto"),
        ("tools.functions", (Function("f", strict=True),), "strict"),
        ("tools.hosted", (Hosted("web_search"),), "googleSearch"),
        ("tools.choice", "auto", "no functions"),
        ("tools.parallel", False, "parallel"),
        ("session.previous_response_id", "r", "openai_responses"),
        ("session.store", True, "openai_responses"),
        ("options.topK", 1, "sampling.top_k"),
        ("options.frobnicate", 1, "no field"),
    ],
)
def test_google_genai_refuses(leaf: str, value: object, word: str) -> None:
    assert word in refusal(with_leaf(leaf, value))[leaf]


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        ("sampling.logit_bias", {}),
        ("scoring.top_by", "id"),
        ("output.name", "n"),
        ("output.strict", True),
        ("tools.parallel", True),
        ("session.store", False),
        ("schedule.stream", False),
    ],
)
def test_noop(leaf: str, value: object) -> None:
    assert decision(lower(with_leaf(leaf, value), DIALECT, Facts()), leaf) == ("no-op", None)


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
@pytest.mark.parametrize("model", ["gemini-3-pro", "gemini-3.8-flash", "gemini-4-argon"])
def test_what_newer_models_ignore_is_refused(name: str, model: str) -> None:
    assert "ignore" in refusal(with_leaf(f"sampling.{name}", 1, model))[f"sampling.{name}"]
    assert "one candidate" in refusal(with_leaf("sampling.n", 2, model))["sampling.n"]
    assert sent(with_leaf("sampling.n", 1, model))


@pytest.mark.parametrize(
    ("model", "takes"), [("gemini-2.5-flash", True), ("gemini-3.6-flash", False), ("smollm2", False)]
)
def test_prefill_depends_on_the_model(model: str, takes: bool) -> None:
    asked = chat(USER, text_message("assistant", "Yes"), model=model)
    if takes:
        assert sent(asked)["contents"]
    else:
        assert "openai_chat" in refusal(asked)["input.messages.prefill"]


@pytest.mark.parametrize(
    ("source", "leaf"),
    [
        (Input(text="a"), "input.text"),
        (Input(token_ids=(1,)), "input.token_ids"),
        (Input(text="a", suffix="b"), "input.suffix"),
    ],
)
def test_text_and_ids_are_refused(source: Input, leaf: str) -> None:
    assert leaf in refusal(Request(MODEL, source))


def test_a_level_and_a_budget_exclude_each_other() -> None:
    asked = with_leaf("reasoning.effort", "low")
    both = msgspec.structs.replace(asked, reasoning=msgspec.structs.replace(asked.reasoning, budget_tokens=5))
    assert "exclude" in refusal(both)["reasoning.budget_tokens"]


def test_a_dropped_schema_leaves_no_trace() -> None:
    asked = chat(output=Output(json_schema={"type": "nope"}), scoring=Scoring(sampled=30))
    lowered = lower(asked, DIALECT, Facts(), drop=("output.json_schema", "scoring.sampled"))
    assert "generationConfig" not in json.loads(lowered.wire.body)


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ("function:f", {"mode": "ANY", "allowedFunctionNames": ["f"]}),
    ],
)
def test_tool_choice(choice: str, wire: object) -> None:
    asked = chat(tools=Tools(functions=(Function("f"),), hosted=(Hosted("urlContext"),), choice=choice))
    body = sent(asked)
    assert body["toolConfig"] == {"functionCallingConfig": wire}
    assert body["tools"] == [{"functionDeclarations": [{"name": "f"}]}, {"urlContext": {}}]


@pytest.mark.parametrize("choice", ["function:g", "sometimes"])
def test_a_choice_of_no_given_function_is_refused(choice: str) -> None:
    assert "NAME" in refusal(chat(tools=Tools(functions=(Function("f"),), choice=choice)))["tools.choice"]


# Messages.


def test_a_tool_turn_keeps_ids_arguments_and_signatures() -> None:
    arguments = '{"x": 1.0, "big": 12345678901234567890}'
    signature = Opaque("google_genai", "thoughtSignature", "c2ln")
    asked = chat(
        USER,
        Message(
            "assistant",
            (
                ReasoningPart("hm"),
                TextPart("I look.", signature),
                ToolCallPart("id1", "f", arguments, signature),
                ToolCallPart("unnamed-call-3", "g", "{}"),
            ),
        ),
        Message("tool", (ToolResultPart("id1", "sunny"),)),
        Message("tool", (ToolResultPart("unnamed-call-3", "no", is_error=True),)),
        USER,
    )
    raw = lower(asked, DIALECT, Facts()).wire.body
    assert arguments.encode() in raw
    contents = json.loads(raw)["contents"]
    assert [c["role"] for c in contents] == ["user", "model", "user", "user"]
    assert contents[1]["parts"] == [
        {"text": "hm", "thought": True},
        {"text": "I look.", "thoughtSignature": "c2ln"},
        {"functionCall": {"id": "id1", "name": "f", "args": json.loads(arguments)}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "g", "args": {}}},
    ]
    assert contents[2]["parts"] == [
        {"functionResponse": {"id": "id1", "name": "f", "response": {"output": "sunny"}}},
        {"functionResponse": {"name": "g", "response": {"error": "no"}}},
    ]


def test_images_and_whole_parts() -> None:
    blob = {"executableCode": {"language": "PYTHON", "code": "1"}}
    body = sent(
        chat(
            Message(
                "user",
                (
                    ImagePart(data="aGk=", media_type="image/png", detail="high"),
                    ImagePart(url="https://a/b.png", media_type="image/png"),
                ),
            ),
            Message("assistant", (OpaquePart(Opaque("google_genai", "executableCode", blob)),)),
            Message("tool", (ToolResultPart("x", "1", name="given"),)),
        )
    )
    contents = body["contents"]
    assert isinstance(contents, list)
    assert contents[0]["parts"] == [
        {
            "inlineData": {"mimeType": "image/png", "data": "aGk="},
            "mediaResolution": {"level": "MEDIA_RESOLUTION_HIGH"},
        },
        {"fileData": {"fileUri": "https://a/b.png", "mimeType": "image/png"}},
    ]
    assert contents[1]["parts"] == [blob]
    assert contents[2]["parts"][0]["functionResponse"]["name"] == "given"


def test_developer_and_system_texts_are_one_instruction() -> None:
    body = sent(chat(text_message("system", "a"), text_message("developer", "b"), USER))
    assert body["systemInstruction"] == {"parts": [{"text": "a"}, {"text": "b"}]}


@pytest.mark.parametrize(
    ("messages", "leaf", "word"),
    [
        ((USER, text_message("system", "late"), USER), "input.messages.system", "before all turns"),
        ((Message("developer", (ImagePart(url="u"),)), USER), "input.messages.developer", "text alone"),
        ((Message("system", (TextPart("s"),), name="n"), USER), "input.messages.name", "names"),
        ((text_message("system", "s"),), "input.messages", "a turn"),
        ((Message("user", (TextPart("a"),), name="bob"),), "input.messages.name", "names"),
        ((USER, Message("assistant", None), USER), "input.messages.null_content", "empty"),
        ((Message("user", ()),), "input.messages", "empty"),
        ((Message("user", (ImagePart(url="u"),)),), "input.messages.image", "media_type"),
        (
            (Message("user", (ImagePart(url="u", media_type="m", detail="auto"),)),),
            "input.messages.image_detail",
            "medium",
        ),
        ((USER, Message("assistant", (ToolCallPart("t", "f", "[1]"),)), USER), "input.messages.tool_call", "object"),
        ((USER, Message("tool", (ToolResultPart("t", "x"),))), "input.messages.tool_result", "no name"),
        (
            (USER, Message("assistant", (TextPart("x", Opaque("anthropic_messages", "signature", "s")),)), USER),
            "input.messages.opaque",
            "anthropic_messages",
        ),
    ],
)
def test_refused_messages(messages: tuple[Message, ...], leaf: str, word: str) -> None:
    assert word in refusal(chat(*messages))[leaf]
