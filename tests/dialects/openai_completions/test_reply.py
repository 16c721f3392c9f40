"""openai_completions: recorded and invented replies, lifted value by value or refused for a reason."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from dialects import wires
from dialects.openai_completions.completions_cases import DIALECT, ask, body, refusals, sampled
from logproof.errors import BadReply, LogproofError, MissingChannel
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Sampling, Scoring

FOLDER = "openai_completions"
SHIFTED = "0 entries follow the echoed prompt where 1 tokens were sampled"
REFUSED: dict[str, tuple[type[LogproofError], str]] = {
    "comp_collide_cjk_lp5": (BadReply, "3 entries for a top 5"),
    "comp_collide_stream_lp3": (BadReply, "two values for the scored token ''"),
    "comp_echo_cjk_lp3_ids": (BadReply, "two values for the scored token ''"),
    "comp_echo_emoji_lp3_ids": (BadReply, "two values for the scored token ''"),
    "comp_echo_cjk_stream_lp3": (BadReply, r"no usage\.prompt_tokens"),
    "comp_echo_stream_lp3_max0": (BadReply, r"no usage\.prompt_tokens"),
    "llamacpp_comp_cjk_lp5": (BadReply, "3 entries for a top 5"),
    "llamacpp_comp_echo_lp0": (BadReply, SHIFTED),
    "llamacpp_comp_echo_lp3": (BadReply, SHIFTED),
    "llamacpp_comp_echo_cjk_lp1": (BadReply, SHIFTED),
    "comp_stream_stop": (BadReply, "how many tokens were sampled"),
    "llamacpp_comp_stream_lp": (BadReply, "how many tokens were sampled"),
    "llamacpp_comp_n2": (BadReply, r"choices \[0\] for 2 asked"),
    "sglang_echo_lp0_ids": (BadReply, "1 echoed entries for 5 prompt tokens"),
}

"""Recordings that must not become a number, each for its own reason."""


@pytest.mark.parametrize("name", [n for n in wires.names(FOLDER) if n not in REFUSED])
def test_a_recorded_reply_is_lifted_value_by_value(name: str) -> None:
    exchange = wires.load(FOLDER, name)
    response = wires.lifted(DIALECT, exchange)
    raw = joined(exchange) if exchange.stream else exchange.json()
    boundary = raw["usage"]["prompt_tokens"] if exchange.request.get("echo") else 0
    for choice, wire in zip(response.choices, raw["choices"], strict=True):
        assert choice.index == wire["index"]
        assert choice.finish.raw == wire["finish_reason"]
        assert wire["text"].endswith(choice.text)
        if wire.get("token_ids") and exchange.request["max_tokens"]:
            assert choice.token_ids is not None
            assert choice.token_ids.tolist() == wire["token_ids"]
        if choice.tokens is not None:
            assert choice.tokens.logprobs.tolist() == wire["logprobs"]["token_logprobs"][boundary:]
    if boundary:
        assert response.prompt is not None
        assert math.isnan(response.prompt.logprobs[0])
        values = raw["choices"][0]["logprobs"]["token_logprobs"]
        assert response.prompt.logprobs[1:].tolist() == values[1:boundary]


@pytest.mark.parametrize("name", REFUSED)
def test_a_recorded_reply_that_is_not_whole_is_refused(name: str) -> None:
    kind, reason = REFUSED[name]
    with pytest.raises(kind, match=reason):
        wires.lifted(DIALECT, wires.load(FOLDER, name))


def joined(exchange: wires.Exchange) -> Any:
    """A stream put together by hand: what the chunks say, in order."""
    choices: dict[int, Any] = {}
    usage = {}
    for line in exchange.body.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line.removeprefix("data: "))
        usage = chunk.get("usage") or usage
        for delta in chunk["choices"]:
            whole = choices.setdefault(delta["index"], {"index": delta["index"], "text": "", "token_ids": []})
            whole["text"] += delta["text"]
            whole["finish_reason"] = delta["finish_reason"]
            whole["token_ids"] += delta.get("token_ids") or []
            held = whole.setdefault("logprobs", {"token_logprobs": []})
            held["token_logprobs"] += (delta.get("logprobs") or {}).get("token_logprobs", [])
    return {"choices": [choices[i] for i in sorted(choices)], "usage": usage}


@pytest.mark.parametrize(
    "name", ["comp_echo_cjk_lp0", "comp_echo_emoji_lp0", "comp_echo_hiero_lp0", "comp_long_echo_lp0"]
)
def test_echoed_texts_join_to_the_prompt(name: str) -> None:
    exchange = wires.load(FOLDER, name)
    prompt = wires.lifted(DIALECT, exchange).prompt
    assert prompt is not None
    assert "".join(t or "" for t in prompt.texts or ()) == exchange.request["prompt"]


def test_sglang_heeds_a_seed_only_in_its_deterministic_mode() -> None:
    request = ask(sampling=Sampling(max_tokens=4, seed=3))
    assert refusals(request, Facts(engine="sglang"))["sampling.seed"].startswith("SGLang heeds a seed only")
    assert body(request, Facts(engine="sglang", deterministic=True))["seed"] == 3


def test_sglang_leaves_an_unlikely_token_out_of_its_map_and_the_map_is_whole() -> None:
    exchange = wires.load(FOLDER, "sglang_echo")
    raw = exchange.json()["choices"][0]["logprobs"]
    prompt = wires.lifted(DIALECT, exchange).prompt
    assert prompt is not None
    assert prompt.top is not None
    for i in range(1, len(prompt)):
        own = {raw["tokens"][i]: raw["token_logprobs"][i]}
        assert prompt.top.by_text(i) == {**raw["top_logprobs"][i], **own}


@pytest.mark.parametrize("value", [-0.2, -1.9])
def test_a_token_above_its_map_s_last_entry_must_stand_in_it(value: float) -> None:
    with pytest.raises(BadReply, match="'c' is not among the entries"):
        sampled([{"a": -0.1, "b": -2.0}], 2, tokens=("c",), values=(value,))


def test_sglang_s_text_holds_the_prompt_beside_ids_and_its_pieces_are_no_texts() -> None:
    exchange = wires.load(FOLDER, "sglang_echo_cjk_lp3_ids")
    raw, response = exchange.json()["choices"][0], wires.lifted(DIALECT, exchange)
    prompt = response.prompt
    assert prompt is not None
    assert prompt.ids is not None
    assert prompt.ids.tolist() == raw["prompt_token_ids"]
    assert prompt.texts is None, "a piece of a character comes as its bytes, one character each"
    assert response.choices[0].text == raw["text"].removeprefix("中国的")


def test_sglang_scores_no_echo_at_width_0_so_1_is_asked_and_its_rivals_are_left() -> None:
    request = ask(scoring=Scoring(prompt=0))
    assert body(request, Facts(engine="sglang"))["logprobs"] == 1
    assert body(request, Facts(engine="vllm"))["logprobs"] == 0
    exchange = wires.load(FOLDER, "sglang_echo_lp1_stop")
    asked = msgspec.structs.replace(request, input=Input(text="The capital of France is"))
    response = wires.read(DIALECT, asked, exchange.json())
    assert response.prompt is not None
    assert response.prompt.top is None
    assert "".join(t or "" for t in response.prompt.texts or ()) == "The capital of France is"
    assert (response.text, response.choices[0].finish.matched) == ("", " Paris")


def test_the_echoed_prompt_is_cut_from_the_text() -> None:
    response = wires.lifted(DIALECT, wires.load(FOLDER, "comp_echo_en_lp0"))
    raw = wires.load(FOLDER, "comp_echo_en_lp0").json()["choices"][0]["text"]
    assert raw == "The capital of France is" + response.choices[0].text


def test_placeholder_tokens_become_ids_and_never_texts() -> None:
    prompt = wires.lifted(DIALECT, wires.load(FOLDER, "comp_as_ids_echo_lp3")).prompt
    assert prompt is not None
    assert prompt.ids is not None
    assert prompt.top is not None
    assert prompt.ids.tolist() == [504, 3575, 282, 4649, 314]
    assert prompt.texts is None
    assert prompt.top.by_id(1)[3575] == prompt.logprobs[1]


def test_the_hidden_token_of_max_tokens_0_belongs_to_no_choice() -> None:
    choice = wires.lifted(DIALECT, wires.load(FOLDER, "comp_echo_en_max0_lp3_ids")).choices[0]
    assert choice.token_ids is None
    assert choice.tokens is None


def test_streamed_and_plain_replies_lift_alike() -> None:
    exchange = wires.load(FOLDER, "comp_stream_lp3_ids")
    request = wires.request_of(exchange.request)
    streamed = wires.lifted(DIALECT, exchange)
    plain = wires.read(DIALECT, request, DIALECT.assemble(wires.events_of(exchange.body)))
    assert streamed.usage == plain.usage
    a, b = streamed.choices[0].tokens, plain.choices[0].tokens
    assert a is not None
    assert b is not None
    assert a.logprobs.tolist() == b.logprobs.tolist()
    assert a.texts == b.texts
    recorded = wires.lifted(DIALECT, wires.load(FOLDER, "comp_lp3_noids")).choices[0].tokens
    assert recorded is not None
    assert recorded.texts == a.texts
    assert recorded.logprobs.tolist() == a.logprobs.tolist()


def echo(
    tokens: Any, values: Any, usage: object = ..., text: str = "Hi there", top: object = None, **choice: object
) -> Any:
    logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": top}
    wire = {"index": 0, "text": text, "finish_reason": "length", "logprobs": logprobs, **choice}
    counts = {"prompt_tokens": 1, "completion_tokens": 1} if usage is ... else usage
    return {"choices": [wire], "usage": counts}


SCORE = ask(scoring=Scoring(prompt=0))


@pytest.mark.parametrize(
    ("reply", "kind", "reason"),
    [
        (echo(["4"], [-0.3], {"prompt_tokens": 9}), BadReply, "1 echoed entries for 9 prompt tokens"),
        (echo(["Hi", " t"], [None, -1.0], None), BadReply, "nothing says where"),
        (echo(["Hi", " t"], [None, -1.0], {"completion_tokens": 1}), BadReply, "nothing says where"),
        (echo(["Hi", " t"], [-0.5, -1.0]), BadReply, "echo is shifted"),
        (echo(["Hi", " t"], [None]), BadReply, "1 entries for 2 tokens"),
        (echo(["Hi", " t"], [None, -1.0], top=[None]), BadReply, "1 entries for 2 tokens"),
        (echo(["Hi", " t"], [None, -1.0], text="Ho there"), BadReply, "does not begin with the prompt"),
        (echo(None, None), BadReply, "another shape"),
        (echo(["Hi", " t"], [None, -1.0], prompt_token_ids=[1, 2]), BadReply, "2 entries|1 entries"),
        (echo(["token_id:5", "token_id:6"], [None, -1], prompt_token_ids=[4]), BadReply, "different tokens"),
        (echo(["Hi", " t"], [None, -1], {"prompt_tokens": 0, "completion_tokens": 2}), BadReply, "absent"),
        ({"choices": [{"index": 0, "text": "Hi"}], "usage": {"prompt_tokens": 1}}, MissingChannel, "absent"),
    ],
)
def test_an_echo_that_cannot_be_split_is_refused(reply: Any, kind: type[LogproofError], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        wires.read(DIALECT, SCORE, reply)


def test_the_chat_shape_is_named() -> None:
    choice = {"index": 0, "text": " 4", "logprobs": {"content": [{"token": " 4", "logprob": -0.2}]}}
    with pytest.raises(BadReply, match=r"chat shape \(content\[\]\) where tokens\[\]"):
        wires.read(DIALECT, ask(scoring=Scoring(sampled=0)), {"choices": [choice]})


def test_an_unscored_position_inside_the_prompt_is_refused() -> None:
    reply = echo(["a", "b", "c", "d"], [None, None, -1.0, -1.0], {"prompt_tokens": 3}, text="Hi d")
    with pytest.raises(BadReply, match="null at a scored position"):
        wires.read(DIALECT, SCORE, reply)


@pytest.mark.parametrize(
    ("top", "width", "reason"),
    [
        ([{"true": -1.6, "false": -8.4, "null": -8.2}], 4, "two values for the scored token"),
        ([{"true": -0.2, "false": -8.4, "null": -8.2}], 4, "3 entries for a top 4"),
        ([{"\ufffd": -4.0, "a": -0.1, "b": -2, "c": -3}], 5, "not among the entries"),
        ([{"true": -0.2, "a": -0.1, "b": -0.3}], 2, "scored token is not the last"),
        (None, 2, "top logprobs were asked"),
        ([None], 2, "not among the entries"),
        ([{"true": -0.3}], 0, "two values for the token"),
        ([{"false": -0.2}], 0, "two values for the token"),
    ],
)
def test_a_map_that_lost_entries_is_refused(top: Any, width: int, reason: str) -> None:
    with pytest.raises(BadReply, match=reason):
        sampled(top, width)


def test_the_sampled_token_alone_survives_a_collapsed_map() -> None:
    assert sampled([{"\ufffd": -4.0, "a": -0.1}], 0).choices[0].tokens.logprobs.tolist() == [-0.2]


def test_sampled_counts_must_agree_with_usage() -> None:
    with pytest.raises(BadReply, match="1 sampled tokens, usage says 3"):
        sampled(None, 0, completion_tokens=3)
    with pytest.raises(BadReply, match="do not make"):
        sampled(None, 0, completion_tokens=1, prompt_tokens=2, total_tokens=4)


def test_offsets_that_go_back_are_refused() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [-1, -2], "text_offset": [1, 0]}
    reply: dict[str, Any] = {"choices": [{"index": 0, "text": "ab", "logprobs": logprobs}]}
    with pytest.raises(BadReply, match=r"text_offset/1: .* begins before"):
        wires.read(DIALECT, ask(scoring=Scoring(sampled=0)), reply)
    logprobs["text_offset"] = [0]
    with pytest.raises(BadReply, match="1 entries for 2 tokens"):
        wires.read(DIALECT, ask(scoring=Scoring(sampled=0)), reply)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"-0.2"', "true", "0.5", "1e999", "null", "[]"])
def test_a_value_that_is_no_logprob_is_refused(value: str) -> None:
    shape = {"tokens": ["a"], "token_logprobs": ["VALUE"], "top_logprobs": None}
    text = json.dumps({"choices": [{"index": 0, "text": "x", "logprobs": shape}]}).replace('"VALUE"', value)
    with pytest.raises(BadReply):
        wires.read(DIALECT, ask(scoring=Scoring(sampled=0)), text.encode())


def test_a_drawn_token_of_probability_zero_is_refused() -> None:
    with pytest.raises(BadReply, match="probability zero"):
        sampled(None, 0, values=(-9999.0,))


def test_choices_come_in_index_order_and_all() -> None:
    choices = [{"index": i, "text": str(i), "finish_reason": "stop"} for i in (2, 0, 1)]
    response = wires.read(DIALECT, ask(sampling=Sampling(n=3)), {"choices": choices})
    assert [c.text for c in response.choices] == ["0", "1", "2"]
    with pytest.raises(BadReply, match=r"choices \[0, 1\] for 3 asked"):
        wires.read(DIALECT, ask(sampling=Sampling(n=3)), {"choices": choices[1:]})
    with pytest.raises(BadReply, match="without index"):
        wires.read(DIALECT, ask(sampling=Sampling(n=2)), {"choices": [{"text": "a"}, {"text": "b"}]})
    assert wires.read(DIALECT, ask(), {"choices": [{"text": "a"}]}).text == "a"


def test_logprobs_that_were_not_asked_may_be_absent_or_null() -> None:
    for choice in ({"index": 0, "text": "a"}, {"index": 0, "text": "a", "logprobs": None}):
        assert wires.read(DIALECT, ask(), {"choices": [choice]}).choices[0].tokens is None
    with pytest.raises(MissingChannel):
        wires.read(DIALECT, ask(scoring=Scoring(sampled=0)), {"choices": [{"index": 0, "text": "a"}]})


@pytest.mark.parametrize(
    ("sampling", "options", "meaning"),
    [
        (Sampling(temperature=1.0), {}, "raw"),
        (Sampling(temperature=1.0, top_p=1.0), {}, "raw"),
        (Sampling(temperature=0.7), {}, "unknown"),
        (Sampling(), {}, "unknown"),
        (Sampling(temperature=1.0, top_p=0.9), {}, "unknown"),
        (Sampling(temperature=1.0, presence_penalty=0.1), {}, "unknown"),
        (Sampling(temperature=1.0, logit_bias={1: 2.0}), {}, "unknown"),
        (Sampling(temperature=1.0), {"min_p": 0.1}, "unknown"),
    ],
)
def test_the_meaning_is_known_only_where_all_servers_agree(
    sampling: Sampling, options: dict[str, object], meaning: str
) -> None:
    logprobs = {"tokens": ["a"], "token_logprobs": [-1.0]}
    request = ask(sampling=sampling, options=options, scoring=Scoring(sampled=0))
    reply = {"choices": [{"text": "a", "logprobs": logprobs}], "usage": {"completion_tokens": 1}}
    tokens = wires.read(DIALECT, request, reply).choices[0].tokens
    assert tokens is not None
    assert tokens.meaning == meaning
