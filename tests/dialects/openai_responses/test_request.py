"""What openai_responses sends, leaves out and refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.openai_responses.responses_cases import ANY, HI, OPENAI, SGLANG, VLLM, ask, extra, lowered, refusal, sent
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
F = Function("f", "does f", {"type": "object"}, True)
LOGPROBS = ["message.output_text.logprobs"]
ALL = {"vllm": VLLM, "sglang": SGLANG, "openai": OPENAI, "any": ANY}

Case = tuple[dict[str, Facts], dict[str, Any], dict[str, Any]]


def on(*names: str) -> dict[str, Facts]:
    return {n: ALL[n] for n in names or ALL}


def test_it_is_listed() -> None:
    assert get_dialect("openai_responses").path(ask()) == "/v1/responses"


def test_golden_body_of_a_plain_request() -> None:
    assert sent(ask(), OPENAI) == {
        "model": "m",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "store": False,
    }
    assert sent(ask(), VLLM) == {**sent(ask(), OPENAI), "enable_response_messages": True}


SENT: list[Case] = [
    (on(), {"sampling": Sampling(temperature=0.5, top_p=0.9)}, {"temperature": 0.5, "top_p": 0.9}),
    (on(), {"sampling": Sampling(max_tokens=3)}, {"max_output_tokens": 3}),
    (on(), {"sampling": Sampling(n=1, stop=())}, {}),
    (on("vllm", "sglang"), {"sampling": Sampling(top_k=5, stop=("x",))}, {"top_k": 5, "stop": ["x"]}),
    (
        on("vllm"),
        {"sampling": Sampling(seed=7, frequency_penalty=0.5, presence_penalty=1.0, logit_bias={5: 2.0})},
        {"seed": 7, "frequency_penalty": 0.5, "presence_penalty": 1.0, "logit_bias": {"5": 2.0}},
    ),
    (on(), {"scoring": Scoring(sampled=0)}, {"include": LOGPROBS}),
    (on(), {"scoring": Scoring(sampled=0, top_by="id")}, {"include": LOGPROBS}),
    (on(), {"scoring": Scoring(sampled=5)}, {"include": LOGPROBS, "top_logprobs": 6}),
    (on(), {"scoring": Scoring(sampled=5, top_by="text")}, {"include": LOGPROBS, "top_logprobs": 6}),
    (on("openai", "any"), {"scoring": Scoring(sampled=20)}, {"include": LOGPROBS, "top_logprobs": 20}),
    (on(), {"scoring": Scoring(top_by="id")}, {}),
    (
        on(),
        {"output": Output(json_schema=SCHEMA)},
        {"text": {"format": {"type": "json_schema", "name": "output", "schema": SCHEMA}}},
    ),
    (
        on(),
        {"output": Output(json_schema=SCHEMA, name="a-b", strict=True)},
        {"text": {"format": {"type": "json_schema", "name": "a-b", "schema": SCHEMA, "strict": True}}},
    ),
    (on(), {"output": Output(json_object=True, name="n", strict=True)}, {"text": {"format": {"type": "json_object"}}}),
    (on("vllm"), {"output": Output(regex="a+")}, {"structured_outputs": {"regex": "a+"}}),
    (on("vllm"), {"output": Output(choice=("a", "b"))}, {"structured_outputs": {"choice": ["a", "b"]}}),
    (on("vllm"), {"output": Output(grammar="g")}, {"structured_outputs": {"grammar": "g"}}),
    (on(), {"reasoning": Reasoning(effort="high")}, {"reasoning": {"effort": "high"}}),
    (
        on("openai", "any"),
        {"reasoning": Reasoning(effort="low", summary="concise")},
        {"reasoning": {"effort": "low", "summary": "concise"}},
    ),
    (
        on(),
        {"tools": Tools(functions=(F, Function("g")), choice="required", parallel=False)},
        {
            "tools": [
                {
                    "type": "function",
                    "name": "f",
                    "description": "does f",
                    "parameters": {"type": "object"},
                    "strict": True,
                },
                {"type": "function", "name": "g", "parameters": None, "strict": None},
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ),
    (
        on(),
        {"tools": Tools(functions=(Function("g"),), choice="function:g")},
        {
            "tools": [{"type": "function", "name": "g", "parameters": None, "strict": None}],
            "tool_choice": {"type": "function", "name": "g"},
        },
    ),
    (on(), {"tools": Tools(choice="none", parallel=True)}, {}),
    (
        on("openai"),
        {"tools": Tools(functions=(Function("g"),), hosted=(Hosted("file_search", {"vector_store_ids": ["v"]}),))},
        {
            "tools": [
                {"type": "function", "name": "g", "parameters": None, "strict": None},
                {"type": "file_search", "vector_store_ids": ["v"]},
            ]
        },
    ),
    (
        on("openai"),
        {"tools": Tools(hosted=(Hosted("web_search"),), choice="auto")},
        {"tools": [{"type": "web_search"}], "tool_choice": "auto"},
    ),
    (on("openai", "sglang", "any"), {"session": Session(store=True)}, {"store": True}),
    (on(), {"session": Session(store=False)}, {}),
    (on(), {"schedule": Schedule(stream=True)}, {"stream": True}),
    (on(), {"schedule": Schedule(stream=False)}, {"stream": False}),
    (on("vllm", "sglang"), {"options": {"min_p": 0.1}}, {"min_p": 0.1}),
    (
        on("openai"),
        {"options": {"include": ["reasoning.encrypted_content"]}},
        {"include": ["reasoning.encrypted_content"]},
    ),
]


@pytest.mark.parametrize(("endpoints", "groups", "body"), SENT)
def test_openai_responses_sends(endpoints: dict[str, Facts], groups: dict[str, Any], body: dict[str, Any]) -> None:
    for name, facts in endpoints.items():
        assert extra(ask(**groups), facts) == body, name


def test_a_continued_session_is_left_to_the_server_s_default() -> None:
    body = sent(ask(session=Session(previous_response_id="resp_1")), OPENAI)
    assert body["previous_response_id"] == "resp_1"
    assert "store" not in body


def test_a_scored_reply_of_an_engine_goes_out_unstreamed() -> None:
    request = ask(scoring=Scoring(sampled=0), schedule=Schedule(stream=True))
    for facts in (VLLM, SGLANG):
        assert not lowered(request, facts).wire.stream
        assert "stream" not in sent(request, facts)
    assert lowered(request, OPENAI).wire.stream
    assert sent(ask(scoring=Scoring(sampled=0), schedule=Schedule(stream=False)), VLLM)["stream"] is False


REFUSED: list[tuple[dict[str, Facts], dict[str, Any], str, str]] = [
    (on(), {"input": Input(text="a", suffix="b")}, "input.text", "set input.messages"),
    (on(), {"input": Input(text="a", suffix="b")}, "input.suffix", "openai_completions"),
    (on(), {"input": Input(token_ids=(1,))}, "input.token_ids", "vllm_native or sglang_native"),
    *[
        (on("openai", "any"), {"sampling": sampling}, f"sampling.{leaf}", "not known to read it")
        for leaf, sampling in (
            ("top_k", Sampling(top_k=5)),
            ("seed", Sampling(seed=5)),
            ("stop", Sampling(stop=("x",))),
            ("frequency_penalty", Sampling(frequency_penalty=0.5)),
            ("presence_penalty", Sampling(presence_penalty=0.5)),
            ("logit_bias", Sampling(logit_bias={1: 1.0})),
        )
    ],
    (on("sglang"), {"sampling": Sampling(seed=5)}, "sampling.seed", "not known to read it"),
    (on(), {"sampling": Sampling(max_tokens=0)}, "sampling.max_tokens", "ask for 1"),
    (on("vllm", "openai"), {"sampling": Sampling(temperature=2.5)}, "sampling.temperature", "at most 2"),
    (on("vllm"), {"sampling": Sampling(frequency_penalty=2.5)}, "sampling.frequency_penalty", "between -2 and 2"),
    (on("vllm"), {"sampling": Sampling(presence_penalty=-3.0)}, "sampling.presence_penalty", "between -2 and 2"),
    (on("vllm"), {"sampling": Sampling(seed=-1)}, "sampling.seed", "no seed at all"),
    (on("vllm"), {"sampling": Sampling(stop=tuple("abcde"))}, "sampling.stop", "more than 4"),
    (on(), {"sampling": Sampling(n=2)}, "sampling.n", "openai_chat"),
    (on(), {"scoring": Scoring(prompt=0)}, "scoring.prompt", "openai_chat at vLLM"),
    (on(), {"scoring": Scoring(label_ids=(1,))}, "scoring.label_ids", "openai_chat at vLLM"),
    (on("vllm"), {"scoring": Scoring(sampled=20)}, "scoring.sampled", "takes 21"),
    (on("openai"), {"scoring": Scoring(sampled=21)}, "scoring.sampled", "at most 20"),
    (on(), {"scoring": Scoring(sampled=1, top_by="id")}, "scoring.top_by", "keys by text"),
    (on(), {"replay": Replay(token_ids=(1,))}, "replay.token_ids", "vllm_native or openai_chat"),
    (on(), {"replay": Replay(logprobs_mode="raw")}, "replay.logprobs_mode", "vllm_native or openai_chat"),
    (on(), {"output": Output(json_schema={"type": "x"})}, "output.json_schema", "invalid JSON Schema"),
    (on(), {"output": Output(json_schema=SCHEMA, name="a b")}, "output.name", "up to 64"),
    (on("vllm"), {"output": Output(json_schema=SCHEMA, strict=False)}, "output.strict", "always holds"),
    (on("openai", "sglang", "any"), {"output": Output(regex="a+")}, "output.regex", "output.json_schema"),
    (on("openai", "sglang", "any"), {"output": Output(choice=("a",))}, "output.choice", "output.json_schema"),
    (on("openai", "sglang", "any"), {"output": Output(grammar="g")}, "output.grammar", "output.json_schema"),
    (on(), {"reasoning": Reasoning(budget_tokens=9)}, "reasoning.budget_tokens", "reasoning.effort"),
    (on("vllm", "sglang"), {"reasoning": Reasoning(summary="auto")}, "reasoning.summary", "no summaries"),
    (on(), {"tools": Tools(functions=(F, F))}, "tools.functions", "share a name"),
    (on(), {"tools": Tools(functions=(F,), choice="function:g")}, "tools.choice", "no such function: g"),
    (on(), {"tools": Tools(functions=(F,), choice="any")}, "tools.choice", "auto, none, required"),
    (on(), {"tools": Tools(choice="auto")}, "tools.choice", "no tools"),
    (on(), {"tools": Tools(parallel=True)}, "tools.parallel", "no tools"),
    (on("vllm", "sglang", "any"), {"tools": Tools(hosted=(Hosted("web_search"),))}, "tools.hosted", "only OpenAI"),
    (on("openai"), {"tools": Tools(hosted=(Hosted("googleSearch"),))}, "tools.hosted", "googleSearch"),
    (on("openai"), {"tools": Tools(hosted=(Hosted("shell", {"type": "x"}),))}, "tools.hosted", "shell"),
    (on("vllm"), {"session": Session(previous_response_id="r")}, "session.previous_response_id", "in silence"),
    (on("vllm"), {"session": Session(store=True)}, "session.store", "in silence"),
    (on(), {"options": {"truncation": "auto"}}, "options.truncation", "drops the oldest input"),
    (on(), {"options": {"background": True}}, "options.background", "not done"),
    (on(), {"options": {"instructions": "x"}}, "options.instructions", "system message"),
    (on("openai"), {"options": {"include": []}, "scoring": Scoring(sampled=0)}, "options.include", "scoring.sampled"),
    (on("openai", "any"), {"options": {"min_p": 0.1}}, "options.min_p", "no field that this endpoint"),
]


@pytest.mark.parametrize(("endpoints", "groups", "leaf", "reason"), REFUSED)
def test_openai_responses_refuses(endpoints: dict[str, Facts], groups: dict[str, Any], leaf: str, reason: str) -> None:
    for name, facts in endpoints.items():
        assert reason in refusal(ask(**groups), facts)[leaf], name


def test_a_dropped_leaf_leaves_the_body() -> None:
    request = ask(
        sampling=Sampling(top_k=5),
        output=Output(json_schema={"type": "x"}, name="n"),
        tools=Tools(hosted=(Hosted("web_search"),)),
    )
    dropped = ("sampling.top_k", "output.json_schema", "tools.hosted")
    assert sent(request, ANY, *dropped) == sent(ask(), ANY)


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


def test_options_of_a_document_replace_openai_s() -> None:
    assert "no field" in refusal(ask(options={"user": "u"}), VLLM)["options.user"]
    assert extra(ask(options={"user": "u"}), msgspec.structs.replace(VLLM, fields={})) == {"user": "u"}
