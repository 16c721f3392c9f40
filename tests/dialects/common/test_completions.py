"""The completions reply shared by two dialects: streams put together, ids in texts, the first prompt text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects import wires
from logproof.dialects.common import completions, decode
from logproof.dialects.openai_completions.request import OpenAICompletions
from logproof.dialects.vllm_native.request import VLLMNative
from logproof.errors import BadReply, StatusError
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Sampling

DIALECT = OpenAICompletions()


def events(*data: Any) -> tuple[SseEvent, ...]:
    return tuple(SseEvent(None, d if isinstance(d, str) else json.dumps(d)) for d in data)


def chunk(text: str, finish: str | None = None, index: int = 0, **more: object) -> dict[str, object]:
    return {"choices": [{"index": index, "text": text, "finish_reason": finish, **more}]}


def assembled(*data: Any) -> Any:
    return json.loads(completions.assemble(events(*data)))


def test_texts_ids_and_scores_are_joined_in_order() -> None:
    one = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0}], "text_offset": [0]}
    none = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    whole = assembled(
        {"id": "x", "model": "m", **chunk("a", logprobs=one, token_ids=[1], prompt_token_ids=[9])},
        chunk("", token_ids=[2]),
        chunk("b", "stop", logprobs=none, stop_reason="z"),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
        "[DONE]",
    )
    (choice,) = whole["choices"]
    assert (choice["text"], choice["token_ids"], choice["prompt_token_ids"]) == ("ab", [1, 2], [9])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "z")
    assert choice["logprobs"]["token_logprobs"] == [-1.0]
    assert (whole["id"], whole["model"], whole["usage"]["prompt_tokens"]) == ("x", "m", 1)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_usage_may_come_in_any_event(place: int) -> None:
    parts: list[Any] = [chunk("a"), chunk("b", "stop")]
    parts.insert(place, {"choices": [], "usage": {"prompt_tokens": 7}})
    assert assembled(*parts, "[DONE]")["usage"]["prompt_tokens"] == 7


def test_choices_are_kept_apart_and_unknown_fields_ignored() -> None:
    whole = assembled(
        chunk("b", "stop", 1), chunk("a", index=0, frob=1), {"object": "ping"}, chunk("c", "stop", 0), "[DONE]"
    )
    assert [c["text"] for c in whole["choices"]] == ["ac", "b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "before its \\[DONE\\] mark"),
        ([chunk("a", "stop")], "before its \\[DONE\\] mark"),
        ([chunk("a"), "[DONE]"], "before choices \\[0\\] finished"),
        (["[DONE]"], "before choices any finished"),
        ([chunk("a", "stop"), chunk("b"), "[DONE]"], "text after a choice had finished"),
        ([{"choices": [{"text": "a"}]}, "[DONE]"], "without index"),
        (['{"choices": [{"te', "[DONE]"], "no JSON"),
        (["hello", "[DONE]"], "no JSON"),
        ([{"choices": 5}, "[DONE]"], "Expected `array`"),
        ([[1], "[DONE]"], "Expected `object`"),
    ],
)
def test_a_stream_that_is_not_whole_is_refused(data: list[Any], message: str) -> None:
    with pytest.raises(BadReply, match=message):
        completions.assemble(events(*data))


def test_an_error_object_inside_a_stream_is_the_servers() -> None:
    with pytest.raises(StatusError, match="engine died"):
        completions.assemble(events(chunk("a"), {"error": {"message": "engine died"}}, "[DONE]"))


@pytest.mark.parametrize("name", [n for n in wires.names("openai_completions") if "stream" in n])
def test_a_recorded_stream_cut_anywhere_is_refused(name: str) -> None:
    whole = wires.events_of(wires.load("openai_completions", name).body)
    completions.assemble(whole)
    for n in range(len(whole)):
        with pytest.raises(BadReply):
            completions.assemble(whole[:n])


@given(st.lists(st.text(max_size=5), min_size=1, max_size=6), st.integers(1, 3))
def test_streamed_equals_plain(texts: list[str], n: int) -> None:
    parts = [chunk(t, None, i) for t in texts for i in range(n)] + [chunk("", "stop", i) for i in range(n)]
    plain = {"choices": [{"index": i, "text": "".join(texts), "finish_reason": "stop"} for i in range(n)]}
    request = Request("m", Input(text="x"), sampling=Sampling(n=n))
    streamed = DIALECT.lift(request, completions.assemble(events(*parts, "[DONE]")))
    assert [(c.text, c.finish) for c in streamed.choices] == [
        (c.text, c.finish) for c in DIALECT.lift(request, json.dumps(plain).encode()).choices
    ]


def test_a_dialect_without_streams_refuses_events() -> None:
    with pytest.raises(BadReply, match="no streamed form, yet 1 events came"):
        VLLMNative().assemble(events("[DONE]"))


@pytest.mark.parametrize(
    ("prompt", "rest", "first"),
    [
        ("Hi there", (" there",), "Hi"),
        ("中国", ("国",), "中"),
        ("🦊", ("", "", "🦊"), ""),
        ("Hi", ("x",), None),
        (None, ("x",), None),
        ("Hi", (None,), None),
        ("Hi", (), "Hi"),
    ],
)
def test_the_first_text_is_what_the_rest_leaves(prompt: str | None, rest: Any, first: str | None) -> None:
    assert completions.first_text(prompt, rest) == first


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_choice_that_the_engine_ended_is_refused(reason: str) -> None:
    with pytest.raises(BadReply, match=f"ended this choice with '{reason}'"):
        wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a", "finish_reason": reason}]})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("weird", "other"), (None, "other")],
)
def test_finish_reasons_are_normalised_and_kept(raw: str | None, reason: str) -> None:
    lifted = wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a", "finish_reason": raw}]})
    assert (lifted.choices[0].finish.reason, lifted.choices[0].finish.raw) == (reason, raw)


def test_ids_of_logprobs_and_of_the_choice_must_agree() -> None:
    logprobs = {"tokens": ["token_id:5"], "token_logprobs": [-1.0]}
    answer = {"choices": [{"text": "a", "logprobs": logprobs, "token_ids": [6]}]}
    request = wires.request_of({"model": "m", "prompt": "x", "logprobs": 0})
    with pytest.raises(BadReply, match="name different tokens"):
        wires.read(DIALECT, request, answer)
    logprobs["tokens"], answer["choices"][0]["token_ids"] = ["a"], [6, 7]  # type: ignore[index]
    with pytest.raises(BadReply, match="1 entries for 2 token ids"):
        wires.read(DIALECT, request, answer)


def test_a_text_key_among_ids_is_refused() -> None:
    logprobs = {"tokens": ["token_id:5"], "token_logprobs": [-1.0], "top_logprobs": [{"token_id:5": -1.0, " a": -2.0}]}
    request = wires.request_of({"model": "m", "prompt": "x", "logprobs": 2})
    with pytest.raises(BadReply, match="keyed by text among ids"):
        wires.read(DIALECT, request, {"choices": [{"text": "a", "logprobs": logprobs}]})


def test_cached_and_reasoning_counts_are_lifted() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    lifted = wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a"}], "usage": details})
    assert (lifted.usage.cached, lifted.usage.reasoning, lifted.usage.prompt) == (4, 2, None)
    assert (
        wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a"}]}, Facts()).usage.cached is None
    )


@pytest.mark.parametrize(
    ("message", "text", "path"),
    [
        ("Expected `str`, got `int` - at `$.choices[0].text`", "Expected `str`, got `int`", "/choices/0/text"),
        ("Expected `int` - at `$[...].a`", "Expected `int`", "/.../a"),
        ("Expected `object`, got `array`", "Expected `object`, got `array`", ""),
    ],
)
def test_the_place_of_a_fault_becomes_a_pointer(message: str, text: str, path: str) -> None:
    assert decode.split_path(message)[0] == text
    assert decode.split_path(message)[1].endswith(path.rsplit("/", 1)[-1])


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, b'{"choices": [{"text": 5}]}', b"<html>"])
def test_a_foreign_body_is_a_bad_reply(body: bytes) -> None:
    with pytest.raises(BadReply) as caught:
        completions.read(body)
    assert len(str(caught.value)) < 400


def test_a_field_whose_name_is_damaged_is_not_an_absent_field() -> None:
    """The decoder skips unknown names unread: the finish reason would be None, as if the server had given none."""
    whole = b'{"choices": [{"index": 0, "text": "caf\xc3\xa9", "finish_reason": "stop"}]}'
    assert completions.read(whole).choices[0].finish_reason == "stop"
    with pytest.raises(BadReply, match="utf-8"):
        completions.read(whole.replace(b"finish", b"\xff" * 6))


@pytest.mark.parametrize("before", range(-3, 2))
def test_a_character_may_lie_across_the_pieces_in_which_a_body_is_checked(before: int) -> None:
    head = b'{"choices": [{"index": 0, "text": "'
    filled = b"x" * (decode._PIECE - len(head) + before)
    whole = head + filled + "€".encode() + b'", "finish_reason": "stop"}]}'
    assert completions.read(whole).choices[0].text == filled.decode() + "€"
    for damaged in (whole.replace(b"\xac", b"x"), whole.replace(b"\xe2", b""), whole.replace(b"\xac", b"")):
        with pytest.raises(BadReply, match="utf-8"):
            completions.read(damaged.replace(b'"text"', b'"none"'))


def test_a_body_that_ends_inside_a_character_is_no_json() -> None:
    with pytest.raises(BadReply, match="unexpected end of data"):
        completions.read(b'{"choices": []}' + "€".encode()[:2])
