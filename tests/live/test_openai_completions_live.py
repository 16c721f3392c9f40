"""openai_completions against a real float32 vLLM: echo scoring, streams, and equality with vllm_native."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from logproof import Model
from logproof.errors import BadReply, ContextOverflow, ModelNotFound, RequestRefused
from logproof.ir.request import Input, Request, Sampling, Schedule, Scoring
from logproof.ir.response import Tokens

pytestmark = pytest.mark.live

PROMPTS = {
    "english": "The capital of France is Paris.",
    "chinese": "中国的首都是北京。",
    "emoji": "🦊🎉 party!",
    "code": "def f(x):\n\treturn {'a': x ** 2}\n",
}
ONE = Sampling(max_tokens=1, temperature=0.0)


@pytest.fixture(scope="module")
def echo(engine_url: str) -> Iterator[Model]:
    with Model(engine_url, dialect="openai_completions") as opened:
        yield opened


@pytest.fixture(scope="module")
def native(engine_url: str, echo: Model) -> Iterator[Model]:
    with Model(engine_url, dialect="vllm_native", facts=echo.facts) as opened:
        yield opened


def whole(tokens: Tokens | None) -> Tokens:
    assert tokens is not None
    return tokens


@pytest.mark.parametrize("name", PROMPTS)
def test_echo_and_prompt_logprobs_are_the_same_numbers(echo: Model, native: Model, name: str) -> None:
    a, b = whole(echo.score(PROMPTS[name]).prompt), whole(native.score(PROMPTS[name]).prompt)
    assert math.isnan(a.logprobs[0])
    assert abs(a.logprobs[1:] - b.logprobs[1:]).max() == 0
    assert a.ids is not None
    assert b.ids is not None
    assert a.ids.tolist() == b.ids.tolist()
    assert a.texts == b.texts
    assert a.texts is not None
    assert None not in a.texts
    assert "".join(t for t in a.texts if t is not None) == PROMPTS[name]


def test_top_k_by_text_equals_top_k_by_id_where_it_is_whole(echo: Model, native: Model) -> None:
    a, b = whole(echo.score(PROMPTS["english"], top=3).prompt), whole(native.score(PROMPTS["english"], top=3).prompt)
    assert a.top is not None
    assert b.top is not None
    assert [a.top.by_text(i) for i in range(1, len(a))] == [b.top.by_text(i) for i in range(1, len(b))]
    with pytest.raises(BadReply, match="top"):
        echo.score(PROMPTS["emoji"], top=5)


def test_token_id_prompts(echo: Model, native: Model) -> None:
    ids = whole(native.score(PROMPTS["english"]).prompt).ids
    assert ids is not None
    a = whole(echo.score(tuple(ids.tolist())).prompt)
    assert a.ids is not None
    assert a.ids.tolist() == ids.tolist()


def test_max_tokens_0_scores_and_samples_nothing(echo: Model) -> None:
    request = Request(echo.name, Input(text="The capital"), sampling=Sampling(max_tokens=0), scoring=Scoring(prompt=0))
    response = echo.call(request).response
    assert len(whole(response.prompt)) == 2
    assert response.text == ""
    assert response.choices[0].token_ids is None


def test_several_choices_behind_one_echo(echo: Model) -> None:
    sampling = Sampling(max_tokens=4, temperature=1.0, seed=5, n=2)
    call = echo.request(Input(text="Once upon a time"), sampling=sampling, scoring=Scoring(prompt=0, sampled=0))
    assert [c.index for c in call.response.choices] == [0, 1]
    assert all(not c.text.startswith("Once") for c in call.response.choices)
    assert sum(len(whole(c.tokens)) for c in call.response.choices) == call.response.usage.completion


@pytest.mark.parametrize("scoring", [Scoring(sampled=3), Scoring(prompt=0, sampled=0), Scoring()])
def test_streamed_and_plain_lift_alike(echo: Model, scoring: Scoring) -> None:
    sampling = Sampling(max_tokens=6, temperature=0.0, stop=("zzz",))
    given = Input(text="The capital of France is")
    plain = echo.request(given, sampling=sampling, scoring=scoring).response
    call = echo.request(given, sampling=sampling, scoring=scoring, schedule=Schedule(stream=True))
    streamed = call.response
    assert call.reply.events is not None
    assert (plain.text, plain.choices[0].finish) == (streamed.text, streamed.choices[0].finish)
    assert (plain.usage.prompt, plain.usage.completion) == (streamed.usage.prompt, streamed.usage.completion)
    for a, b in ((plain.choices[0].tokens, streamed.choices[0].tokens), (plain.prompt, streamed.prompt)):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert a.texts == b.texts
            assert [repr(v) for v in a.logprobs.tolist()] == [repr(v) for v in b.logprobs.tolist()]


def test_refusals_and_typed_errors(echo: Model) -> None:
    with pytest.raises(RequestRefused, match="input.suffix"):
        echo.request(Input(text="a", suffix="b"))
    with pytest.raises(RequestRefused, match="scoring.sampled"):
        echo.request(Input(text="a"), scoring=Scoring(prompt=1, sampled=2))
    with pytest.raises(ContextOverflow):
        echo.score("word " * 3000)
    with pytest.raises(ModelNotFound):
        echo.call(Request("nope", Input(text="a"), sampling=ONE))
