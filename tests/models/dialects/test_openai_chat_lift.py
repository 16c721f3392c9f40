"""Recorded and invented chat replies: lifted whole, or refused for a reason."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from logproof.errors import (
    BadReply,
    ContextOverflow,
    LogproofError,
    MissingChannel,
    OutputContractError,
    StatusError,
)
from logproof.ir.facts import Facts
from logproof.ir.message import Opaque, OpaquePart, ReasoningPart, TextPart
from logproof.ir.request import Function, Output, Request, Sampling, Scoring, Tools
from logproof.ir.response import Finish, Response
from logproof.models import channels
from models.chat_wires import request_of
from models.dialects.chat_cases import DIALECT, ask
from models.wires import Exchange, load, names

FOLDER = "openai_chat"
NARROWED = (
    "compat_n2",
    "compat_sampled_outside_topk",
    "compat_stream_usage",
    "parser_tools_required_lp",
    "sglang_stream_usage",
    "vllm_lp_hot",
)
"""Recorded with top_logprobs 1 and only the sampled token in it: certain as a width of 0, not of 1."""

REFUSED: dict[str, tuple[type[LogproofError], str]] = {
    **dict.fromkeys(NARROWED, (BadReply, "0 certain entries for a top 1")),
    "compat_sampled_outside_top3": (BadReply, "2 certain entries for a top 3"),
    "vllm_stream_cjk": (BadReply, "0 certain entries for a top 1"),
    "vllm_pl1": (MissingChannel, "prompt_token_ids are absent"),
    "vllm_stream_pl0": (MissingChannel, "prompt logprobs were asked and are absent"),
    "vllm_rf_json_schema_trunc": (OutputContractError, "truncated at max_tokens"),
}


def lift(exchange: Exchange, request: Request | None = None) -> Response:
    request = request or request_of(exchange.request)
    response = DIALECT.lift(request, DIALECT.reply_body(exchange.reply))
    channels.check(request, response, Facts())
    return response


def recorded(name: str, **scoring: Any) -> Response:
    exchange = load(FOLDER, name)
    return lift(exchange, request_of(exchange.request, **scoring))


@pytest.mark.parametrize("name", names(FOLDER))
def test_every_recording_is_lifted_or_refused(name: str) -> None:
    exchange = load(FOLDER, name)
    if name in REFUSED:
        kind, message = REFUSED[name]
        with pytest.raises(kind, match=message):
            lift(exchange)
        return
    response = lift(exchange)
    assert response.model == "smollm2" or name.startswith("llamacpp")
    assert len(response.choices) == exchange.request.get("n", 1)
    if not exchange.stream:
        for choice, wire in zip(response.choices, exchange.json()["choices"], strict=True):
            assert choice.text == (wire["message"]["content"] or "")
            assert choice.finish.raw == wire["finish_reason"]


@pytest.mark.parametrize("name", NARROWED)
def test_narrower_recordings_are_certain_as_width_0(name: str) -> None:
    for choice in recorded(name, sampled=0).choices:
        assert choice.tokens is not None
        assert choice.tokens.top is None
        assert np.isfinite(choice.tokens.logprobs).all()


def test_ids_texts_and_top_of_vllm() -> None:
    response = recorded("compat_logprobs_token_ids", sampled=1)
    (choice,) = response.choices
    assert choice.tokens is not None
    assert choice.tokens.top is not None
    assert choice.tokens.ids is not None
    assert choice.token_ids is not None
    assert response.prompt is not None
    assert response.prompt_ids is not None
    assert choice.tokens.ids.tolist() == choice.token_ids.tolist() == [19556, 665]
    assert choice.tokens.texts == ("Hello", " there")
    assert choice.tokens.top.by_id(0) == {19556: -2.0959224700927734}
    assert choice.tokens.meaning == "raw"
    assert response.prompt.meaning == "raw"
    assert len(response.prompt) == len(response.prompt_ids) == response.usage.prompt == 33
    assert np.isnan(response.prompt.logprobs[0])
    assert response.prompt.logprobs[1] == -7.86109733581543
    assert response.fingerprint == "vllm-0.32.0-27ee0769"


def test_texts_without_placeholders_take_the_ids_beside_them() -> None:
    (choice,) = recorded("vllm_stop").choices
    assert choice.tokens is not None
    assert choice.tokens.ids is not None
    assert choice.tokens.ids.tolist() == [504, 2988, 314, 216, 36, 30]
    assert choice.tokens.texts == ("The", " answer", " is", " ", "4", ".")
    assert choice.text == "The answer is 4"
    assert choice.finish == Finish("stop", "stop", ".")


def test_a_grammar_constrains_the_meaning() -> None:
    (choice,) = recorded("vllm_so_choice_lp", sampled=2).choices
    assert choice.tokens is not None
    assert choice.tokens.top is not None
    assert choice.tokens.meaning == "constrained"
    assert choice.parsed == "five"
    assert choice.tokens.top.logprobs[-1] == -np.inf


def test_sglang_reply() -> None:
    response = recorded("sglang_logprobs", sampled=1)
    assert response.usage.reasoning == 0
    assert response.metadata["weight_version"] == "default"
    assert response.choices[0].tokens is not None
    assert response.choices[0].tokens.meaning == "unknown"


def test_tool_calls_of_three_servers() -> None:
    for name in ("parser_tools_required", "parser_tools_named", "llamacpp_tools"):
        (choice,) = recorded(name).choices
        (call,) = choice.tool_calls
        assert call.name == "get_weather"
        assert choice.turn == (call,)
    assert recorded("parser_tools_required").choices[0].finish == Finish("tool_calls", "tool_calls")
    assert recorded("parser_tools_named").choices[0].finish == Finish("length", "length")
    assert recorded("parser_tools_required").choices[0].tool_calls[0].arguments == '"gaben"'
    assert recorded("parser_tools_required_trunc").choices[0].text == "<tool_c"


def made(message: dict[str, Any] | None = None, usage: dict[str, Any] | None = None, **choice: Any) -> bytes:
    """An invented reply of one choice."""
    shown = {"role": "assistant", "content": "Hi", **(message or {})}
    first = {"index": 0, "message": shown, "finish_reason": "stop", **choice}
    return json.dumps({"id": "x", "model": "m", "choices": [first], "usage": usage}).encode()


def logprobs(*entries: tuple[str, float]) -> dict[str, Any]:
    content = [
        {"token": t, "logprob": v, "bytes": list(t.encode()), "top_logprobs": [{"token": t, "logprob": v}]}
        for t, v in entries
    ]
    return {"content": content}


SCORED = ask(scoring=Scoring(sampled=0))


def test_logprobs_absent_is_the_same_as_null_unless_asked() -> None:
    assert DIALECT.lift(ask(), made()).choices[0].tokens is None
    assert DIALECT.lift(ask(), made(logprobs=None)).choices[0].tokens is None
    for body in (made(), made(logprobs=None)):
        with pytest.raises(MissingChannel, match="asked and are absent"):
            DIALECT.lift(SCORED, body)


def test_the_completions_shape_is_named() -> None:
    with pytest.raises(BadReply, match=r"completions shape \(tokens\[\]\)"):
        DIALECT.lift(SCORED, made(logprobs={"tokens": ["a"], "token_logprobs": [-1.0]}))


@pytest.mark.parametrize(
    ("entries", "usage", "finish", "message"),
    [
        ([("Hi", -0.1)], {"completion_tokens": 3}, "stop", "1 scored tokens, usage says 3"),
        ([("Hi", -0.1)], {"completion_tokens": 2}, "length", "1 scored tokens, usage says 2"),
        ([("Hi", -0.1)], None, "stop", "how many tokens were sampled"),
        ([("H", -0.1)], {"completion_tokens": 2}, "stop", "do not join"),
        ([("Hi", None)], {"completion_tokens": 1}, "stop", "Expected `float`"),
        ([("Hi", 0.5)], {"completion_tokens": 1}, "stop", "no logprob"),
    ],
)
def test_a_damaged_channel_is_refused(
    entries: list[tuple[str, Any]], usage: dict[str, int] | None, finish: str, message: str
) -> None:
    with pytest.raises(BadReply, match=message):
        DIALECT.lift(SCORED, made(logprobs=logprobs(*entries), usage=usage, finish_reason=finish))


def test_openai_may_leave_out_the_end_token() -> None:
    whole = made(logprobs=logprobs(("Hi", -0.1)), usage={"completion_tokens": 2})
    assert len(DIALECT.lift(SCORED, whole).choices[0].tokens or ()) == 1


def test_nan_is_no_json() -> None:
    with pytest.raises(BadReply, match="no JSON"):
        DIALECT.lift(SCORED, made(logprobs=logprobs(("Hi", float("nan")))))


def test_placeholders_count_as_ids_on_either_flag() -> None:
    body = made(logprobs=logprobs(("token_id:282", -0.1)), usage={"completion_tokens": 1}, token_ids=[282])
    (choice,) = DIALECT.lift(SCORED, body).choices
    assert choice.tokens is not None
    assert choice.tokens.ids is not None
    assert choice.tokens.ids.tolist() == [282]


@pytest.mark.parametrize(
    ("ids", "message"), [([283], "name different tokens"), ([282, 5], "1 entries for 2 token ids")]
)
def test_two_sources_of_ids_must_agree(ids: list[int], message: str) -> None:
    body = made(logprobs=logprobs(("token_id:282", -0.1)), usage={"completion_tokens": 1}, token_ids=ids)
    with pytest.raises(BadReply, match=message):
        DIALECT.lift(SCORED, body)


def test_label_scores_and_their_count() -> None:
    content = [
        {
            "token": "token_id:5",
            "logprob": -0.1,
            "top_logprobs": [{"token": "token_id:5", "logprob": -0.1}, {"token": "token_id:8", "logprob": -7.0}],
        }
    ]
    request = ask(scoring=Scoring(label_ids=(8,)))
    body = made(logprobs={"content": content}, usage={"completion_tokens": 1}, token_ids=[5])
    (choice,) = DIALECT.lift(request, body).choices
    assert choice.tokens is None
    assert choice.labels is not None
    assert choice.labels.logprobs.tolist() == [[-7.0]]
    short = made(logprobs={"content": content}, usage={"completion_tokens": 2}, token_ids=[5, 6])
    with pytest.raises(BadReply, match="1 entries for 2 token ids"):
        DIALECT.lift(request, short)


def test_ids_count_where_usage_is_silent() -> None:
    body = made(logprobs=logprobs(("Hi", -0.1)), token_ids=[5])
    assert len(DIALECT.lift(SCORED, body).choices[0].tokens or ()) == 1


def test_choices_come_in_index_order() -> None:
    def reply(*indexes: int | None) -> bytes:
        message = {"content": "x"}
        return json.dumps(
            {"choices": [{"index": i, "message": message, "finish_reason": "stop"} for i in indexes]}
        ).encode()

    found = DIALECT.lift(ask(sampling=Sampling(n=3)), reply(2, 0, 1))
    assert [c.index for c in found.choices] == [0, 1, 2]
    with pytest.raises(BadReply, match="without index"):
        DIALECT.lift(ask(sampling=Sampling(n=2)), reply(0, None))
    assert DIALECT.lift(ask(), reply(None)).choices[0].index == 0
    for indexes in ((0,), (0, 2), (0, 0)):
        request = ask(sampling=Sampling(n=2))
        with pytest.raises(BadReply, match="for 2 asked"):
            channels.check(request, DIALECT.lift(request, reply(*indexes)), Facts())


@pytest.mark.parametrize(
    ("raw", "called", "reason"),
    [
        ("stop", False, "stop"),
        ("stop", True, "tool_calls"),
        ("tool_calls", True, "tool_calls"),
        ("tool_calls", False, "other"),
        ("length", True, "length"),
        ("content_filter", False, "content_filter"),
        (None, False, "other"),
        ("eos", False, "other"),
    ],
)
def test_finish(raw: str | None, called: bool, reason: str) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}] if called else None
    finish = DIALECT.lift(ask(), made({"tool_calls": calls}, finish_reason=raw)).choices[0].finish
    assert (finish.reason, finish.raw) == (reason, raw)


def test_an_aborted_choice_is_an_error() -> None:
    with pytest.raises(BadReply, match="ended this choice with 'abort'"):
        DIALECT.lift(ask(), made(finish_reason="abort"))


def test_the_matched_stop_of_either_engine() -> None:
    assert DIALECT.lift(ask(), made(stop_reason=7)).choices[0].finish.matched == 7
    assert DIALECT.lift(ask(), made(matched_stop="x")).choices[0].finish.matched == "x"


def test_reasoning_that_used_all_tokens_is_a_valid_empty_answer() -> None:
    body = made({"content": None, "reasoning": "hm"}, {"completion_tokens": 8}, finish_reason="length")
    response = DIALECT.lift(ask(), body)
    assert (response.choices[0].text, response.choices[0].reasoning) == ("", "hm")
    assert response.choices[0].turn == (ReasoningPart("hm"),)
    assert response.notes == ()
    assert DIALECT.lift(ask(), made({"reasoning": "a", "reasoning_content": "a"})).choices[0].reasoning == "a"
    with pytest.raises(BadReply, match="differ"):
        DIALECT.lift(ask(), made({"reasoning": "a", "reasoning_content": "b"}))


def test_a_refusal_is_no_text() -> None:
    body = made({"content": None, "refusal": "I cannot."})
    (choice,) = DIALECT.lift(ask(), body).choices
    assert (choice.text, choice.refusal) == ("", "I cannot.")
    assert choice.turn == (OpaquePart(Opaque("openai_chat", "refusal", "I cannot.")),)
    with pytest.raises(OutputContractError, match="the model refused"):
        DIALECT.lift(ask(output=Output(json_object=True)), body)


def test_scored_refusals_stand_in_their_own_list() -> None:
    refused = {"content": None, "refusal": logprobs(("No", -0.2))["content"]}
    body = made({"content": None, "refusal": "No"}, {"completion_tokens": 1}, logprobs=refused)
    assert len(DIALECT.lift(SCORED, body).choices[0].tokens or ()) == 1


def test_citations() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 2}}
    (found, other) = DIALECT.lift(ask(), made({"annotations": [cited, {"type": "x"}]})).choices[0].citations
    assert (found.kind, found.url, found.title, found.start, found.end, found.item) == (
        "url_citation",
        "u",
        "t",
        0,
        2,
        cited,
    )
    assert (other.kind, other.url, other.start) == ("x", None, None)


def test_structured_output_is_validated_here() -> None:
    request = ask(output=Output(json_schema={"type": "object", "required": ["a"]}))
    assert DIALECT.lift(request, made({"content": '{"a":1}'})).choices[0].parsed == {"a": 1}
    with pytest.raises(OutputContractError, match="off the schema"):
        DIALECT.lift(request, made({"content": "{}"}))
    with pytest.raises(OutputContractError, match="long runs of white space"):
        DIALECT.lift(request, made({"content": "{" + "\n" * 4000}, finish_reason="length"))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert DIALECT.lift(request, made({"content": None, "tool_calls": [call]})).choices[0].parsed is None


@pytest.mark.parametrize(
    "call",
    [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}},
        {"id": "c", "type": "function", "function": {"arguments": "{}"}},
    ],
)
def test_a_call_without_id_or_function_is_refused(call: dict[str, Any]) -> None:
    with pytest.raises(BadReply, match="without id or function"):
        DIALECT.lift(ask(), made({"tool_calls": [call]}))


def test_the_withdrawn_function_call_is_refused() -> None:
    with pytest.raises(BadReply, match="withdrawn form"):
        DIALECT.lift(ask(), made({"function_call": {"name": "f", "arguments": "{}"}}))


def test_a_forced_call_that_did_not_come_is_refused() -> None:
    f = (Function("f"), Function("g"))
    call = {"id": "c", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    for choice, message in (("required", "required and did not come"), ("function:f", "a call of f was forced")):
        request = ask(tools=Tools(functions=f, choice=choice))
        with pytest.raises(MissingChannel, match=message):
            DIALECT.lift(request, made())
        assert DIALECT.lift(request, made(finish_reason="length")).text == "Hi"
        assert DIALECT.lift(request, made({"refusal": "No"})).choices[0].refusal == "No"
    with pytest.raises(MissingChannel, match="a call of f"):
        DIALECT.lift(ask(tools=Tools(functions=f, choice="function:f")), made({"tool_calls": [call]}))
    assert DIALECT.lift(ask(tools=Tools(functions=f, choice="required")), made({"tool_calls": [call]})).choices


def test_usage_with_every_breakdown() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2, "accepted_prediction_tokens": 1},
    }
    found = DIALECT.lift(ask(), made(usage=usage)).usage
    assert (found.prompt, found.completion, found.total) == (9, 5, 14)
    assert (found.cached, found.cache_write, found.reasoning) == (4, 1, 2)
    assert found.details == {
        "prompt": usage["prompt_tokens_details"],
        "completion": usage["completion_tokens_details"],
    }
    assert DIALECT.lift(ask(), made()).usage.prompt is None
    with pytest.raises(BadReply, match="Expected `int` >= 0"):
        DIALECT.lift(ask(), made(usage={"prompt_tokens": -1}))


def test_an_error_object_of_status_200() -> None:
    overflow = {"error": {"message": "too long", "type": "x", "code": "context_length_exceeded"}}
    with pytest.raises(ContextOverflow, match="too long"):
        DIALECT.lift(ask(), json.dumps(overflow).encode())
    with pytest.raises(StatusError, match="broken"):
        DIALECT.lift(ask(), json.dumps({"error": {"message": "broken", "code": 500}}).encode())


def test_ids_of_a_sglang_prompt() -> None:
    body = made(matched_stop=None, prompt_token_ids=[1, 2], response_token_ids=[3])
    response = DIALECT.lift(ask(), body)
    assert response.prompt_ids is not None
    assert response.prompt_ids.tolist() == [1, 2]
    assert response.choices[0].token_ids is not None
    assert response.choices[0].token_ids.tolist() == [3]


def test_an_empty_text_is_kept_apart_from_null() -> None:
    assert DIALECT.lift(ask(), made({"content": ""})).choices[0].turn == (TextPart(""),)
    assert DIALECT.lift(ask(), made({"content": None})).choices[0].turn == ()


def test_service_tier_is_metadata() -> None:
    body = msgspec.json.decode(made(), type=dict)
    assert DIALECT.lift(ask(), json.dumps({**body, "service_tier": "flex"}).encode()).metadata == {
        "service_tier": "flex"
    }
