"""Recorded and invented replies of the Responses wire: lifted whole, or refused for a reason."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from dialects.openai_responses.responses_cases import DIALECT, ask
from dialects.openai_responses.responses_wires import request_of
from dialects.wires import Exchange, load, names
from logproof.dialects import reply_checks
from logproof.errors import (
    BadReply,
    ContextOverflow,
    LogproofError,
    MissingChannel,
    OutputContractError,
    RateLimited,
    ServerFault,
)
from logproof.ir.facts import Facts
from logproof.ir.message import OpaquePart, ReasoningPart, TextPart, ToolCallPart
from logproof.ir.request import Function, Output, Request, Scoring, Session, Tools
from logproof.ir.response import Finish, Response

FOLDER = "openai_responses"
REFUSED: dict[str, tuple[type[LogproofError], str]] = {
    "compat_sampled_outside_top3": (BadReply, "2 certain entries for a top 3"),
    "compat_stream_logprobs": (BadReply, "0 certain entries for a top 1"),
    "compat_tool_required": (MissingChannel, "required and did not come"),
    "parser_background": (BadReply, "queued, not done"),
    "vllm_json_object": (OutputContractError, "truncated at max_tokens"),
    "vllm_schema_trunc": (OutputContractError, "truncated at max_tokens"),
}


def lift(exchange: Exchange, request: Request | None = None) -> Response:
    request = request or request_of(exchange.request)
    response: Response = DIALECT.lift(request, DIALECT.reply_body(exchange.reply))
    reply_checks.check(request, response, Facts())
    return response


@pytest.mark.parametrize("name", names(FOLDER))
def test_every_recording_is_lifted_or_refused(name: str) -> None:
    exchange = load(FOLDER, name)
    if name in REFUSED:
        kind, message = REFUSED[name]
        with pytest.raises(kind, match=message):
            lift(exchange)
        return
    response = lift(exchange)
    assert response.model == "smollm2"
    assert response.usage.completion
    if not exchange.stream:
        items = [i for i in exchange.json()["output"] if i["type"] == "message"]
        assert response.text == "".join(i["content"][0]["text"] for i in items)


def test_a_cut_before_the_asked_limit_is_noted() -> None:
    """SGLang 0.5 cuts two tokens before `max_output_tokens`."""
    exchange = load(FOLDER, "sglang_basic")
    request, spent = request_of(exchange.request), exchange.json()["usage"]["output_tokens"]

    def limited(limit: int | None) -> Request:
        return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, max_tokens=limit))

    assert lift(exchange, limited(spent + 2)).notes == (f"the server cut at {spent} tokens, {spent + 2} were asked",)
    assert lift(exchange, limited(spent)).notes == lift(exchange, limited(None)).notes == ()


def test_logprobs_of_vllm() -> None:
    exchange = load(FOLDER, "vllm_lp")
    (choice,) = lift(exchange, request_of(exchange.request, sampled=2)).choices
    assert choice.tokens is not None
    assert choice.tokens.top is not None
    assert choice.tokens.texts == ("The", " answer", " is", " ")
    assert choice.tokens.top.by_text(0) == {"The": -1.8268855810165405, "2": -2.07688570022583}
    assert choice.tokens.meaning == "raw"
    assert choice.finish == Finish("length", "max_output_tokens")


def test_ids_of_vllm() -> None:
    response = lift(load(FOLDER, "vllm_messages_enabled"))
    assert response.prompt_ids is not None
    assert response.choices[0].token_ids is not None
    assert len(response.prompt_ids) == response.usage.prompt
    assert response.choices[0].token_ids.tolist() == [19556, 17, 1073, 416]


def test_a_tool_call() -> None:
    (choice,) = lift(load(FOLDER, "parser_tools_required")).choices
    (call,) = choice.tool_calls
    assert (call.name, call.arguments) == ("get_weather", '"gaben"')
    assert call.id.startswith("chatcmpl-tool-")
    assert choice.finish == Finish("tool_calls", "completed")


def message(text: str | None = "Hi", **part: Any) -> dict[str, Any]:
    shown = {"type": "output_text", "text": text, "annotations": [], **part}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [shown]}


def made(*items: dict[str, Any], **fields: Any) -> bytes:
    """An invented reply."""
    reply = {"id": "resp_1", "model": "m", "status": "completed", "output": list(items or (message(),)), **fields}
    return json.dumps(reply).encode()


CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{"}
SCORED = ask(scoring=Scoring(sampled=0))


def entry(token: str, logprob: Any = -0.5, raw: list[int] | None = None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": raw, "top_logprobs": []}


def usage(output: int, **details: int) -> dict[str, Any]:
    return {"output_tokens": output, "output_tokens_details": details}


def test_items_of_every_kind_keep_their_order() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "so"}]}
    sealed = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "e"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    second = message("b", annotations=[{"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1}])
    (choice,) = DIALECT.lift(ask(), made(reasoning, sealed, search, message("a"), second, CALL)).choices
    assert (choice.text, choice.reasoning) == ("ab", "so")
    assert choice.turn is not None
    assert [type(p) for p in choice.turn] == [
        ReasoningPart,
        OpaquePart,
        OpaquePart,
        TextPart,
        TextPart,
        ToolCallPart,
    ]
    assert [(u.kind, u.item) for u in choice.hosted_uses] == [("web_search_call", search)]
    assert [o.blob for o in choice.opaque] == [reasoning, sealed, search]
    assert (choice.citations[0].url, choice.citations[0].start, choice.citations[0].end) == ("u", 1, 2)
    assert choice.tool_calls[0].arguments == "{"


def test_reasoning_of_open_models_is_their_own_text() -> None:
    shown = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    assert DIALECT.lift(ask(), made(shown, message())).choices[0].reasoning == "hm"


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, Finish("stop", "completed")),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            Finish("length", "max_output_tokens"),
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            Finish("content_filter", "content_filter"),
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, Finish("other", "steered")),
        ({"status": "incomplete"}, Finish("other", "incomplete")),
    ],
)
def test_openai_responses_finish_reasons(fields: dict[str, Any], finish: Finish) -> None:
    assert DIALECT.lift(ask(), made(**fields)).choices[0].finish == finish


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "died"}}, ServerFault, "died"),
        ({"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}}, RateLimited, "slow"),
        (
            {"status": "failed", "error": {"code": "context_length_exceeded", "message": "long"}},
            ContextOverflow,
            "long",
        ),
        ({"status": "failed"}, ServerFault, "without a reason"),
        ({"status": "cancelled"}, BadReply, "cancelled, not done"),
        ({"status": "in_progress"}, BadReply, "in_progress, not done"),
        ({"status": None}, BadReply, "None, not done"),
    ],
)
def test_a_reply_that_is_no_result(fields: dict[str, Any], kind: type[LogproofError], text: str) -> None:
    with pytest.raises(kind, match=text):
        DIALECT.lift(ask(), made(**fields))


def test_a_refusal_is_no_text() -> None:
    refused = {"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "No."}]}
    (choice,) = DIALECT.lift(ask(), made(refused)).choices
    assert (choice.text, choice.refusal) == ("", "No.")
    with pytest.raises(OutputContractError, match="the model refused"):
        DIALECT.lift(ask(output=Output(json_object=True)), made(refused))


def test_structured_output_is_validated_here() -> None:
    request = ask(output=Output(json_schema={"type": "object", "required": ["a"]}))
    assert DIALECT.lift(request, made(message('{"a":1}'))).choices[0].parsed == {"a": 1}
    with pytest.raises(OutputContractError, match="off the schema"):
        DIALECT.lift(request, made(message("{}")))
    assert DIALECT.lift(request, made(CALL)).choices[0].parsed is None


def test_logprobs_absent_or_short() -> None:
    for body in (made(), made(message(logprobs=None)), made(CALL)):
        with pytest.raises(MissingChannel, match="asked and are absent"):
            DIALECT.lift(SCORED, body)
    whole = message(logprobs=[entry("Hi")])
    assert len(DIALECT.lift(SCORED, made(whole, usage=usage(1))).choices[0].tokens or ()) == 1
    assert len(DIALECT.lift(SCORED, made(whole, usage=usage(5, reasoning_tokens=3))).choices[0].tokens or ()) == 1
    with pytest.raises(BadReply, match="1 scored tokens, usage says 5"):
        DIALECT.lift(SCORED, made(whole, usage=usage(5)))
    with pytest.raises(BadReply, match="1 scored tokens, usage says 2"):
        DIALECT.lift(SCORED, made(whole, usage=usage(2), kv_transfer_params=None))
    with pytest.raises(BadReply, match="do not join"):
        DIALECT.lift(SCORED, made(message(logprobs=[entry("H")]), usage=usage(1)))
    with pytest.raises(BadReply, match="how many tokens"):
        DIALECT.lift(SCORED, made(whole))
    with pytest.raises(BadReply, match="Expected `float`"):
        DIALECT.lift(SCORED, made(message(logprobs=[entry("Hi", None)]), usage=usage(1)))


def test_logprobs_of_several_texts_are_joined() -> None:
    two = (message("a", logprobs=[entry("a")]), message("b", logprobs=[entry("b", -0.25)]))
    tokens = DIALECT.lift(SCORED, made(*two, usage=usage(2))).choices[0].tokens
    assert tokens is not None
    assert tokens.logprobs.tolist() == [-0.5, -0.25]


def test_ids_beside_the_logprobs_must_be_as_many() -> None:
    whole = message(logprobs=[entry("Hi")])
    body = made(whole, usage=usage(1), output_messages=[{"tokens": [5]}])
    tokens = DIALECT.lift(SCORED, body).choices[0].tokens
    assert tokens is not None
    assert tokens.ids is not None
    assert tokens.ids.tolist() == [5]
    with pytest.raises(BadReply, match="2 entries for 1 scored tokens"):
        DIALECT.lift(SCORED, made(whole, usage=usage(1), output_messages=[{"tokens": [5, 6]}]))
    assert DIALECT.lift(ask(), made(output_messages=[{"message": "x"}])).choices[0].token_ids is None
    assert DIALECT.lift(ask(), made(input_messages=[{"tokens": [1]}, {"tokens": [2]}])).prompt_ids is None


def test_a_forced_call_that_did_not_come_is_refused() -> None:
    request = ask(tools=Tools(functions=(Function("f"),), choice="function:f"))
    with pytest.raises(MissingChannel, match="a call of f"):
        DIALECT.lift(request, made())
    assert DIALECT.lift(request, made(CALL)).choices[0].tool_calls


def test_a_foreign_item_is_named() -> None:
    with pytest.raises(BadReply, match=r"/output/1/content/0: .*missing required field `type`"):
        DIALECT.lift(ask(), made(message(), {"type": "message", "content": [{}]}))
    with pytest.raises(BadReply, match=r"/output/0: .*missing required field"):
        DIALECT.lift(ask(), made({"type": "function_call", "name": "f"}))


def test_usage_with_every_breakdown() -> None:
    told = {
        "input_tokens": 9,
        "output_tokens": 5,
        "total_tokens": 14,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    found = DIALECT.lift(ask(), made(usage=told)).usage
    assert (found.prompt, found.completion, found.total) == (9, 5, 14)
    assert (found.cached, found.cache_write, found.reasoning) == (4, 1, 2)
    assert DIALECT.lift(ask(), made()).usage.prompt is None


def test_a_session_is_named_only_where_it_was_stored() -> None:
    asked = ask(session=Session(store=True))
    assert DIALECT.lift(asked, made()).session_id == "resp_1"
    assert DIALECT.lift(asked, made(store=False)).session_id is None
    assert DIALECT.lift(ask(), made(store=True)).session_id == "resp_1"
    assert DIALECT.lift(ask(), made()).session_id is None
    assert DIALECT.lift(ask(), made(service_tier="flex")).metadata == {"service_tier": "flex"}
