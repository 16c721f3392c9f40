from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from logproof.dialects import reply_checks
from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.errors import BadReply, ContentFiltered, MissingChannel, ModelNotFound, OutputContractError, StatusError
from logproof.http.exchange import SseEvent
from logproof.http.sse import SseParser
from logproof.ir.facts import Facts
from logproof.ir.message import OpaquePart, ReasoningPart, TextPart, text_message
from logproof.ir.request import Input, Output, Request, Sampling, Scoring
from logproof.ir.response import Response, Usage
from logproof.ir.turn import to_message

REPLIES = Path(__file__).parents[2] / "replies" / "google_genai"
DIALECT = get_dialect("google_genai")
USER = text_message("user", "Hi")
ASKED = Request("gemini-2.5-flash", Input(messages=(USER,)))
SCORED = msgspec.structs.replace(ASKED, scoring=Scoring(sampled=2))


def recorded(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((REPLIES / f"{name}.json").read_text())
    return found


def events(text: str) -> list[SseEvent]:
    parser = SseParser()
    return parser.feed(text.encode()) + parser.close()


def body(name: str) -> bytes:
    held = recorded(name)
    if "response_text" in held:
        return DIALECT.assemble(events(str(held["response_text"])))
    return msgspec.json.encode(held["response"])


def lift(raw: bytes, asked: Request = ASKED) -> Response:
    response = DIALECT.lift(asked, raw)
    reply_checks.check(asked, response, Facts())
    return response


def candidate(*parts: object, **fields: object) -> dict[str, object]:
    return {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", **fields}


def reply(*candidates: object, **fields: object) -> bytes:
    made: dict[str, object] = {"candidates": list(candidates), "modelVersion": "gemini-2.5-flash", "responseId": "r"}
    return json.dumps({**made, **fields}).encode()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("plain", "The answer is 4.", "stop"),
        ("length", "The answer", "length"),
        ("stop", "The ", "stop"),
        ("system", "2 + 2 = ", "length"),
        ("multi", "2 + 2 = ", "length"),
        ("tools_history", "You're an AI assistant designed", "length"),
        ("stream_sse", "The answer is 4.", "length"),
    ],
)
def test_recordings(name: str, text: str, reason: str) -> None:
    response = lift(body(name))
    assert (response.choices[0].text, response.choices[0].finish.reason) == (text, reason)
    assert response.usage.total == (response.usage.prompt or 0) + (response.usage.completion or 0)


def test_a_gateway_that_drops_fields_is_noticed() -> None:
    with pytest.raises(MissingChannel, match="absent"):
        lift(body("logprobs"), msgspec.structs.replace(ASKED, scoring=Scoring(sampled=3)))
    with pytest.raises(BadReply, match="2 asked"):
        lift(body("candidates2"), msgspec.structs.replace(ASKED, sampling=Sampling(n=2)))
    notes = lift(body("seed"), msgspec.structs.replace(ASKED, sampling=Sampling(seed=7, top_k=1))).notes
    assert notes == ("unconfirmed, as a gateway may drop it: sampling.seed, sampling.top_k",)
    with pytest.raises(OutputContractError):
        lift(body("plain"), msgspec.structs.replace(ASKED, output=Output(json_object=True)))


def test_structured_output() -> None:
    schema = {"type": "object", "required": ["name", "age"]}
    asked = msgspec.structs.replace(ASKED, output=Output(json_schema=schema))
    assert lift(body("json_jsonschema"), asked).choices[0].parsed == {"name": "John", "age": 25}


def test_errors_are_typed() -> None:
    with pytest.raises(ModelNotFound):
        lift(body("err_model"))
    with pytest.raises(StatusError, match="bad"):
        lift(b'[{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}]')


def test_a_blocked_prompt_is_an_error() -> None:
    feedback = {"blockReason": "SAFETY", "blockReasonMessage": "no"}
    with pytest.raises(ContentFiltered, match="no") as caught:
        lift(json.dumps({"promptFeedback": feedback}).encode())
    assert caught.value.code == "SAFETY"
    with pytest.raises(BadReply, match="no candidates"):
        lift(b"{}")
    with pytest.raises(ContentFiltered):
        lift(DIALECT.assemble([SseEvent(None, json.dumps({"promptFeedback": feedback}))]))


SIGNED = {"functionCall": {"id": "c1", "name": "f", "args": {"x": 1.0}}, "thoughtSignature": "c2ln"}
CODE = {"executableCode": {"language": "PYTHON", "code": "1+1"}, "thoughtSignature": "c2"}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}


