"""Recorded and invented chat replies: lifted whole, or refused for a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dialects.openai_chat.chat_cases import DIALECT, ask
from dialects.openai_chat.chat_replies import SCORED, logprobs, made
from dialects.openai_chat.chat_wires import request_of
from dialects.wires import Exchange, load, names
from logproof.dialects import reply_checks
from logproof.errors import (
    BadReply,
    LogproofError,
    MissingChannel,
    OutputContractError,
)
from logproof.ir.facts import Facts
from logproof.ir.request import Request, Scoring
from logproof.ir.response import Finish, Response

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
    reply_checks.check(request, response, Facts())
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
