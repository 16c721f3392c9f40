"""Streams of the chat wire: joined to the plain reply, or refused."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.compare import same_reply
from dialects.openai_chat.chat_cases import DIALECT, ask
from dialects.openai_chat.chat_wires import request_of
from dialects.wires import events_of, load
from logproof.dialects import reply_checks
from logproof.errors import BadReply, ContextOverflow, LogproofError, RateLimited, ServerFault
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Request, Sampling, Schedule, Scoring
from logproof.ir.response import Response

DONE = SseEvent(None, "[DONE]")
STREAM = Schedule(stream=True)


def event(*choices: dict[str, Any], **chunk: Any) -> SseEvent:
    return SseEvent(None, json.dumps({"id": "x", "model": "m", "choices": list(choices), **chunk}))


def delta(content: str | None = None, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        k: more.pop(k) for k in ("tool_calls", "reasoning", "refusal", "annotations") if k in more
    }
    shown: dict[str, Any] = {"content": content, **fields}
    return {"index": index, "delta": shown, "finish_reason": finish, **more}


def lift(*events: SseEvent, request: Request | None = None) -> Response:
    request = request or ask(schedule=STREAM)
    response = DIALECT.lift(request, DIALECT.assemble(events))
    reply_checks.check(request, response, Facts())
    return response


def test_pieces_are_joined_in_order() -> None:
    response = lift(
        event(delta("")),
        event(delta("He"), delta("Yo", index=1)),
        event(delta("llo", "stop", stop_reason=7)),
        event(delta(None, "length", index=1)),
        event(usage={"prompt_tokens": 1, "completion_tokens": 4}, system_fingerprint="fp"),
        DONE,
        request=ask(schedule=STREAM, sampling=Sampling(n=2)),
    )
    assert [c.text for c in response.choices] == ["Hello", "Yo"]
    assert [c.finish.raw for c in response.choices] == ["stop", "length"]
    assert response.choices[0].finish.matched == 7
    assert (response.usage.completion, response.fingerprint, response.model) == (4, "fp", "m")


@pytest.mark.parametrize("place", range(4))
def test_usage_in_any_place(place: int) -> None:
    events = [event(delta("a")), event(delta("b")), event(delta(None, "stop"))]
    events.insert(place, event(usage={"completion_tokens": 2}))
    assert lift(*events, DONE).usage.completion == 2


def test_calls_merge_by_index() -> None:
    def call(index: int, **fields: Any) -> dict[str, Any]:
        return {"index": index, **fields}

    response = lift(
        event(delta("")),
        event(delta(tool_calls=[call(0, id="a", type="function", function={"name": "f"})])),
        event(delta(tool_calls=[call(0, function={"arguments": '{"x"'})])),
        event(delta(tool_calls=[call(1, id="b", type="function", function={"name": "g", "arguments": ""})])),
        event(delta(tool_calls=[call(0, function={"arguments": ":1}"}), call(1, function={"arguments": "{}"})])),
        event(delta(None, "tool_calls")),
        DONE,
    )
    calls = response.choices[0].tool_calls
    assert [(c.id, c.name, c.arguments) for c in calls] == [("a", "f", '{"x":1}'), ("b", "g", "{}")]
    assert response.choices[0].turn == calls


@pytest.mark.parametrize("index", [None, 1, -1])
def test_a_call_that_skips_an_index_is_refused(index: int | None) -> None:
    broken = {"index": index, "id": "a", "function": {"name": "f"}}
    with pytest.raises(BadReply, match="after 0 calls"):
        lift(event(delta(tool_calls=[broken])), DONE)


def test_reasoning_refusal_and_citations_are_joined() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u"}}
    response = lift(
        event(delta(reasoning="h"), metadata={"weight_version": "1"}),
        event(delta(reasoning="m", refusal="N", matched_stop=None)),
        event(delta(refusal="o", annotations=[cited], matched_stop="s")),
        event(delta(None, "stop", annotations=[cited], matched_stop=None), service_tier="flex"),
        DONE,
    )
    (choice,) = response.choices
    assert (choice.text, choice.reasoning, choice.refusal, len(choice.citations)) == ("", "hm", "No", 2)
    assert choice.finish.matched == "s"
    assert response.metadata == {"service_tier": "flex", "weight_version": "1"}


def entry(token: str) -> dict[str, Any]:
    return {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}


def test_logprobs_are_joined_and_empty_lists_tolerated() -> None:
    scored = ask(schedule=STREAM, scoring=Scoring(sampled=0))
    events = [event(delta(t, logprobs={"content": [entry(t)]})) for t in "abcde"]
    end = event(delta(None, "stop", logprobs={"content": []}), usage={"completion_tokens": 5})
    assert len(lift(*events, end, DONE, request=scored).choices[0].tokens or ()) == 5
    short = event(delta(None, "stop"), usage={"completion_tokens": 12})
    with pytest.raises(BadReply, match="5 scored tokens, usage says 12"):
        lift(*events, short, DONE, request=scored)
    refused = event(
        delta(None, "stop", refusal="f", logprobs={"refusal": [entry("f")]}), usage={"completion_tokens": 1}
    )
    assert len(lift(refused, DONE, request=scored).choices[0].tokens or ()) == 1
    foreign = event(delta("a", "stop", logprobs={"tokens": ["a"]}))
    with pytest.raises(BadReply, match="completions shape"):
        lift(foreign, DONE, request=scored)


def test_ids_may_run_ahead_of_the_text() -> None:
    scored = ask(schedule=STREAM, scoring=Scoring(sampled=0))
    first = delta("", token_ids=[1, 2], logprobs={"content": [entry("a"), entry("b")]})
    last = delta("abc", "stop", token_ids=[3], logprobs={"content": [entry("c")]})
    (choice,) = lift(event(first), event(last, usage={"completion_tokens": 3}), DONE, request=scored).choices
    assert (choice.text, choice.tokens and choice.tokens.texts) == ("abc", ("a", "b", "c"))
    assert choice.token_ids is not None
    assert choice.token_ids.tolist() == [1, 2, 3]


def test_a_scored_stream_that_only_its_own_ids_count_is_refused() -> None:
    scored = ask(schedule=STREAM, scoring=Scoring(sampled=0))
    only = event(delta("a", "stop", token_ids=[1], logprobs={"content": [entry("a")]}))
    with pytest.raises(BadReply, match="how many tokens were sampled"):
        lift(only, DONE, request=scored)


def test_grouped_logprobs_are_counted_against_usage() -> None:
    grouped = event(delta("abc", "stop", logprobs={"content": [entry("abc")]}), usage={"completion_tokens": 3})
    with pytest.raises(BadReply, match="1 scored tokens, usage says 3"):
        lift(grouped, DONE, request=ask(schedule=STREAM, scoring=Scoring(sampled=0)))


def test_partial_ids_serve_no_score_and_are_left_out_elsewhere() -> None:
    events = [event(delta("a", token_ids=[1])), event(delta(None, "stop"), usage={"completion_tokens": 40}), DONE]
    response = lift(*events)
    assert response.choices[0].token_ids is None
    assert "1 of 40 token ids" in response.notes[0]
    whole = [event(delta("a", "stop", token_ids=[1]), usage={"completion_tokens": 1}), DONE]
    assert lift(*whole).choices[0].token_ids is not None
    scored = ask(schedule=STREAM, scoring=Scoring(sampled=0))
    grown = event(delta("a", token_ids=[1], logprobs={"content": [entry("a")]}))
    with pytest.raises(BadReply, match="usage says 40"):
        lift(grown, *events[1:], request=scored)


ERRORS: list[tuple[dict[str, Any], type[LogproofError]]] = [
    ({"error": {"message": "the engine died", "type": "InternalServerError", "code": 500}}, ServerFault),
    ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, RateLimited),
    ({"error": {"message": "maximum context length is 8", "code": 400}}, ContextOverflow),
]


@pytest.mark.parametrize(("payload", "kind"), ERRORS)
@pytest.mark.parametrize("closed", [True, False])
def test_an_error_in_a_stream_is_the_server_s_error(
    payload: dict[str, Any], kind: type[LogproofError], closed: bool
) -> None:
    events = [event(delta("a")), SseEvent(None, json.dumps(payload)), *([DONE] if closed else [])]
    with pytest.raises(kind):
        lift(*events)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "was cut"),
        ([event(delta("a", "stop"))], "was cut"),
        ([DONE], "before choices any finished"),
        ([event(delta("a")), DONE], r"before choices \[0\] finished"),
        ([event(delta("a", "stop"), delta("b", index=1)), DONE], r"choices \[1\]"),
        ([event(delta("a", "stop")), event(delta("b")), DONE], "went on"),
        ([event({"delta": {"content": "a"}}), DONE], "without index"),
        ([event(delta("a")), SseEvent(None, '{"choices":[{"index":0,"delta":{"tool_calls":[{"ind'), DONE], "no JSON"),
        ([event(delta("a")), SseEvent("ping", "{}"), DONE], "missing required field"),
    ],
)
def test_a_broken_stream_is_refused(events: list[SseEvent], message: str) -> None:
    with pytest.raises(BadReply, match=message):
        lift(*events)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({c % (len(text) + 1) for c in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)]


@given(st.text(max_size=20), st.text(max_size=8), st.lists(st.integers(0, 40), max_size=6))
def test_any_cut_of_a_text_gives_the_plain_reply(text: str, reasoning: str, cuts: list[int]) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    message = {"role": "assistant", "content": text, "reasoning": reasoning}
    whole = {"id": "x", "model": "m", "usage": usage}
    body = {**whole, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    events = [event(delta(""))]
    events += [event(delta(None, reasoning=p)) for p in pieces(reasoning, cuts)]
    events += [event(delta(p)) for p in pieces(text, cuts)]
    events += [event(delta(None, "stop")), event(usage=usage), DONE]
    assert same_reply(lift(*events)) == same_reply(DIALECT.lift(ask(), json.dumps(body).encode()))


def test_recorded_pairs_lift_alike() -> None:
    for streamed, direct in (("parser_tools_required_stream", "parser_tools_required"), ("vllm_stream_lp", None)):
        found = load("openai_chat", streamed)
        request = request_of(found.request, sampled=1 if "lp" in streamed else None)
        response = lift(*events_of(found.body), request=request)
        if direct is None:
            assert response.choices[0].text == "The answer is "
            assert response.choices[0].tokens is not None
            assert response.choices[0].tokens.ids is not None
            continue
        other = load("openai_chat", direct)
        plain = DIALECT.lift(request_of(other.request), other.body)
        assert same_reply(response)["choices"] == same_reply(plain)["choices"]
