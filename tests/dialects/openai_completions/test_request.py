"""openai_completions: golden bodies, echo split by usage, and what must not become a number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dialects import wires
from dialects.openai_completions.completions_cases import DIALECT, ask, body, refusals, sampled
from logproof.dialects.lower import lower
from logproof.errors import BadReply, LogproofError, MissingChannel
from logproof.ir.facts import Facts
from logproof.ir.message import text_message
from logproof.ir.request import Input, Output, Replay, Request, Sampling, Schedule, Scoring

IDS = Facts(max_logprobs=5, fields={"/v1/completions": ("return_token_ids", "min_p")})


def test_golden_body() -> None:
    request = Request(
        "m",
        Input(text="a", suffix="b"),
        sampling=Sampling(8, 0.5, 0.9, None, 7, ("x",), 2, 0.1, 0.2, {5: -1.5}),
        scoring=Scoring(sampled=5, top_by="text"),
        schedule=Schedule(stream=True),
        options={"min_p": 0.1},
    )
    lowered = lower(request, DIALECT, IDS)
    assert lowered.wire.stream
    assert json.loads(lowered.wire.body) == {
        "model": "m",
        "prompt": "a",
        "suffix": "b",
        "max_tokens": 8,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["x"],
        "n": 2,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "logit_bias": {"5": -1.5},
        "logprobs": 5,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "min_p": 0.1,
    }


def test_scoring_asks_for_an_echo_of_one_width() -> None:
    assert body(ask(scoring=Scoring(prompt=0, sampled=3))) == {
        "model": "m",
        "prompt": "Hi",
        "max_tokens": 4,
        "echo": True,
        "logprobs": 3,
    }
    assert body(ask(input=Input(token_ids=(1, 2)), scoring=Scoring(prompt=0)))["prompt"] == [1, 2]
    assert body(ask(scoring=Scoring(prompt=0), sampling=Sampling(max_tokens=0)))["max_tokens"] == 0


@pytest.mark.parametrize("width", [0, 5])
def test_the_width_is_a_number_never_true(width: int) -> None:
    assert body(ask(scoring=Scoring(sampled=width)))["logprobs"] is width


@pytest.mark.parametrize(
    ("request_", "facts", "leaf", "reason"),
    [
        (ask(scoring=Scoring(prompt=3, sampled=5)), None, "scoring.sampled", "ask 3, or 0"),
        (ask(scoring=Scoring(prompt=6)), IDS, "scoring.prompt", "at most 5"),
        (ask(scoring=Scoring(prompt=0, sampled=6)), IDS, "scoring.sampled", "at most 5"),
        (ask(scoring=Scoring(sampled=1, top_by="id")), None, "scoring.top_by", "vllm_native"),
        (ask(scoring=Scoring(label_ids=(1,))), None, "scoring.label_ids", "vllm_native"),
        (ask(input=Input(text="a", suffix="b"), scoring=Scoring(prompt=0)), None, "scoring.prompt", "suffix"),
        (ask(input=Input(text="a", suffix="b")), Facts(engine="vllm"), "input.suffix", "400"),
        (ask(sampling=Sampling(max_tokens=0)), None, "sampling.max_tokens", "scored prompt"),
        (ask(sampling=Sampling(stop=("a", "b", "c", "d", "e"))), None, "sampling.stop", "at most 4"),
        (ask(sampling=Sampling(top_k=4)), None, "sampling.top_k", "vllm_native"),
        (ask(output=Output(json_object=True)), None, "output.json_object", "openai_chat"),
        (ask(replay=Replay((1,))), None, "replay.token_ids", "vllm_native"),
        (ask(input=Input(messages=(text_message("system", "x"),))), None, "input.messages.system", "openai_chat"),
        (ask(options={"guided_json": {}}), None, "options.guided_json", "output.json_schema"),
        (ask(options={"min_p": 0.1}), None, "options.min_p", "servers ignore unknown ones"),
    ],
)
def test_what_the_wire_cannot_do_is_refused_with_a_way_out(
    request_: Request, facts: Facts | None, leaf: str, reason: str
) -> None:
    assert reason in refusals(request_, facts)[leaf]


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