def test_every_kind_of_part() -> None:
    raw = reply(
        candidate(
            {"text": "hm", "thought": True},
            {"text": "Two", "thoughtSignature": "c3"},
            CODE,
            RESULT,
            SIGNED,
            {"functionCall": {"name": "g"}},
            {"text": ""},
            continuationToken="t",
        )
    )
    choice = lift(raw).choices[0]
    assert (choice.text, choice.reasoning, choice.finish.reason, choice.finish.raw) == (
        "Two",
        "hm",
        "tool_calls",
        "STOP",
    )
    assert [(c.id, c.name, c.arguments) for c in choice.tool_calls] == [
        ("c1", "f", '{"x": 1.0}'),
        ("unnamed-call-5", "g", "{}"),
    ]
    assert [u.kind for u in choice.hosted_uses] == ["executableCode", "codeExecutionResult"]
    assert [o.kind for o in choice.opaque] == [
        "thoughtSignature",
        "executableCode",
        "codeExecutionResult",
        "thoughtSignature",
        "continuationToken",
    ]
    assert [type(p) for p in choice.turn or ()][:3] == [ReasoningPart, TextPart, OpaquePart]


def test_a_turn_goes_back_as_it_came() -> None:
    parts = [{"text": "hm", "thought": True}, {"text": "Two", "thoughtSignature": "c3"}, CODE, RESULT, SIGNED]
    raw = reply(
        candidate(*parts, {"functionCall": {"name": "g", "args": {"a": 1e2}}}, {"text": "", "thoughtSignature": "e"})
    )
    message = to_message(lift(raw).choices[0])
    back = lower(
        msgspec.structs.replace(ASKED, input=Input(messages=(USER, message, USER))), DIALECT, Facts()
    ).wire.body
    assert json.loads(back)["contents"][1]["parts"] == json.loads(raw)["candidates"][0]["content"]["parts"]
    assert b'"args":{"a": 100.0}' in back


@pytest.mark.parametrize(
    ("raw_reason", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("LANGUAGE", "other"),
        ("TOMORROW", "other"),
    ],
)
def test_finish_reasons(raw_reason: str, reason: str) -> None:
    finish = lift(reply(candidate({"text": "a"}, finishReason=raw_reason))).choices[0].finish
    assert (finish.reason, finish.raw) == (reason, raw_reason)


def test_usage_counts_thoughts_as_completion() -> None:
    usage = {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
        "toolUsePromptTokenCount": 3,
        "totalTokenCount": 25,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
    }
    found = lift(reply(candidate({"text": "a"}), usageMetadata=usage)).usage
    assert found == Usage(
        prompt=10,
        completion=12,
        total=25,
        cached=4,
        reasoning=7,
        details={
            "tool_use_prompt_token_count": 3,
            "prompt_tokens_details": [{"modality": "TEXT", "tokenCount": 10}],
        },
    )
    assert lift(reply(candidate({"text": "a"}))).usage == Usage()
    assert lift(reply(candidate({"text": "a"}), usageMetadata={"thoughtsTokenCount": 3})).usage.completion == 3


def test_provenance_and_notes() -> None:
    contexts = {"urlMetadata": []}
    raw = reply(
        candidate(finishReason="SAFETY", finishMessage="why", urlContextMetadata=contexts),
        usageMetadata={"candidatesTokenCount": 6},
        modelStatus={"retirementTime": "2027"},
    )
    response = lift(raw)
    assert (response.model, response.response_id) == ("gemini-2.5-flash", "r")
    assert response.metadata == {"modelStatus": {"retirementTime": "2027"}, "urlContextMetadata": [contexts]}
    assert response.notes == ("the server says of the end: why", "6 tokens were sampled and no text came")
    seeded = msgspec.structs.replace(ASKED, sampling=Sampling(seed=1))
    assert lift(reply(candidate({"text": "a"})), seeded).notes == ()


def test_candidates_come_in_index_order() -> None:
    asked = msgspec.structs.replace(ASKED, sampling=Sampling(n=2))
    raw = reply(candidate({"text": "b"}, index=1), candidate({"text": "a"}))
    assert [c.text for c in lift(raw, asked).choices] == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (reply(candidate({"text": "a"}, finishReason=None)), "did not finish"),
        (reply(candidate({"text": 5})), "/candidates/0/content/parts/0/text"),
        (reply(candidate({"functionCall": {}})), "functionCall"),
        (reply(candidate({"text": "a", "thoughtSignature": 1})), "Expected"),
        (b'{"candidates": 5}', "candidates"),
        (b"<html>", "no JSON"),
    ],
)
def test_broken_replies(raw: bytes, word: str) -> None:
    with pytest.raises(BadReply, match=word):
        lift(raw)


# Citations and grounding.


def test_byte_spans_become_character_spans() -> None:
    sources = [
        {"startIndex": 3, "endIndex": 7, "uri": "https://a", "title": "A"},
        {"endIndex": 2, "uri": "https://b"},
        {"uri": "https://c"},
    ]
    choice = lift(reply(candidate({"text": "日本 ok"}, citationMetadata={"citationSources": sources}))).choices[0]
    assert [(c.url, c.start, c.end) for c in choice.citations] == [
        ("https://a", 1, 3),
        ("https://b", None, None),
        ("https://c", None, None),
    ]
    other = lift(reply(candidate({"text": "ab"}, citationMetadata={"citations": [{"endIndex": 2}]}))).choices[0]
    assert (other.citations[0].start, other.citations[0].end) == (0, 2)


