"""What openai_chat sends, leaves out and refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.openai_chat.chat_cases import (
    ANY,
    DIALECT,
    HI,
    LLAMA,
    OPENAI,
    SGLANG,
    STOCK,
    VLLM,
    ask,
    extra,
    lowered,
    refusal,
    sent,
)
from logproof.dialects.registry import get_dialect
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
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

SCHEMA: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}}
F = Function("f", "does f", {"type": "object"})
ALL = {"vllm": VLLM, "sglang": SGLANG, "openai": OPENAI, "llama": LLAMA, "any": ANY}

Case = tuple[dict[str, Facts], dict[str, msgspec.Struct], dict[str, Any]]


def on(*names: str) -> dict[str, Facts]:
    return {n: ALL[n] for n in names or ALL}


def test_it_is_listed() -> None:
    assert get_dialect("openai_chat").path(ask()) == "/v1/chat/completions"


def test_golden_body_of_a_plain_request() -> None:
    assert sent(ask(), OPENAI) == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert sent(ask(), VLLM) == {**sent(ask(), OPENAI), "return_token_ids": True}
    assert [c.pointer for c in lowered(ask(), VLLM).constants] == ["/return_token_ids"]


SENT: list[Case] = [
    (on(), {"sampling": Sampling(temperature=0.5)}, {"temperature": 0.5}),
    (on(), {"sampling": Sampling(temperature=0.0)}, {"temperature": 0.0}),
    (on(), {"sampling": Sampling(top_p=0.9)}, {"top_p": 0.9}),
    (on("vllm", "sglang"), {"sampling": Sampling(top_k=5)}, {"top_k": 5}),
    (on("vllm", "openai", "any"), {"sampling": Sampling(seed=7)}, {"seed": 7}),
    (on(), {"sampling": Sampling(stop=("x", "\n"))}, {"stop": ["x", "\n"]}),
    (on(), {"sampling": Sampling(stop=())}, {}),
    (on("vllm", "sglang", "openai", "any"), {"sampling": Sampling(n=2)}, {"n": 2}),
    (on("llama"), {"sampling": Sampling(n=1)}, {"n": 1}),
    (on(), {"sampling": Sampling(frequency_penalty=0.5)}, {"frequency_penalty": 0.5}),
    (on(), {"sampling": Sampling(presence_penalty=-2.0)}, {"presence_penalty": -2.0}),
    (on(), {"sampling": Sampling(logit_bias={5: 2.0})}, {"logit_bias": {"5": 2.0}}),
    (on("vllm"), {"sampling": Sampling(logit_bias={5: 500.0})}, {"logit_bias": {"5": 500.0}}),
    (on("vllm", "sglang", "openai", "any"), {"sampling": Sampling(max_tokens=3)}, {"max_completion_tokens": 3}),
    (on("llama"), {"sampling": Sampling(max_tokens=3)}, {"max_tokens": 3}),
    (on("sglang", "openai", "any", "llama"), {"scoring": Scoring(sampled=0)}, {"logprobs": True}),
    (on("openai", "any"), {"scoring": Scoring(sampled=5)}, {"logprobs": True, "top_logprobs": 6}),
    (on("openai", "any"), {"scoring": Scoring(sampled=20)}, {"logprobs": True, "top_logprobs": 20}),
    (
        on("vllm"),
        {"scoring": Scoring(sampled=5)},
        {"logprobs": True, "top_logprobs": 6, "return_tokens_as_token_ids": True},
    ),
    (
        on("vllm"),
        {"scoring": Scoring(sampled=5, top_by="id")},
        {"logprobs": True, "top_logprobs": 6, "return_tokens_as_token_ids": True},
    ),
    (on("vllm"), {"scoring": Scoring(sampled=5, top_by="text")}, {"logprobs": True, "top_logprobs": 6}),
    (
        on("vllm"),
        {"scoring": Scoring(label_ids=(4, 5))},
        {"logprobs": True, "logprob_token_ids": [4, 5], "return_tokens_as_token_ids": True},
    ),
    (
        on("vllm"),
        {"scoring": Scoring(label_ids=(4, 5), sampled=0)},
        {"logprobs": True, "logprob_token_ids": [4, 5], "return_tokens_as_token_ids": True},
    ),
    (on("vllm"), {"scoring": Scoring(prompt=3)}, {"prompt_logprobs": 3}),
    (on(), {"scoring": Scoring(top_by="text")}, {}),
    (on("vllm"), {"replay": Replay(token_ids=(1, 2))}, {"enforced_token_ids": [1, 2]}),
    (on("vllm"), {"replay": Replay(logprobs_mode="processed")}, {"logprobs_mode": "processed_logprobs"}),
    (
        on(),
        {"output": Output(json_schema=SCHEMA)},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}},
    ),
    (
        on(),
        {"output": Output(json_schema=SCHEMA, name="a-b", strict=True)},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a-b", "schema": SCHEMA, "strict": True}}},
    ),
    (on(), {"output": Output(json_object=True)}, {"response_format": {"type": "json_object"}}),
    (on(), {"output": Output(json_object=True, name="x", strict=True)}, {"response_format": {"type": "json_object"}}),
    (on("vllm"), {"output": Output(regex="a+")}, {"structured_outputs": {"regex": "a+"}}),
    (on("vllm"), {"output": Output(choice=("a", "b"))}, {"structured_outputs": {"choice": ["a", "b"]}}),
    (on("vllm"), {"output": Output(grammar="g")}, {"structured_outputs": {"grammar": "g"}}),
    (on("sglang"), {"output": Output(regex="a+")}, {"regex": "a+"}),
    (on("sglang"), {"output": Output(grammar="g")}, {"ebnf": "g"}),
    (on("vllm", "sglang", "openai", "any"), {"reasoning": Reasoning(effort="high")}, {"reasoning_effort": "high"}),
    (on("vllm"), {"reasoning": Reasoning(budget_tokens=9)}, {"thinking_token_budget": 9}),
    (
        on(),
        {"tools": Tools(functions=(F, Function("g", strict=True)), choice="auto", parallel=False)},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}},
                },
                {"type": "function", "function": {"name": "g", "strict": True}},
            ],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
        },
    ),
    (
        on(),
        {"tools": Tools(functions=(Function("f"),), choice="function:f")},
        {
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
    ),
    (on(), {"tools": Tools(choice="none", parallel=True)}, {}),
    (
        on("openai"),
        {"tools": Tools(hosted=(Hosted("web_search", {"search_context_size": "low"}),))},
        {"web_search_options": {"search_context_size": "low"}},
    ),
    (on("openai"), {"session": Session(store=True)}, {"store": True}),
    (on("vllm", "sglang", "any"), {"session": Session(store=False)}, {}),
    (
        on("vllm", "openai", "any"),
        {"schedule": Schedule(stream=True)},
        {"stream": True, "stream_options": {"include_usage": True}},
    ),
    (on(), {"schedule": Schedule(stream=False)}, {"stream": False}),
]


@pytest.mark.parametrize(("endpoints", "groups", "body"), SENT)
def test_openai_chat_sends(
    endpoints: dict[str, Facts], groups: dict[str, msgspec.Struct], body: dict[str, Any]
) -> None:
    for name, facts in endpoints.items():
        assert extra(ask(**groups), facts) == body, name


def test_streams_of_sglang_carry_no_ids() -> None:
    assert "return_token_ids" in sent(ask(), SGLANG)
    assert "return_token_ids" not in sent(ask(schedule=Schedule(stream=True)), SGLANG)


def test_scored_replies_of_sglang_go_out_unstreamed() -> None:
    """Its streams lose the logprob of the end token."""
    request = ask(scoring=Scoring(sampled=0), schedule=Schedule(stream=True))
    assert not lowered(request, SGLANG).wire.stream
    assert lowered(request, VLLM).wire.stream
    assert lowered(ask(schedule=Schedule(stream=True)), SGLANG).wire.stream


def test_a_scored_prompt_goes_out_unstreamed() -> None:
    request = ask(scoring=Scoring(prompt=0), schedule=Schedule(stream=True))
    assert "stream" not in sent(request, VLLM)
    assert not lowered(request, VLLM).wire.stream
    assert lowered(ask(schedule=Schedule(stream=True)), VLLM).wire.stream


REFUSED: list[tuple[dict[str, Facts], dict[str, Any], str, str]] = [
    (on(), {"input": Input(text="a", suffix="b")}, "input.text", "set input.messages"),
    (on(), {"input": Input(text="a", suffix="b")}, "input.suffix", "openai_completions"),
    (on(), {"input": Input(token_ids=(1,))}, "input.token_ids", "vllm_native or sglang_native"),
    (on(), {"sampling": Sampling(max_tokens=0)}, "sampling.max_tokens", "ask for 1"),
    (on("vllm", "openai", "any"), {"sampling": Sampling(temperature=2.5)}, "sampling.temperature", "at most 2"),
    (on(), {"sampling": Sampling(frequency_penalty=2.5)}, "sampling.frequency_penalty", "between -2 and 2"),
    (on(), {"sampling": Sampling(presence_penalty=-2.5)}, "sampling.presence_penalty", "between -2 and 2"),
    (on("openai", "any", "llama"), {"sampling": Sampling(top_k=5)}, "sampling.top_k", "not known to read it"),
    (on("vllm"), {"sampling": Sampling(seed=-1)}, "sampling.seed", "no seed at all"),
    (on("sglang"), {"sampling": Sampling(seed=7)}, "sampling.seed", "--enable-deterministic-inference"),
    (on("vllm", "openai"), {"sampling": Sampling(stop=tuple("abcde"))}, "sampling.stop", "more stop strings"),
    (on("vllm"), {"sampling": Sampling(n=2, temperature=0.0)}, "sampling.n", "above 0"),
    (on("llama"), {"sampling": Sampling(n=2)}, "sampling.n", "one choice"),
    (on("openai", "any"), {"sampling": Sampling(logit_bias={1: 101.0})}, "sampling.logit_bias", "-100 and 100"),
    (on("openai", "any", "sglang"), {"scoring": Scoring(prompt=0)}, "scoring.prompt", "vllm_native"),
    (on("vllm"), {"scoring": Scoring(prompt=21)}, "scoring.prompt", "at most 20"),
    (on("vllm"), {"scoring": Scoring(sampled=20)}, "scoring.sampled", "takes 21"),
    (on("openai"), {"scoring": Scoring(sampled=21)}, "scoring.sampled", "at most 20"),
    (on("openai", "sglang", "any"), {"scoring": Scoring(label_ids=(1,))}, "scoring.label_ids", "logprob_token_ids"),
    (on("vllm"), {"scoring": Scoring(label_ids=(1,), prompt=0)}, "scoring.label_ids", "two requests"),
    (on("vllm"), {"scoring": Scoring(label_ids=(1,), sampled=2)}, "scoring.sampled", "replace the top-k"),
    (on("vllm"), {"scoring": Scoring(label_ids=(1,), top_by="text")}, "scoring.top_by", "keyed by id"),
    (on("openai", "any"), {"scoring": Scoring(sampled=1, top_by="id")}, "scoring.top_by", "return_tokens_as_token_ids"),
    (on("openai", "sglang", "any"), {"replay": Replay(token_ids=(1,))}, "replay.token_ids", "no working logproof"),
    (on("openai", "any"), {"replay": Replay(logprobs_mode="raw")}, "replay.logprobs_mode", "no working logproof"),
    (on("vllm"), {"replay": Replay(token_ids=(1,)), "scoring": Scoring(prompt=0)}, "replay.token_ids", "two requests"),
    (on("vllm"), {"replay": Replay(token_ids=(1,)), "sampling": Sampling(n=2)}, "replay.token_ids", "one choice"),
    (on(), {"output": Output(json_schema={"type": "x"})}, "output.json_schema", "invalid JSON Schema"),
    (on(), {"output": Output(json_schema=SCHEMA, name="a b")}, "output.name", "up to 64"),
    (on("vllm"), {"output": Output(json_schema=SCHEMA, strict=False)}, "output.strict", "always holds"),
    (on("openai", "any"), {"output": Output(regex="a+")}, "output.regex", "output.json_schema"),
    (on("vllm"), {"output": Output(regex="(")}, "output.regex", "invalid regular expression"),
    (on("openai", "sglang"), {"output": Output(choice=("a",))}, "output.choice", "output.json_schema"),
    (on("openai", "any"), {"output": Output(grammar="g")}, "output.grammar", "output.json_schema"),
    (on("llama"), {"reasoning": Reasoning(effort="low")}, "reasoning.effort", "ignores it"),
    (on("openai", "sglang"), {"reasoning": Reasoning(budget_tokens=9)}, "reasoning.budget_tokens", "reasoning.effort"),
    (on(), {"reasoning": Reasoning(summary="auto")}, "reasoning.summary", "openai_responses"),
    (on(), {"tools": Tools(functions=(F, F))}, "tools.functions", "share a name"),
    (on(), {"tools": Tools(functions=(F,), choice="function:g")}, "tools.choice", "no such function: g"),
    (on(), {"tools": Tools(functions=(F,), choice="any")}, "tools.choice", "auto, none, required"),
    (on(), {"tools": Tools(choice="auto")}, "tools.choice", "no functions"),
    (on(), {"tools": Tools(parallel=True)}, "tools.parallel", "no functions"),
    (on("vllm", "any"), {"tools": Tools(hosted=(Hosted("web_search"),))}, "tools.hosted", "openai_responses"),
    (on("openai"), {"tools": Tools(hosted=(Hosted("file_search"),))}, "tools.hosted", "openai_responses"),
    (on(), {"session": Session(previous_response_id="r")}, "session.previous_response_id", "openai_responses"),
    (on("vllm", "sglang", "any"), {"session": Session(store=True)}, "session.store", "openai_responses"),
    (on("vllm"), {"options": {"echo": True}}, "options.echo", "input.messages"),
    (on("vllm"), {"options": {"guided_json": {}}}, "options.guided_json", "output.json_schema"),
    (on("openai", "any"), {"options": {"min_p": 0.1}}, "options.min_p", "no field that this endpoint is known to read"),
    (on("vllm"), {"options": {"verbosity": "low"}}, "options.verbosity", "no field"),
]


@pytest.mark.parametrize(("endpoints", "groups", "leaf", "reason"), REFUSED)
def test_openai_chat_refuses(endpoints: dict[str, Facts], groups: dict[str, Any], leaf: str, reason: str) -> None:
    for name, facts in endpoints.items():
        assert reason in refusal(ask(**groups), facts)[leaf], name


def test_a_stock_vllm_replays_nothing() -> None:
    assert set(refusal(ask(replay=Replay(token_ids=(1,), logprobs_mode="raw")), STOCK)) == {
        "replay.token_ids",
        "replay.logprobs_mode",
    }
    blind = msgspec.structs.replace(VLLM, fields={})
    assert "return_token_ids" in refusal(ask(replay=Replay(token_ids=(1,))), blind)["replay.token_ids"]


def test_options_are_top_level_fields_of_the_endpoint() -> None:
    assert extra(ask(options={"min_p": 0.1}), VLLM) == {"min_p": 0.1}
    assert extra(ask(options={"service_tier": "flex"}), OPENAI) == {"service_tier": "flex"}


def test_a_dropped_leaf_leaves_the_body() -> None:
    request = ask(sampling=Sampling(top_k=5), output=Output(json_schema={"type": "x"}, name="n"))
    assert sent(request, OPENAI, "sampling.top_k", "output.json_schema") == sent(ask(), OPENAI)


@given(
    st.builds(
        Sampling,
        max_tokens=st.none() | st.integers(0, 5000),
        temperature=st.none() | st.floats(0, 3),
        top_p=st.none() | st.floats(0, 1),
        top_k=st.none() | st.integers(-1, 50),
        seed=st.none() | st.integers(-5, 2**40),
        stop=st.none() | st.lists(st.text(min_size=1), max_size=6).map(tuple),
        n=st.none() | st.integers(1, 5),
        frequency_penalty=st.none() | st.floats(-3, 3),
        presence_penalty=st.none() | st.floats(-3, 3),
        logit_bias=st.none() | st.dictionaries(st.integers(0, 99), st.floats(-200, 200), max_size=3),
    ),
    st.sampled_from(sorted(ALL)),
)
def test_lowering_decides_every_sampling_value(sampling: Sampling, name: str) -> None:
    request = Request("m", Input(messages=(HI,)), sampling=sampling)
    try:
        kinds: set[str] = {d.kind for d in lowered(request, ALL[name]).decisions}
    except RequestRefused as refused:
        kinds = {"undecided" for _, reason in refused.refusals if "no decision" in reason}
    assert kinds <= {"sent", "no-op"}


def test_its_channels_are_named_as_the_others_name_them() -> None:
    assert set(DIALECT.channels) >= set(get_dialect("vllm_native").channels)
