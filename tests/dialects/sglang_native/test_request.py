from __future__ import annotations

import json

import msgspec
import pytest

from dialects.sglang_native.sglang_cases import DIALECT, FACTS, IDS, OWN, TEXT, recorded, request
from logproof.client.client import Lowered
from logproof.dialects.lower import lower
from logproof.dialects.registry import get_dialect
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.message import text_message
from logproof.ir.request import Function, Input, Output, Reasoning, Replay, Request, Session, Tools


def sent(asked: Request, facts: Facts = FACTS) -> dict[str, object]:
    """The body of a request that passes."""
    found: dict[str, object] = json.loads(lower(asked, DIALECT, facts).wire.body)
    return found


def refusal(asked: Request, facts: Facts = FACTS) -> dict[str, str]:
    """{leaf: reason} of a request that is refused before I/O."""
    with pytest.raises(RequestRefused) as caught:
        lower(asked, DIALECT, facts)
    return dict(caught.value.refusals)


def decision(lowered: Lowered, leaf: str) -> tuple[str, str | None]:
    found = next(d for d in lowered.decisions if d.leaf == leaf)
    return found.kind, found.pointer


def test_it_is_listed() -> None:
    assert get_dialect("sglang_native").path(request()) == "/generate"


@pytest.mark.parametrize("name", sorted(OWN))
def test_golden_body(name: str) -> None:
    assert sent(OWN[name]) == recorded(f"own_{name}")["request"]


def test_temperature_and_max_tokens_always_go_out() -> None:
    lowered = lower(request(), DIALECT, FACTS)
    assert json.loads(lowered.wire.body) == {
        "text": TEXT,
        "return_prompt_token_ids": True,
        "sampling_params": {"temperature": 1.0, "max_new_tokens": 128},
    }
    assert {c.pointer for c in lowered.constants} == {
        "/return_prompt_token_ids",
        "/sampling_params/temperature",
        "/sampling_params/max_new_tokens",
    }


@pytest.mark.parametrize(
    ("leaf", "value", "pointer", "wire"),
    [
        ("sampling.temperature", 0.5, "/sampling_params/temperature", 0.5),
        ("sampling.max_tokens", 0, "/sampling_params/max_new_tokens", 0),
        ("sampling.top_p", 0.9, "/sampling_params/top_p", 0.9),
        ("sampling.top_k", -1, "/sampling_params/top_k", -1),
        ("sampling.n", 3, "/sampling_params/n", 3),
        ("sampling.stop", (), "/sampling_params/stop", []),
        ("sampling.stop", ("a", "b"), "/sampling_params/stop", ["a", "b"]),
        ("sampling.frequency_penalty", -2.0, "/sampling_params/frequency_penalty", -2.0),
        ("sampling.presence_penalty", 2.0, "/sampling_params/presence_penalty", 2.0),
        ("sampling.logit_bias", {49151: -1.5}, "/sampling_params/logit_bias", {"49151": -1.5}),
        ("scoring.prompt", 0, "/top_logprobs_num", 0),
        ("scoring.prompt", 4, "/top_logprobs_num", 4),
        ("scoring.sampled", 0, "/top_logprobs_num", 0),
        ("scoring.sampled", 7, "/top_logprobs_num", 7),
        ("scoring.label_ids", (9, 3), "/token_ids_logprob", [9, 3]),
        ("output.json_schema", {"type": "object"}, "/sampling_params/json_schema", '{"type":"object"}'),
        ("output.json_object", True, "/sampling_params/json_schema", '{"type":"object"}'),
        ("output.regex", "[a-z]+", "/sampling_params/regex", "[a-z]+"),
        ("output.choice", ("a.b", "c|(d)"), "/sampling_params/regex", "(a\\.b)|(c\\|\\(d\\))"),
        ("output.grammar", 'root ::= "a"', "/sampling_params/ebnf", 'root ::= "a"'),
        ("schedule.stream", True, "/stream", True),
        ("schedule.stream", False, "/stream", False),
        ("options.min_p", 0.1, "/sampling_params/min_p", 0.1),
        ("options.stop_regex", "[.]", "/sampling_params/stop_regex", "[.]"),
        ("options.stop_token_ids", [2], "/sampling_params/stop_token_ids", [2]),
        ("options.lora_path", "a", "/lora_path", "a"),
    ],
)
def test_sglang_native_sends(leaf: str, value: object, pointer: str, wire: object) -> None:
    lowered = lower(with_leaf(leaf, value), DIALECT, FACTS)
    node: object = json.loads(lowered.wire.body)
    for key in pointer.split("/")[1:]:
        assert isinstance(node, dict)
        node = node[key]
    assert node == wire
    assert decision(lowered, leaf) == ("sent", pointer)