def test_grounding() -> None:
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}, {"maps": {"uri": "https://m"}}],
        "groundingSupports": [
            {"segment": {"partIndex": 2, "startIndex": 0, "endIndex": 3}, "groundingChunkIndices": [0, 1, 9]},
            {"groundingChunkIndices": [0]},
            {"segment": {"partIndex": 7, "endIndex": 1}, "groundingChunkIndices": [0]},
        ],
        "webSearchQueries": ["q"],
    }
    parts = ({"text": "hm", "thought": True}, {"text": "é. "}, {"text": "Sky"})
    choice = lift(reply(candidate(*parts, groundingMetadata=grounding))).choices[0]
    assert choice.grounding == grounding
    assert [(c.url, c.title, c.start, c.end) for c in choice.citations] == [
        ("https://a", "A", 3, 6),
        ("https://m", None, 3, 6),
        (None, None, 3, 6),
        ("https://a", "A", None, None),
        ("https://a", "A", None, None),
    ]
    assert lift(reply(candidate({"text": "a"}, groundingMetadata={"groundingChunks": 5}))).choices[0].citations == ()


# Logprobs.


def token(token_id: int | None, text: str | None, value: float | None) -> dict[str, object]:
    made = {"tokenId": token_id, "token": text, "logProbability": value}
    return {k: v for k, v in made.items() if v is not None}


CHOSEN = [token(5, "The", -0.5), token(6, " sky", -2.0)]
TOP = [
    {"candidates": [token(5, "The", -0.5), token(7, "A", -1.5)]},
    {"candidates": [token(8, " sea", -0.7), token(9, " sun", -1.2)]},
]


def with_logprobs(**changed: object) -> bytes:
    result = {"chosenCandidates": CHOSEN, "topCandidates": TOP, "logProbabilitySum": -2.5, **changed}
    return reply(candidate({"text": "The sky"}, logprobsResult=result))


def test_logprobs_by_id() -> None:
    tokens = lift(with_logprobs(), SCORED).choices[0].tokens
    assert tokens is not None
    assert tokens.ids is not None
    assert tokens.top is not None
    assert (tokens.ids.tolist(), tokens.texts, tokens.meaning) == ([5, 6], ("The", " sky"), "unknown")
    assert tokens.logprobs.tolist() == [-0.5, -2.0]
    assert np.diff(tokens.top.offsets).tolist() == [2, 3]
    assert tokens.top.by_id(1) == {8: -0.7, 9: -1.2, 6: -2.0}


def test_logprobs_by_text_where_the_wire_has_no_ids() -> None:
    chosen = [token(None, "The", -0.5)]
    top = [{"candidates": [token(None, "The", -0.5), token(None, "A", -1.5)]}]
    tokens = (
        lift(with_logprobs(chosenCandidates=chosen, topCandidates=top, logProbabilitySum=None), SCORED)
        .choices[0]
        .tokens
    )
    assert tokens is not None
    assert tokens.top is not None
    assert (tokens.ids, tokens.top.by_text(0)) == (None, {"The": -0.5, "A": -1.5})


def test_only_the_tokens_themselves() -> None:
    asked = msgspec.structs.replace(ASKED, scoring=Scoring(sampled=0))
    chosen = [token(5, None, -0.5)]
    tokens = (
        lift(with_logprobs(chosenCandidates=chosen, topCandidates=[], logProbabilitySum=-0.5), asked).choices[0].tokens
    )
    assert tokens is not None
    assert (tokens.top, tokens.texts) == (None, None)
    assert lift(with_logprobs(), ASKED).choices[0].tokens is None


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"chosenCandidates": []}, "absent"),
        ({"topCandidates": TOP[:1]}, "1 entries for 2 chosen"),
        ({"logProbabilitySum": -2.4}, "sum to"),
        ({"chosenCandidates": [token(5, "The", 0.5), CHOSEN[1]]}, "no logprob"),
        ({"chosenCandidates": [token(5, "The", None), CHOSEN[1]]}, "null"),
        ({"chosenCandidates": [token(None, None, -0.5), CHOSEN[1]]}, "without id and text"),
        ({"chosenCandidates": list(reversed(CHOSEN))}, "not the last|not among|two values|twice"),
        ({"topCandidates": [TOP[0], {"candidates": [token(8, " sea", -0.7)]}]}, "1 entries for a top 2"),
        ({"topCandidates": [TOP[0], {"candidates": [token(8, "a", -0.7), token(8, "b", -1.2)]}]}, "twice"),
        ({"topCandidates": [TOP[0], {"candidates": [token(8, "a", -0.7), token(9, "b", -3.2)]}]}, "not the last"),
        ({"topCandidates": [TOP[0], {"candidates": [token(8, "a", -9999.0), token(9, "b", -1.2)]}]}, "no logprob"),
        ({"topCandidates": [TOP[0], {"candidates": [token(6, "a", -0.7), token(9, "b", -1.2)]}]}, "two values"),
    ],
)
def test_damaged_logprobs_are_refused(changed: dict[str, object], word: str) -> None:
    with pytest.raises(BadReply, match=word):
        lift(with_logprobs(**changed), SCORED)
