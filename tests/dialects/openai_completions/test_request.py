"""openai_completions: golden bodies, and what the wire refuses."""

from __future__ import annotations

import json

import pytest

from dialects.openai_completions.completions_cases import DIALECT, ask, body, refusals
from logproof.dialects.lower import lower
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