def with_leaf(leaf: str, value: object) -> Request:
    """A request with one leaf set beside its text."""
    group, name = leaf.split(".", 1)
    base = Request("smollm2", Input(text=TEXT))
    if group == "options":
        return msgspec.structs.replace(base, options={name: value})
    return msgspec.structs.replace(base, **{group: msgspec.structs.replace(getattr(base, group), **{name: value})})


@pytest.mark.parametrize(
    ("leaf", "value", "word"),
    [
        ("sampling.top_p", 0.0, "above 0"),
        ("sampling.top_p", 1.5, "up to 1"),
        ("sampling.top_k", 0, "-1 for all"),
        ("sampling.top_k", -2, "-1 for all"),
        ("sampling.seed", 7, "deterministic"),
        ("sampling.stop", tuple("abcdefghijklmnopqrstuvwxyz0123456"), "32"),
        ("sampling.frequency_penalty", 2.5, "-2 to 2"),
        ("sampling.presence_penalty", -2.5, "-2 to 2"),
        ("sampling.logit_bias", {49152: 1.0}, "vocabulary"),
        ("scoring.prompt", 49153, "49152"),
        ("scoring.label_ids", (49152,), "vocabulary"),
        ("replay.token_ids", (1, 2), "scoring.prompt"),
        ("replay.logprobs_mode", "raw", "temperature"),
        ("output.regex", "(", "invalid regular expression"),
        ("output.regex", "", "empty"),
        ("output.grammar", "", "empty"),
        ("output.json_schema", {"type": "nope"}, "invalid JSON Schema"),
        ("reasoning.effort", "high", "openai_chat"),
        ("reasoning.effort", "none", "openai_chat"),
        ("reasoning.budget_tokens", 5, "openai_chat"),
        ("reasoning.summary", "auto", "openai_responses"),
        ("tools.functions", (Function("f"),), "openai_chat"),
        ("tools.hosted", (), "openai_responses"),
        ("tools.choice", "auto", "openai_chat"),
        ("tools.parallel", True, "openai_chat"),
        ("session.previous_response_id", "r", "openai_responses"),
        ("session.store", True, "openai_responses"),
        ("options.sampling_seed", 1, "sampling.seed"),
        ("options.guided_json", {}, "output.json_schema"),
        ("options.banana", 1, "no field"),
        ("options.choice", ["a"], "output.choice"),
        ("options.return_flat_raw_top_logprobs", True, "no field"),
        ("options.stop_token_ids", [49152], "vocabulary"),
        ("options.session_params", {}, "no field"),
    ],
)
def test_sglang_native_refuses(leaf: str, value: object, word: str) -> None:
    assert word in refusal(with_leaf(leaf, value))[leaf]


@pytest.mark.parametrize(
    ("leaf", "value"),
    [("scoring.top_by", "id"), ("scoring.top_by", "text"), ("output.name", "n"), ("output.strict", True)],
)
def test_noop(leaf: str, value: object) -> None:
    assert decision(lower(with_leaf(leaf, value), DIALECT, FACTS), leaf) == ("no-op", None)


