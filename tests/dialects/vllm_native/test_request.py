"""vllm_native: golden bodies, and every recorded reply lifted to the raw JSON's own values or refused."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from dialects import wires
from logproof.dialects.lower import lower
from logproof.dialects.vllm_native import VLLMNative
from logproof.errors import BadReply, LogproofError, MissingChannel, OutputContractError, RequestRefused
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


def body(request: Request, facts: Facts | None = None) -> Any:
    return json.loads(lower(request, DIALECT, facts or Facts()).wire.body)


def ask(**groups: object) -> Request:
    return msgspec.structs.replace(Request("m", Input(text="Hi"), sampling=Sampling(max_tokens=4)), **groups)


def refusals(request: Request, facts: Facts | None = None) -> dict[str, str]:
    with pytest.raises(RequestRefused) as caught:
        lower(request, DIALECT, facts or Facts())
    return dict(caught.value.refusals)


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
