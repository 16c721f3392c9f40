"""vllm_native: golden bodies, and what the wire refuses."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from logproof.dialects.lower import lower
from logproof.dialects.vllm_native import VLLMNative
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts, Plugin
from logproof.ir.message import text_message
from logproof.ir.request import (
    Function,
    Hosted,
    Input,
    Output,
    Reasoning,
    Replay,
    Request,
    Sampling,
    Schedule,
    Scoring,
    Session,
    Tools,
)

DIALECT = VLLMNative()
FOLDER = "vllm_native"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
LISTED = Facts(max_logprobs=100, fields={"/v1/completions": ("logprob_token_ids", "min_p", "bad_words", "priority")})
PLUGIN = Facts(plugin=Plugin("0.1.0", enforced_replay=True, logprobs_mode=True))


def body(request: Request, facts: Facts | None = None) -> Any:
    return json.loads(lower(request, DIALECT, facts or Facts()).wire.body)


def ask(**groups: object) -> Request:
    return msgspec.structs.replace(Request("m", Input(text="Hi"), sampling=Sampling(max_tokens=4)), **groups)


def refusals(request: Request, facts: Facts | None = None) -> dict[str, str]:
    with pytest.raises(RequestRefused) as caught:
        lower(request, DIALECT, facts or Facts())
    return dict(caught.value.refusals)


def test_plain_golden_body() -> None:
    assert body(ask()) == {"model": "m", "prompt": "Hi", "max_tokens": 4, "return_token_ids": True}


def test_full_golden_body() -> None:
    request = Request(
        "m",
        Input(token_ids=(1, 2)),
        sampling=Sampling(8, 0.5, 0.9, 40, 7, ("x", "y"), 2, 0.1, 0.2, {5: -1.5}),
        scoring=Scoring(prompt=3, sampled=5),
        output=Output(json_schema=SCHEMA, name="answer", strict=True),
        schedule=Schedule(stream=True),
        options={"min_p": 0.1, "stop_token_ids": [3], "repetition_penalty": 1.1},
    )
    assert body(request) == {
        "model": "m",
        "prompt": [1, 2],
        "max_tokens": 8,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 7,
        "stop": ["x", "y"],
        "n": 2,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "logit_bias": {"5": -1.5},
        "prompt_logprobs": 3,
        "logprobs": 5,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "structured_outputs": {"json": SCHEMA},
        "min_p": 0.1,
        "stop_token_ids": [3],
        "repetition_penalty": 1.1,
    }
    lowered = lower(request, DIALECT, Facts())
    kinds = {d.leaf: (d.kind, d.reason) for d in lowered.decisions}
    assert not lowered.wire.stream
    assert kinds["schedule.stream"] == ("no-op", "sent unstreamed: streamed choices carry no prompt_logprobs")
    assert kinds["output.name"][0] == kinds["output.strict"][0] == "no-op"


@pytest.mark.parametrize(
    ("output", "sent"),
    [
        (Output(json_schema=SCHEMA), {"json": SCHEMA}),
        (Output(json_object=True), {"json_object": True}),
        (Output(regex="[a-z]+"), {"regex": "[a-z]+"}),
        (Output(choice=("yes", "no")), {"choice": ["yes", "no"]}),
        (Output(grammar='root ::= "a"'), {"grammar": 'root ::= "a"'}),
    ],
)
def test_each_kind_of_structure_has_its_key(output: Output, sent: dict[str, object]) -> None:
    assert body(ask(output=output))["structured_outputs"] == sent


def test_label_scores_go_beside_logprobs_of_width_0_by_id() -> None:
    request = ask(scoring=Scoring(label_ids=(5, 6)))
    assert body(request, LISTED) == {
        "model": "m",
        "prompt": "Hi",
        "max_tokens": 4,
        "logprob_token_ids": [5, 6],
        "logprobs": 0,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    assert body(ask(scoring=Scoring(label_ids=(5,), sampled=0, top_by="id")), LISTED)["logprobs"] == 0


def test_text_keys_are_asked_by_leaving_the_flag_out() -> None:
    assert "return_tokens_as_token_ids" not in body(ask(scoring=Scoring(sampled=2, top_by="text")))
    assert body(ask(scoring=Scoring(sampled=2, top_by="id")))["return_tokens_as_token_ids"] is True
    assert "return_tokens_as_token_ids" not in body(ask(scoring=Scoring(prompt=2, top_by="id")))


def test_replay_goes_out_only_to_a_working_plugin() -> None:
    request = ask(replay=Replay((3, 4), "processed"), scoring=Scoring(sampled=0))
    sent = body(request, PLUGIN)
    assert (sent["enforced_token_ids"], sent["logprobs_mode"]) == ([3, 4], "processed_logprobs")
    assert set(refusals(request)) == {"replay.token_ids", "replay.logprobs_mode"}
    assert "go together" in refusals(ask(replay=Replay((3,)), scoring=Scoring(prompt=0)), PLUGIN)["replay.token_ids"]
    assert "one choice" in refusals(ask(replay=Replay((3,)), sampling=Sampling(n=2)), PLUGIN)["replay.token_ids"]


@pytest.mark.parametrize(
    ("request_", "facts", "leaf", "reason"),
    [
        (ask(sampling=Sampling(max_tokens=0)), None, "sampling.max_tokens", "max_tokens 1"),
        (ask(sampling=Sampling(seed=-1)), None, "sampling.seed", "no seed"),
        (ask(sampling=Sampling(stop=("a", "b", "c", "d", "e"))), None, "sampling.stop", "at most 4"),
        (ask(sampling=Sampling(n=2, temperature=0.0)), None, "sampling.n", "temperature"),
        (ask(input=Input(text="a", suffix="b")), None, "input.suffix", "400"),
        (ask(output=Output(json_schema=SCHEMA, strict=False)), None, "output.strict", "always strict"),
        (ask(output=Output(json_schema={"type": "nope"})), None, "output.json_schema", "invalid JSON Schema"),
        (ask(output=Output(regex="(")), None, "output.regex", "invalid regular expression"),
        (ask(scoring=Scoring(prompt=101)), LISTED, "scoring.prompt", "at most 100"),
        (ask(scoring=Scoring(sampled=101)), LISTED, "scoring.sampled", "at most 100"),
        (ask(scoring=Scoring(label_ids=(1,))), None, "scoring.label_ids", "does not list logprob_token_ids"),
        (ask(scoring=Scoring(label_ids=(1,), prompt=0)), LISTED, "scoring.label_ids", "two requests"),
        (ask(scoring=Scoring(label_ids=(1,), sampled=3)), LISTED, "scoring.sampled", "ask 0"),
        (ask(scoring=Scoring(label_ids=(1,), top_by="text")), LISTED, "scoring.top_by", "keyed by id"),
        (ask(tools=Tools(functions=(Function("f"),), choice="auto")), None, "tools.functions", "openai_chat"),
        (ask(tools=Tools(hosted=(Hosted("web_search"),))), None, "tools.hosted", "openai_responses"),
        (ask(reasoning=Reasoning(effort="low", budget_tokens=5)), None, "reasoning.effort", "openai_chat"),
        (ask(session=Session(previous_response_id="r", store=True)), None, "session.store", "no session"),
        (ask(input=Input(messages=(text_message("system", "x"),))), None, "input.messages.system", "openai_chat"),
    ],
)
def test_what_the_wire_cannot_do_is_refused_with_a_way_out(
    request_: Request, facts: Facts | None, leaf: str, reason: str
) -> None:
    assert reason in refusals(request_, facts)[leaf]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("guided_json", {}, "use output.json_schema"),
        ("guided_regex", "a", "output.regex"),
        ("temperature", 0.1, "sampling.temperature"),
        ("prompt_logprobs", 1, "scoring.prompt"),
        ("enforced_tokens", [1], "replay.token_ids"),
        ("extra_body", {}, "options"),
        ("repetition_penalti", 1.0, "nearest: repetition_penalty"),
        ("stop_token_id", 1, "nearest: stop_token_ids"),
        ("frobnicate", 1, "servers ignore unknown ones"),
        ("min_p", None, "no field"),
    ],
)
def test_an_option_is_refused_with_the_nearest_field(name: str, value: object, reason: str) -> None:
    assert reason in refusals(ask(options={name: value}))[f"options.{name}"]


def test_options_that_the_server_lists_go_through_at_the_top() -> None:
    assert body(ask(options={"bad_words": ["x"], "min_p": 0.2}), LISTED) == {
        "model": "m",
        "prompt": "Hi",
        "max_tokens": 4,
        "return_token_ids": True,
        "bad_words": ["x"],
        "min_p": 0.2,
    }
    assert "options.bad_words" in refusals(ask(options={"bad_words": ["x"]}))
