"""vllm_native: every recorded reply is lifted to the raw JSON's own values, or refused for its reason."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dialects import wires
from logproof.dialects.vllm_native import VLLMNative
from logproof.errors import BadReply, LogproofError, MissingChannel, OutputContractError
from logproof.http.exchange import SseEvent
from logproof.ir.request import Input, Request, Sampling, Scoring

DIALECT = VLLMNative()
FOLDER = "vllm_native"

REFUSED: dict[str, tuple[type[LogproofError], str]] = {
    "comp_collide_cjk_lp5": (BadReply, "3 entries for a top 5"),
    "comp_collide_emoji_lp5": (BadReply, "two values for the scored token ''"),
    "comp_collide_hot_lp3": (BadReply, "two values for the scored token ''"),
    "comp_prompt_ids_cut_pl1_ids": (BadReply, "two values for the scored token ''"),
    "comp_so_cjk_choice": (BadReply, "two values for the scored token ''"),
    "comp_logprob_token_ids_lp0": (MissingChannel, "no score for label ids"),
    "comp_score_en_pl3_noids": (MissingChannel, "prompt_token_ids are absent"),
    "comp_cached_pl0": (MissingChannel, "prompt_token_ids are absent"),
    "err_beam_lp": (MissingChannel, "prompt logprobs were asked and are absent"),
    "comp_so_json_trunc": (OutputContractError, r"not valid JSON \(truncated at max_tokens\)"),
    "comp_so_stop": (OutputContractError, "ended by stop string"),
}
"""Recordings that must not become a number, each for its own reason."""


def ask(scoring: Scoring) -> Request:
    return Request("m", Input(text="Hi"), sampling=Sampling(max_tokens=4), scoring=scoring)


def score(entries: Any, ids: Any, usage: int | None = None, width: int = 1) -> Any:
    request = ask(Scoring(prompt=width))
    choice = {"index": 0, "text": "x", "finish_reason": "length", "prompt_logprobs": entries, "prompt_token_ids": ids}
    reply: dict[str, object] = {"choices": [choice]}
    if usage is not None:
        reply["usage"] = {"prompt_tokens": usage}
    return wires.read(DIALECT, request, reply).prompt


def entry(logprob: float, rank: int | None = None, text: str | None = None) -> dict[str, object]:
    return {"logprob": logprob, "rank": rank, "decoded_token": text}


ROW = {"8": entry(-0.5, 1, "b"), "9": entry(-3.0, 7, "c")}


@pytest.mark.parametrize(
    ("entries", "ids", "usage", "reason"),
    [
        ([None], [5, 8], None, "1 entries for 2 prompt token ids"),
        ([None], [5], 12, "12"),
        ([None, ROW], [5, 9], 3, "usage says 3"),
        ([None, {"8": entry(-0.5, 1)}, None], [5, 8, 9], None, "token 9 is not among"),
        ([{"5": entry(-1.0, 1)}, {"8": entry(-0.5, 1)}], [5, 8], None, "first prompt token"),
        ([None, {"7": entry(-0.5, 1)}], [5, 8], None, "token 8 is not among"),
        ([None, {"8": entry(-0.5, 1), "9": entry(-1, 2), "7": entry(-2, 3)}], [5, 8], None, "3 entries for a top 1"),
        ([None, {"8": entry(-0.5, 1), "9": entry(-1.0, 2)}], [5, 8], None, "scored token is not the last"),
        ([None, {"8": entry(0.5, 1)}], [5, 8], None, "rank 1 does not go with"),
        ([None, {"8": entry(0.5)}], [5, 8], None, "0.5 is no logprob"),
        ([None, {"8": entry(-0.5, 0)}], [5, 8], None, "rank 0 does not go with"),
        ([None, {"8": entry(-9999.0, 1)}], [5, 8], None, "rank 1 does not go with"),
        ([None, {"8": entry(-0.5, 3)}], [5, 8], None, "rank 3 does not go with"),
        ([None, {"8": entry(-0.9, 1), "9": entry(-0.8, 2)}], [5, 8], None, "different orders"),
        ([], [], None, "first prompt token"),
        ([None, {"8": entry(-0.5, 1)}], [5, -8], None, "is no token id"),
        ([None, {"8": entry(-0.5, 1)}], [5, 2**31], None, "is no token id"),
        ([None, {"8": entry(-0.5, 1)}], [5, 2**70], None, "bad reply"),
    ],
)
def test_a_prompt_channel_that_is_not_whole_is_refused(entries: Any, ids: Any, usage: int | None, reason: str) -> None:
    with pytest.raises(BadReply, match=reason):
        score(entries, ids, usage)


def test_at_width_0_a_position_holds_its_token_alone() -> None:
    with pytest.raises(BadReply, match="2 entries where one was asked"):
        score([None, ROW], [5, 9], 2, width=0)
    assert score([None, {"9": entry(-3.0, 7)}], [5, 9], 2, width=0).texts == (None, None)


def test_an_impossible_prompt_token_is_minus_infinity() -> None:
    prompt = score([None, {"8": entry(-9999.0, 900, "b")}], [5, 8], 2)
    assert prompt.logprobs[1] == -math.inf


def test_choices_that_name_different_prompts_are_refused() -> None:
    exchange = wires.load(FOLDER, "comp_n2_ids_lp3")
    reply = exchange.json()
    reply["choices"][1]["prompt_token_ids"] = [1]
    with pytest.raises(BadReply, match="different prompts"):
        wires.read(DIALECT, wires.request_of(exchange.request), reply)


def label_reply(top: Any, tokens: Any = ("token_id:7",), values: Any = (-0.25,)) -> Any:
    logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": top}
    return {"choices": [{"index": 0, "text": "x", "finish_reason": "length", "logprobs": logprobs, "token_ids": [7]}]}


def test_label_scores_are_exact_and_each_label_is_there() -> None:
    request = ask(Scoring(label_ids=(5, 7)))
    top = [{"token_id:7": -0.25, "token_id:5": -3.0}]
    labels = wires.read(DIALECT, request, label_reply(top)).choices[0].labels
    assert labels is not None
    assert (labels.ids.tolist(), labels.logprobs.tolist(), labels.meaning) == ([5, 7], [[-3.0, -0.25]], "raw")
    for damaged, reason in (([{"token_id:7": -0.25}], r"label ids \[5\]"), (None, "label scores were asked")):
        with pytest.raises(MissingChannel, match=reason):
            wires.read(DIALECT, request, label_reply(damaged))


def test_label_scores_without_any_position_are_missing() -> None:
    request = ask(Scoring(label_ids=(5,)))
    with pytest.raises(MissingChannel):
        wires.read(DIALECT, request, label_reply([], (), ()))


def test_a_dialect_without_streams_refuses_events() -> None:
    with pytest.raises(BadReply, match="no streamed form, yet 1 events came"):
        DIALECT.assemble((SseEvent(None, "[DONE]"),))


@pytest.mark.parametrize("name", wires.names(FOLDER))
def test_a_recorded_reply_is_lifted_value_by_value_or_refused(name: str) -> None:
    exchange = wires.load(FOLDER, name)
    if name in REFUSED:
        kind, reason = REFUSED[name]
        with pytest.raises(kind, match=reason):
            wires.lifted(DIALECT, exchange)
        return
    response = wires.lifted(DIALECT, exchange)
    raw = exchange.json()
    assert (response.model, response.fingerprint, response.response_id) == (
        raw["model"],
        raw["system_fingerprint"],
        raw["id"],
    )
    assert (response.usage.prompt, response.usage.completion, response.usage.total) == tuple(
        raw["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    for choice, wire in zip(response.choices, raw["choices"], strict=True):
        assert (choice.index, choice.text, choice.finish.raw) == (wire["index"], wire["text"], wire["finish_reason"])
        assert choice.finish.matched == wire["stop_reason"]
        if wire["token_ids"] is not None:
            assert choice.token_ids is not None
            assert choice.token_ids.tolist() == wire["token_ids"]
        if wire["logprobs"] is not None:
            assert choice.tokens is not None
            assert choice.tokens.logprobs.tolist() == wire["logprobs"]["token_logprobs"]
    if exchange.request.get("prompt_logprobs") is not None:
        same_prompt(response, raw["choices"][0], exchange.request["prompt_logprobs"])


def same_prompt(response: Any, wire: Any, width: int) -> None:
    """The prompt channel against the raw map of each position, read by no code of the library."""
    prompt = response.prompt
    assert prompt.meaning == "raw"
    assert prompt.ids.tolist() == wire["prompt_token_ids"]
    assert math.isnan(prompt.logprobs[0])
    assert prompt.ranks[0] == 0
    for i, token in enumerate(wire["prompt_token_ids"][1:], start=1):
        own = wire["prompt_logprobs"][i][str(token)]
        assert (prompt.logprobs[i], prompt.ranks[i], prompt.texts[i]) == (
            own["logprob"],
            own["rank"],
            own["decoded_token"],
        )
    assert (prompt.top is None) == (width == 0)
    for i, entries in enumerate(wire["prompt_logprobs"] if width else []):
        assert prompt.top.by_id(i) == {int(k): v["logprob"] for k, v in (entries or {}).items()}


@pytest.mark.parametrize("name", [n for n in wires.names(FOLDER) if n.startswith("comp_score_") and n not in REFUSED])
def test_prompt_texts_join_to_the_prompt(name: str) -> None:
    exchange = wires.load(FOLDER, name)
    prompt = wires.lifted(DIALECT, exchange).prompt
    assert prompt is not None
    assert prompt.texts is not None
    if isinstance(exchange.request["prompt"], str):
        assert "".join(t or "" for t in prompt.texts) == exchange.request["prompt"]
    else:
        assert prompt.texts[0] is None


def test_a_repeated_long_prompt_keeps_every_position() -> None:
    first, again = (wires.lifted(DIALECT, wires.load(FOLDER, f"comp_long_pl0_ids{x}")) for x in ("", "_repeat"))
    assert first.prompt is not None
    assert again.prompt is not None
    assert len(first.prompt) == len(again.prompt) == 801
    assert first.prompt.logprobs[1:].tolist() == again.prompt.logprobs[1:].tolist()


def test_a_one_token_prompt_is_whole_with_its_null() -> None:
    prompt = wires.lifted(DIALECT, wires.load(FOLDER, "comp_prompt_one_token")).prompt
    assert prompt is not None
    assert len(prompt) == 1
    assert math.isnan(prompt.logprobs[0])


def test_top_k_by_id_is_whole_inside_a_character() -> None:
    exchange = wires.load(FOLDER, "comp_collide_as_ids_lp5")
    tokens = wires.lifted(DIALECT, exchange).choices[0].tokens
    assert tokens is not None
    assert tokens.top is not None
    assert tokens.texts is None
    for i, entries in enumerate(exchange.json()["choices"][0]["logprobs"]["top_logprobs"]):
        assert tokens.top.by_id(i) == {int(k.removeprefix("token_id:")): v for k, v in entries.items()}
        assert len(tokens.top.by_id(i)) in (5, 6)


def test_a_text_keyed_map_is_lifted_where_it_is_whole() -> None:
    exchange = wires.load(FOLDER, "comp_lp3_ids")
    tokens = wires.lifted(DIALECT, exchange).choices[0].tokens
    assert tokens is not None
    assert tokens.top is not None
    assert tokens.ids is not None
    assert tokens.top.by_text(0) == exchange.json()["choices"][0]["logprobs"]["top_logprobs"][0]


def test_texts_are_refused_where_ids_were_asked() -> None:
    exchange = wires.load(FOLDER, "comp_lp3_ids")
    with pytest.raises(BadReply, match="ids were asked"):
        wires.lifted(DIALECT, exchange, scoring=Scoring(sampled=3))


def test_a_stop_string_is_cut_from_the_text_and_kept_in_the_tokens() -> None:
    choice = wires.lifted(DIALECT, wires.load(FOLDER, "comp_stop_str_span")).choices[0]
    assert choice.finish.reason == "stop"
    assert choice.finish.matched == "is.\n"
    assert choice.tokens is not None
    assert choice.tokens.texts is not None
    assert "".join(t or "" for t in choice.tokens.texts) != choice.text


def test_scores_under_a_grammar_are_labelled_constrained_and_the_prompt_raw() -> None:
    choice = wires.lifted(DIALECT, wires.load(FOLDER, "comp_so_choice")).choices[0]
    assert choice.tokens is not None
    assert choice.tokens.meaning == "constrained"
    assert choice.parsed == choice.text
    assert choice.text in ("yes", "no")
    prompt = wires.lifted(DIALECT, wires.load(FOLDER, "comp_so_pl0")).prompt
    assert prompt is not None
    assert prompt.meaning == "raw"


def test_masked_entries_are_minus_infinity_not_a_number() -> None:
    exchange = wires.load(FOLDER, "comp_so_choice")
    tokens = wires.lifted(DIALECT, exchange).choices[0].tokens
    assert tokens is not None
    assert tokens.top is not None
    raw = [v for m in exchange.json()["choices"][0]["logprobs"]["top_logprobs"] for v in m.values()]
    assert sum(v == -9999.0 for v in raw) == int((tokens.top.logprobs == -math.inf).sum())


def test_structured_values_are_parsed() -> None:
    assert wires.lifted(DIALECT, wires.load(FOLDER, "comp_so_json")).choices[0].parsed == json.loads(
        wires.load(FOLDER, "comp_so_json").json()["choices"][0]["text"]
    )
    assert isinstance(wires.lifted(DIALECT, wires.load(FOLDER, "comp_so_json_object")).choices[0].parsed, dict)