def test_a_lax_schema_is_refused() -> None:
    assert "strict" in refusal(request(output=Output(json_schema={}, strict=False)))["output.strict"]


def test_the_model_must_be_the_one_that_is_served() -> None:
    facts = Facts(models=("smollm2",), vocab_size=9)
    assert sent(request(), facts)["text"] == TEXT
    assert "smollm2" in refusal(msgspec.structs.replace(request(), model="gpt"), facts)["model"]


def test_chat_and_suffix_are_refused_with_the_dialect_that_takes_them() -> None:
    chat = Input(messages=(text_message("system", "s"), text_message("user", "Hi")))
    assert "openai_chat" in refusal(request(chat))["input.messages.system"]
    assert "openai_completions" in refusal(request(Input(text="a", suffix="b")))["input.suffix"]


# What ends the server, refused before I/O.


def test_ids_need_a_known_vocabulary() -> None:
    assert "unknown" in refusal(request(Input(token_ids=IDS)), Facts())["input.token_ids"]
    assert "999999" in refusal(request(Input(token_ids=(504, 999999))))["input.token_ids"]
    assert sent(request(Input(token_ids=(0, 49151))))["input_ids"] == [0, 49151]
    stops = msgspec.structs.replace(request(), options={"stop_token_ids": [2], "min_new_tokens": 1})
    assert "unknown" in refusal(stops, Facts())["options.stop_token_ids"]


def test_a_width_above_the_vocabulary_never_goes_out() -> None:
    assert "256" in refusal(request(sampled=257), Facts())["scoring.sampled"]
    assert sent(request(sampled=256), Facts())["top_logprobs_num"] == 256
    assert "100" in refusal(request(sampled=101), Facts(vocab_size=9999, max_logprobs=100))["scoring.sampled"]


def test_only_the_two_harmless_starts_go_out() -> None:
    assert sent(request(prompt=0))["logprob_start_len"] == 0
    assert sent(request(sampled=0))["logprob_start_len"] == -1


def test_ids_that_do_not_fit_the_context_are_refused() -> None:
    long = Input(token_ids=(1,) * 2000)
    assert "2048" in refusal(request(long, max_tokens=100))["input.token_ids"]
    assert sent(request(long, max_tokens=48))


def test_a_seed_goes_out_where_the_server_is_deterministic() -> None:
    facts = Facts(deterministic=True)
    params = sent(request(seed=7), facts)["sampling_params"]
    assert isinstance(params, dict)
    assert params["sampling_seed"] == 7
    assert "64-bit" in refusal(request(seed=2**63), facts)["sampling.seed"]


def test_nothing_is_asked_that_zero_tokens_cannot_give() -> None:
    assert "1 token" in refusal(request(max_tokens=0, label_ids=(1,)))["scoring.label_ids"]
    assert "1 token" in refusal(request(max_tokens=0, output=Output(json_object=True)))["output.json_object"]


def test_processors_that_a_server_may_prefer_are_pinned_when_samples_are_scored() -> None:
    params = sent(msgspec.structs.replace(request(sampled=0), options={"repetition_penalty": 1.2}))["sampling_params"]
    assert isinstance(params, dict)
    assert params["repetition_penalty"] == 1.2
    assert (params["frequency_penalty"], params["presence_penalty"], params["min_new_tokens"]) == (0.0, 0.0, 0)
    assert "repetition_penalty" not in str(sent(request(prompt=0)))


def test_replay_and_reasoning_are_refused_together() -> None:
    asked = msgspec.structs.replace(
        request(),
        replay=Replay(token_ids=(1,)),
        reasoning=Reasoning(effort="low"),
        tools=Tools(parallel=True),
        session=Session(store=False),
    )
    assert set(refusal(asked)) == {"replay.token_ids", "reasoning.effort", "tools.parallel", "session.store"}
