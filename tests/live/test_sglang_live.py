"""sglang_native against a real SGLang: every channel, whole, and the bodies that would end the server kept back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from logproof.client.connect import Options, connect
from logproof.errors import ContextOverflow, RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Sampling, Schedule, Scoring
from logproof.ir.response import Response, Tokens

NOISE = 1e-4
"""Most that a float32 logprob moves with the batch and the cache, in nats."""

PROMPTS = {
    "chinese": "水的化学式是 H2O，由氢和氧组成。",
    "emoji": "The 🦊 jumps over the 🐶 and smiles 🙂.",
    "code": "def add(a, b):\n    return a + b\n\nprint(add(1, 2))",
}


def ask(url: str, *requests: Request) -> tuple[Facts, list[Response]]:
    """Send requests one after the other over one connection."""

    async def run() -> tuple[Facts, list[Response]]:
        options = Options(dialect="sglang_native", texts=False)
        async with connect(url, options) as connection:
            return connection.facts, [(await connection.client.call(r)).response for r in requests]

    return asyncio.run(run())


def scored(source: Input, *, prompt: int | None = 0, sampled: int | None = None, max_tokens: int = 0) -> Request:
    return Request(
        "smollm2",
        source,
        sampling=Sampling(max_tokens=max_tokens, temperature=0.0),
        scoring=Scoring(prompt=prompt, sampled=sampled),
    )


def prompt_of(response: Response) -> Tokens:
    assert response.prompt is not None
    return response.prompt


def ids_of(tokens: Tokens) -> list[int]:
    assert tokens.ids is not None
    found: list[int] = tokens.ids.tolist()
    return found


def joined(texts: Sequence[str | None] | None) -> str:
    assert texts is not None
    return "".join(t if t is not None else "?" for t in texts)


def test_the_probe_finds_what_ids_need(sglang_url: str) -> None:
    facts, _ = ask(sglang_url)
    assert (facts.engine, facts.vocab_size, facts.max_model_len) == ("sglang", 49152, 2048)
    assert facts.models == ("smollm2",)


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_a_prompt_is_scored_whole(sglang_url: str, name: str) -> None:
    text = PROMPTS[name]
    _, (by_text,) = ask(sglang_url, scored(Input(text=text), prompt=100))
    prompt = prompt_of(by_text)
    ids = ids_of(prompt)
    assert joined(prompt.texts) == text
    assert len(ids) == by_text.usage.prompt
    assert prompt.top is not None
    assert set(np.diff(prompt.top.offsets)[1:].tolist()) <= {100, 101}
    _, (by_ids,) = ask(sglang_url, scored(Input(token_ids=tuple(ids)), prompt=1))
    assert ids_of(prompt_of(by_ids)) == ids
    assert np.nanmax(np.abs(prompt_of(by_ids).logprobs - prompt.logprobs)) <= NOISE


def test_a_cached_prompt_is_scored_whole(sglang_url: str) -> None:
    source = Input(text="The quick brown fox jumps over the lazy dog. " * 12)
    _, (cold, _, warm) = ask(
        sglang_url, scored(source), scored(source, prompt=None, sampled=0, max_tokens=1), scored(source)
    )
    assert len(prompt_of(cold)) == len(prompt_of(warm)) == warm.usage.prompt
    assert warm.usage.cached == 0
    assert np.nanmax(np.abs(prompt_of(cold).logprobs - prompt_of(warm).logprobs)) <= NOISE


def test_plain_and_streamed_replies_agree(sglang_url: str) -> None:
    plain = scored(Input(text="The capital of France is"), prompt=2, sampled=3, max_tokens=6)
    _, (one, other) = ask(sglang_url, plain, msgspec.structs.replace(plain, schedule=Schedule(stream=True)))
    first, second = one.choices[0], other.choices[0]
    assert (first.text, first.finish) == (second.text, second.finish)
    assert first.tokens is not None
    assert second.tokens is not None
    assert ids_of(first.tokens) == ids_of(second.tokens)
    assert np.max(np.abs(first.tokens.logprobs - second.tokens.logprobs)) <= NOISE
    assert ids_of(prompt_of(one)) == ids_of(prompt_of(other))


def test_labels_are_exact(sglang_url: str) -> None:
    request = Request(
        "smollm2",
        Input(text="The capital of France is"),
        sampling=Sampling(max_tokens=2, temperature=0.0),
        scoring=Scoring(sampled=5, label_ids=(198, 7042, 260)),
    )
    _, (response,) = ask(sglang_url, request)
    choice = response.choices[0]
    assert choice.labels is not None
    assert choice.tokens is not None
    assert choice.tokens.top is not None
    best = choice.tokens.top.by_id(0)
    labels = dict(zip(choice.labels.ids.tolist(), choice.labels.logprobs[0].tolist(), strict=True))
    assert {i: v for i, v in labels.items() if i in best} == {i: best[i] for i in labels if i in best}
    assert labels[7042] == choice.tokens.logprobs[0]


def test_several_choices_and_stops(sglang_url: str) -> None:
    request = Request(
        "smollm2",
        Input(text="The capital of France is"),
        sampling=Sampling(max_tokens=12, temperature=0.8, n=3, stop=(".",)),
        scoring=Scoring(sampled=2),
    )
    _, (response,) = ask(sglang_url, request)
    assert [c.index for c in response.choices] == [0, 1, 2]
    for choice in response.choices:
        assert "." not in choice.text
        assert choice.tokens is not None
        assert choice.tokens.meaning == "processed"
        assert choice.finish.reason in ("stop", "length")


def test_sampled_and_prompt_logprobs_of_the_same_tokens_agree(sglang_url: str) -> None:
    source = Input(text="The capital of France is")
    _, (sampled,) = ask(sglang_url, scored(source, sampled=0, max_tokens=4))
    tokens = sampled.choices[0].tokens
    assert tokens is not None
    whole = (*ids_of(prompt_of(sampled)), *ids_of(tokens))
    _, (prefill,) = ask(sglang_url, scored(Input(token_ids=whole)))
    assert np.max(np.abs(prompt_of(prefill).logprobs[-len(tokens) :] - tokens.logprobs)) <= 2 * NOISE


def test_overflow_is_typed(sglang_url: str) -> None:
    with pytest.raises(ContextOverflow):
        ask(sglang_url, scored(Input(text="word " * 2100)))


@pytest.mark.parametrize(
    "request_",
    [
        scored(Input(token_ids=(504, 999999))),
        scored(Input(text="a"), prompt=49153),
        msgspec.structs.replace(scored(Input(text="a")), options={"stop_token_ids": [99999], "min_new_tokens": 1}),
        msgspec.structs.replace(scored(Input(text="a")), options={"logprob_start_len": -5}),
    ],
)
def test_what_ends_the_server_never_leaves(sglang_url: str, request_: Request) -> None:
    with pytest.raises(RequestRefused):
        ask(sglang_url, request_)
    _, (alive,) = ask(sglang_url, scored(Input(text="Still here")))
    assert len(prompt_of(alive)) == alive.usage.prompt
