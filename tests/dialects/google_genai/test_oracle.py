"""google_genai against the official SDK: its request types, its replies, and the body that it sends itself."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import types

from dialects.google_genai.test_reply import ASKED, REPLIES, SCORED, body, candidate, reply, with_logprobs
from dialects.google_genai.test_request import DIALECT, chat
from logproof.dialects.lower import lower
from logproof.errors import LogproofError
from logproof.ir import message as ir
from logproof.ir.facts import Facts
from logproof.ir.request import Function, Hosted, Output, Reasoning, Request, Sampling, Schedule, Scoring, Tools

SCHEMA: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
SIGNATURE = ir.Opaque("google_genai", "thoughtSignature", "c2ln")
TALK = (
    ir.text_message("system", "Be brief."),
    ir.Message("user", (ir.TextPart("See"), ir.ImagePart(data="aGk=", media_type="image/png", detail="low"))),
    ir.Message(
        "assistant",
        (ir.ReasoningPart("hm"), ir.TextPart("Wait", SIGNATURE), ir.ToolCallPart("c1", "f", '{"a": 1}', SIGNATURE)),
    ),
    ir.Message("tool", (ir.ToolResultPart("c1", "1"),)),
    ir.text_message("user", "Go on"),
)
BODIES: dict[str, Request] = {
    "plain": chat(),
    "talk": chat(*TALK),
    "sampling": chat(
        sampling=Sampling(
            max_tokens=9,
            temperature=0.5,
            top_p=0.9,
            top_k=3,
            stop=("x",),
            seed=7,
            n=2,
            presence_penalty=0.5,
            frequency_penalty=0.5,
        )
    ),
    "scored": chat(scoring=Scoring(sampled=5)),
    "schema": chat(output=Output(json_schema=SCHEMA)),
    "object": chat(output=Output(json_object=True)),
    "effort": chat(reasoning=Reasoning(effort="high", summary="auto")),
    "budget": chat(reasoning=Reasoning(budget_tokens=0)),
    "tools": chat(tools=Tools(functions=(Function("f", "d", SCHEMA),), choice="function:f")),
    "hosted": chat(tools=Tools(hosted=(Hosted("googleSearch"), Hosted("urlContext"), Hosted("codeExecution")))),
}


def sent(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lower(BODIES[name], DIALECT, Facts()).wire.body)
    return found


@pytest.mark.parametrize("name", BODIES)
def test_bodies_are_what_the_sdk_types_say(name: str) -> None:
    """The SDK's types forbid keys that they do not know."""
    found = sent(name)
    assert set(found) <= {"contents", "systemInstruction", "generationConfig", "tools", "toolConfig"}
    for content in found["contents"]:
        types.Content.model_validate(content)
    types.Content.model_validate(found.get("systemInstruction", {}))
    types.GenerationConfig.model_validate(found.get("generationConfig", {}))
    types.ToolConfig.model_validate(found.get("toolConfig", {}))
    for tool in found.get("tools", ()):
        types.Tool.model_validate(tool)


def camel(value: Any) -> Any:
    """The value with all keys in camel case."""
    if isinstance(value, list):
        return [camel(v) for v in value]
    if not isinstance(value, dict):
        return value
    return {re.sub(r"_([a-z])", lambda m: m[1].upper(), k): camel(v) for k, v in value.items()}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_sends_the_same_body(name: str, stream: bool) -> None:
    """Of the same values the SDK makes our body and our path, up to three habits of its own.

    It writes some keys in snake case (the service takes both), always sends a generationConfig, and has v1 as its
    default version, where ours is the one that the service documents for this wire.
    """
    caught: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        caught.append(request)
        whole = reply(candidate({"text": "a"}))
        return httpx.Response(200, content=b"data: " + whole + b"\n\n" if stream else whole)

    found = sent(name)
    config = {
        **found.get("generationConfig", {}),
        **{k: found[k] for k in ("systemInstruction", "tools", "toolConfig") if k in found},
    }
    options = types.HttpOptions(
        base_url="http://x", api_version="v1beta", httpx_client=httpx.Client(transport=httpx.MockTransport(answer))
    )
    client = genai.Client(api_key="k", http_options=options)
    call = client.models.generate_content_stream if stream else client.models.generate_content
    list(call(model=ASKED.model, contents=found["contents"], config=types.GenerateContentConfig.model_validate(config)))
    asked = Request(ASKED.model, ASKED.input, schedule=Schedule(stream=stream))
    assert caught[0].url.raw_path.decode() == DIALECT.path(asked)
    assert camel(json.loads(caught[0].content)) == {"generationConfig": {}, **found}


WHOLE = sorted(p.stem for p in REPLIES.glob("*.json") if not p.stem.startswith("err"))


@pytest.mark.parametrize("name", WHOLE)
def test_recordings_hold_what_the_sdk_reads(name: str) -> None:
    if name == "tools_any_stream":  # the gateway's arguments are no object, which the SDK cannot hold
        with pytest.raises(ValueError, match="dict"):
            types.GenerateContentResponse.model_validate_json(body(name))
        return
    sdk, ours = types.GenerateContentResponse.model_validate_json(body(name)), DIALECT.lift(ASKED, body(name))
    assert ours.choices[0].text == (sdk.text or "")
    assert sdk.candidates is not None
    assert sdk.candidates[0].finish_reason is not None
    assert ours.choices[0].finish.raw == sdk.candidates[0].finish_reason.value
    counts = sdk.usage_metadata
    assert counts is not None
    assert (ours.usage.prompt, ours.usage.completion) == (counts.prompt_token_count, counts.candidates_token_count)


def test_a_reply_of_every_kind_reads_alike() -> None:
    raw = reply(
        candidate(
            {"text": "hm", "thought": True},
            {"text": "Two", "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "c1", "name": "f", "args": {"x": 1}}},
        )
    )
    sdk, ours = types.GenerateContentResponse.model_validate_json(raw), DIALECT.lift(ASKED, raw).choices[0]
    assert sdk.function_calls is not None
    assert json.loads(ours.tool_calls[0].arguments) == sdk.function_calls[0].args
    assert ours.text == "Two"
    assert sdk.parts is not None
    assert [bool(p.thought) for p in sdk.parts] == [True, False, False]
    scored = with_logprobs()
    found = types.GenerateContentResponse.model_validate_json(scored).candidates
    assert found is not None
    assert found[0].logprobs_result is not None
    tokens = DIALECT.lift(SCORED, scored).choices[0].tokens
    assert tokens is not None
    assert tokens.ids is not None
    chosen = found[0].logprobs_result.chosen_candidates or []
    assert tokens.logprobs.tolist() == [c.log_probability for c in chosen]
    assert tokens.ids.tolist() == [c.token_id for c in chosen]


def test_an_error_is_an_error_to_both() -> None:
    with pytest.raises(LogproofError):
        DIALECT.lift(ASKED, body("err_model"))
