"""vllm_native against a real float32 vLLM: every guarantee of the dialect, through the client's whole path."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import numpy as np
import pytest

from dialects import wires
from logproof import Model
from logproof.client.connect import Options, connect
from logproof.dialects.call import Call
from logproof.errors import (
    BadReply,
    ContextOverflow,
    ModelNotFound,
    OutputContractError,
    RequestRefused,
    StatusError,
    UsageError,
)
from logproof.ir.facts import Facts
from logproof.ir.message import text_message
from logproof.ir.request import Input, Output, Reasoning, Request, Sampling, Schedule, Scoring, Session, Tools
from logproof.ir.response import Response, Tokens

pytestmark = pytest.mark.live

PROMPTS = {
    "english": "The capital of France is Paris, and the river is the Seine.",
    "chinese": "中国的首都是北京。",
    "emoji": "🦊🎉 party 🧑‍🚀!",
    "code": "def f(x):\n\treturn {'a': x ** 2}  # naïve\n",
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GREEDY = Sampling(max_tokens=6, temperature=0.0)
ONE = Sampling(max_tokens=1, temperature=0.0)


@pytest.fixture(scope="module")
def model(engine_url: str) -> Iterator[Model]:
    with Model(engine_url, dialect="vllm_native") as opened:
        yield opened


def prompt_of(response: Response) -> Tokens:
    assert response.prompt is not None
    return response.prompt


def sampled_of(response: Response, choice: int = 0) -> Tokens:
    tokens = response.choices[choice].tokens
    assert tokens is not None
    return tokens


def decisions(call: Call) -> dict[str, str]:
    return {d.leaf: d.kind for d in call.decisions}


def test_the_probe_knows_the_engine(model: Model) -> None:
    facts = model.facts
    assert (facts.engine, facts.max_model_len, facts.max_logprobs) == ("vllm", 2048, 100)
    assert facts.version is not None
    assert facts.vocab_size == 49152
    assert (facts.fingerprint or "").startswith("vllm-0.32.0")
    assert facts.logprobs_mode == "raw"
    assert facts.has_field("/v1/completions", "logprob_token_ids")
    assert facts.tokenizer


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_scoring_is_whole_by_id(model: Model, name: str) -> None:
    text = PROMPTS[name]
    response = model.score(text, top=100)
    prompt = prompt_of(response)
    n = len(prompt)
    assert n == response.usage.prompt
    assert prompt.texts is not None
    assert None not in prompt.texts
    assert "".join(t for t in prompt.texts if t is not None) == text
    assert math.isnan(prompt.logprobs[0])
    assert np.isfinite(prompt.logprobs[1:]).all()
    assert prompt.ids is not None
    assert prompt.top is not None
    widths = np.diff(prompt.top.offsets)
    assert widths[0] == 0
    assert set(widths[1:].tolist()) <= {100, 101}
    for i in range(1, n):
        assert prompt.top.by_id(i)[int(prompt.ids[i])] == prompt.logprobs[i]
    assert model.score(text).prompt is not None


def test_token_id_prompts_score_as_their_text(model: Model) -> None:
    by_text = prompt_of(model.score(PROMPTS["chinese"]))
    assert by_text.ids is not None
    by_ids = prompt_of(model.score(tuple(by_text.ids.tolist())))
    assert by_ids.ids is not None
    assert by_ids.ids.tolist() == by_text.ids.tolist()
    assert by_ids.logprobs[1:].tolist() == by_text.logprobs[1:].tolist()
    assert by_ids.texts == by_text.texts


def test_a_repeated_long_prompt_keeps_every_position(model: Model) -> None:
    text = "One two three four five six seven eight nine ten. " * 40
    first, again = model.score(text), model.score(text)
    a, b = prompt_of(first), prompt_of(again)
    assert len(a) == len(b) == first.usage.prompt
    assert len(a) > 256
    assert a.logprobs[1:].tolist() == b.logprobs[1:].tolist()


def test_several_choices_are_whole(model: Model) -> None:
    sampling = Sampling(max_tokens=5, temperature=1.0, seed=11, n=3)
    call = model.request(Input(text="Once upon a time"), sampling=sampling, scoring=Scoring(sampled=4))
    response = call.response
    assert [c.index for c in response.choices] == [0, 1, 2]
    for choice in response.choices:
        assert choice.token_ids is not None
        tokens = sampled_of(response, choice.index)
        assert tokens.ids is not None
        assert tokens.ids.tolist() == choice.token_ids.tolist()
        assert tokens.top is not None
        assert set(np.diff(tokens.top.offsets).tolist()) <= {4, 5}
    assert response.usage.completion == sum(len(sampled_of(response, i)) for i in range(3))


def test_equal_seeds_give_equal_samples(model: Model) -> None:
    def draw(seed: int) -> str:
        sampling = Sampling(max_tokens=12, temperature=1.0, seed=seed)
        return model.request(Input(text="Once upon a time"), sampling=sampling).response.text

    assert draw(7) == draw(7) != draw(8)


def test_top_k_by_id_is_of_full_width_inside_a_character(model: Model) -> None:
    whole = prompt_of(model.score("中国的首都是北京。中"))
    assert whole.ids is not None
    inside = Input(token_ids=tuple(whole.ids.tolist()[:2]))
    call = model.request(inside, sampling=GREEDY, scoring=Scoring(sampled=50))
    tokens = sampled_of(call.response)
    assert tokens.top is not None
    assert tokens.top.texts is not None
    assert set(np.diff(tokens.top.offsets).tolist()) <= {50, 51}
    assert decisions(call)["scoring.sampled"] == "sent"
    with pytest.raises(BadReply, match="top"):
        model.request(inside, sampling=GREEDY, scoring=Scoring(sampled=50, top_by="text"))


def test_text_keys_where_they_are_whole(model: Model) -> None:
    given = Input(text="The capital of France is")
    by_text = sampled_of(model.request(given, sampling=ONE, scoring=Scoring(sampled=3, top_by="text")).response)
    by_id = sampled_of(model.request(given, sampling=ONE, scoring=Scoring(sampled=3)).response)
    assert by_text.top is not None
    assert by_id.top is not None
    assert by_text.top.by_text(0) == by_id.top.by_text(0)
    assert by_text.ids is not None
    assert by_id.ids is not None
    assert by_text.ids.tolist() == by_id.ids.tolist()


@pytest.mark.parametrize(
    ("output", "check"),
    [
        (Output(json_schema=SCHEMA, name="person", strict=True), lambda v: set(v) == {"name", "age"}),
        (Output(json_object=True), lambda v: isinstance(v, dict)),
        (Output(regex="(19|20)[0-9]{2}"), lambda v: len(v) == 4),
        (Output(choice=("猫", "犬")), lambda v: v in ("猫", "犬")),
        (Output(grammar='root ::= "alpha" | "beta"'), lambda v: v in ("alpha", "beta")),
    ],
    ids=["json_schema", "json_object", "regex", "choice", "grammar"],
)
def test_structured_output_is_parsed_and_its_scores_are_labelled(model: Model, output: Output, check: object) -> None:
    sampling = Sampling(max_tokens=60, temperature=0.0)
    given = Input(text='As JSON, {"name": "Al", "age": 7} is one person. Another one: ')
    call = model.request(given, sampling=sampling, output=output, scoring=Scoring(prompt=0, sampled=2))
    choice = call.response.choices[0]
    assert callable(check)
    assert check(choice.parsed)
    assert sampled_of(call.response).meaning == "constrained"
    assert prompt_of(call.response).meaning == "raw"
    assert {d.kind for d in call.decisions if d.leaf in ("output.name", "output.strict")} <= {"no-op"}


def test_cut_json_is_off_its_contract(model: Model) -> None:
    with pytest.raises(OutputContractError, match="truncated at max_tokens"):
        model.request(Input(text="A person: "), sampling=Sampling(max_tokens=3), output=Output(json_schema=SCHEMA))


def test_label_scores_are_the_top_k_values_of_those_ids(model: Model) -> None:
    given = Input(text="Question: 2 + 2 = ?\nA. 3\nB. 4\nAnswer:")
    ids = tuple(int(prompt_of(model.score(t)).ids[-1]) for t in ("x A", "x B", "x zebra"))  # type: ignore[index]
    choice = model.request(given, sampling=ONE, scoring=Scoring(label_ids=ids)).response.choices[0]
    assert choice.labels is not None
    assert choice.labels.ids.tolist() == list(ids)
    assert choice.labels.logprobs.shape == (1, 3)
    top = sampled_of(model.request(given, sampling=ONE, scoring=Scoring(sampled=100)).response).top
    assert top is not None
    known = top.by_id(0)
    shared = [(float(v), known[i]) for i, v in zip(ids, choice.labels.logprobs[0], strict=True) if i in known]
    assert shared
    assert all(abs(a - b) < 1e-5 for a, b in shared)


def test_what_the_wire_cannot_do_is_refused_before_anything_is_sent(model: Model) -> None:
    refused: dict[str, Request] = {
        "sampling.max_tokens": Request("smollm2", Input(text="a"), sampling=Sampling(max_tokens=0)),
        "input.suffix": Request("smollm2", Input(text="a", suffix="b")),
        "tools.choice": Request("smollm2", Input(text="a"), tools=Tools(choice="auto")),
        "reasoning.effort": Request("smollm2", Input(text="a"), reasoning=Reasoning(effort="low")),
        "session.store": Request("smollm2", Input(text="a"), session=Session(store=True)),
        "input.messages": Request("smollm2", Input(messages=(text_message("user", "a"),))),
        "output.strict": Request("smollm2", Input(text="a"), output=Output(json_schema=SCHEMA, strict=False)),
        "options.guided_json": Request("smollm2", Input(text="a"), options={"guided_json": SCHEMA}),
        "options.frobnicate": Request("smollm2", Input(text="a"), options={"frobnicate": 1}),
        "options.temperature": Request("smollm2", Input(text="a"), options={"temperature": 0.1}),
        "scoring.prompt": Request("smollm2", Input(text="a"), scoring=Scoring(prompt=101)),
    }
    for leaf, request in refused.items():
        with pytest.raises(RequestRefused) as caught:
            model.call(request)
        assert leaf in dict(caught.value.refusals)


def test_streaming_is_a_noop_with_its_reason(model: Model) -> None:
    call = model.request(Input(text="Hi"), sampling=ONE, schedule=Schedule(stream=True), scoring=Scoring(prompt=0))
    assert decisions(call)["schedule.stream"] == "no-op"
    assert call.reply.events is None


def test_options_of_the_server_take_effect(model: Model) -> None:
    period = int(prompt_of(model.score("x.")).ids[-1])  # type: ignore[index]
    given = Input(text="The capital of France is")
    sampling = Sampling(max_tokens=12, temperature=0.0)
    call = model.request(given, sampling=sampling, options={"stop_token_ids": [period], "repetition_penalty": 1.05})
    assert call.response.choices[0].finish.matched == period
    hot = Sampling(max_tokens=8, temperature=2.0, seed=3)
    greedy = model.request(given, sampling=Sampling(max_tokens=8, temperature=0.0)).response.text
    assert model.request(given, sampling=hot, options={"min_p": 1.0}).response.text == greedy
    assert "bad_words" in model.facts.fields["/v1/completions"]
    barred = model.request(given, sampling=ONE, options={"bad_words": [" Paris"]}).response.text
    assert "Paris" not in barred


def test_a_stop_string_leaves_the_text_and_stays_in_the_ids(model: Model) -> None:
    sampling = Sampling(max_tokens=8, temperature=0.0, stop=(".",))
    choice = model.request(Input(text="The capital of France is"), sampling=sampling).response.choices[0]
    assert choice.finish.reason == "stop"
    assert choice.finish.matched == "."
    assert "." not in choice.text
    assert choice.token_ids is not None
    assert len(choice.token_ids) == 2


def test_an_overlong_prompt_is_a_context_overflow(model: Model) -> None:
    with pytest.raises(ContextOverflow, match="2048"):
        model.score("word " * 3000)


def test_a_wrong_model_is_named(engine_url: str, model: Model) -> None:
    with pytest.raises(ModelNotFound):
        model.call(Request("nope", Input(text="a"), sampling=ONE))
    with pytest.raises(UsageError, match="does not serve 'nope'"):
        Model(engine_url, model="nope")


def test_an_id_outside_the_vocabulary_is_refused_here_and_there(engine_url: str, model: Model) -> None:
    with pytest.raises(RequestRefused, match="id 60000 is outside the vocabulary of 49152"):
        model.score((1, 60000))
    blind = Facts(engine="vllm", models=model.facts.models)
    with Model(engine_url, dialect="vllm_native", facts=blind) as unaware, pytest.raises(StatusError, match="vocab"):
        unaware.score((1, 60000))
    assert model.score((1, 2)).prompt is not None


def test_concurrent_scores_are_bit_identical(engine_url: str, model: Model) -> None:
    alone = {text: prompt_of(model.score(text)).logprobs[1:].tolist() for text in PROMPTS.values()}

    async def together() -> list[Response]:
        async with connect(engine_url, Options(dialect="vllm_native", concurrency=4, facts=model.facts)) as opened:
            made = [
                Request(opened.model, Input(text=t), sampling=ONE, scoring=Scoring(prompt=0))
                for t in [*PROMPTS.values()] * 2
            ]
            return [call.response for call in await asyncio.gather(*(opened.client.call(r) for r in made))]

    for text, response in zip([*PROMPTS.values()] * 2, asyncio.run(together()), strict=True):
        assert prompt_of(response).logprobs[1:].tolist() == alone[text]


def test_a_fresh_reply_has_the_shape_of_the_recorded_ones(model: Model) -> None:
    recorded = wires.load("vllm_native", "comp_score_en_pl3_ids")
    request = wires.request_of(recorded.request)
    fresh = model.call(Request("smollm2", request.input, sampling=request.sampling, scoring=Scoring(prompt=3)))
    assert prompt_of(fresh.response).texts == ("The", " capital", " of", " France", " is")
