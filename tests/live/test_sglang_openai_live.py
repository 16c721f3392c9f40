"""openai_chat, openai_completions, openai_responses and anthropic_messages against a real float32 SGLang.

Its compatible routes give less than its native one, and other than vLLM's: what they give is lifted and equal to
what the native wire scores; what they ignore in silence is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.request import urlopen

import msgspec
import numpy as np
import pytest

from dialects.compare import difference, same_reply
from logproof import Model
from logproof.client.probe import read_facts
from logproof.dialects import openapi_fields
from logproof.errors import BadReply, ContextOverflow, RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.message import Message, text_message
from logproof.ir.request import Input, Request, Sampling, Schedule, Scoring
from logproof.ir.response import Response, Tokens

NOISE = 1e-4
"""Most that a float32 logprob moves with the batch and the cache, in nats."""
FRANCE = "The capital of France is"
ASK = "What is the capital of France?"
GREEDY = Sampling(max_tokens=4, temperature=0.0)
STREAM = Schedule(stream=True)


@pytest.fixture(scope="module")
def native(sglang_url: str) -> Iterator[Model]:
    with Model(sglang_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def facts(native: Model) -> Facts:
    return native.facts


@pytest.fixture(scope="module", params=["openai_chat", "openai_responses", "anthropic_messages"])
def messenger(sglang_url: str, facts: Facts, request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model(sglang_url, dialect=request.param, facts=facts) as opened:
        yield opened


@pytest.fixture(scope="module")
def chat(sglang_url: str, facts: Facts) -> Iterator[Model]:
    with Model(sglang_url, dialect="openai_chat", facts=facts) as opened:
        yield opened


@pytest.fixture(scope="module")
def completions(sglang_url: str, facts: Facts) -> Iterator[Model]:
    with Model(sglang_url, dialect="openai_completions", facts=facts) as opened:
        yield opened


def ask(*messages: Message | str, **groups: msgspec.Struct) -> Request:
    given = tuple(text_message("user", m) if isinstance(m, str) else m for m in messages)
    return msgspec.structs.replace(Request("smollm2", Input(messages=given), sampling=GREEDY), **groups)


def complete(text: str, **groups: msgspec.Struct) -> Request:
    return msgspec.structs.replace(Request("smollm2", Input(text=text), sampling=GREEDY), **groups)


def whole(tokens: Tokens | None) -> Tokens:
    assert tokens is not None
    return tokens


def ids_of(tokens: Tokens | None) -> list[int]:
    ids = whole(tokens).ids
    assert ids is not None
    found: list[int] = ids.tolist()
    return found


def streamed(model: Model, request: Request) -> Response:
    """The reply, after checking that its streamed form says the same; a stream has no ids and no weight versions."""
    plain = model.call(request).response
    other = model.call(msgspec.structs.replace(request, schedule=STREAM)).response
    left, right = (_shared(same_reply(r)) for r in (plain, other))
    assert difference(right, left, NOISE) is None
    return plain


def _shared(reply: object) -> object:
    """What both forms of a reply hold."""
    if isinstance(reply, dict):
        kept = {k: v for k, v in reply.items() if k not in ("token_ids", "prompt_ids", "id", "ids", "metadata")}
        return {k: _shared(v) for k, v in kept.items()}
    return [_shared(v) for v in reply] if isinstance(reply, list) else reply


def test_the_probe_reads_what_it_is_and_lists(native: Model, sglang_url: str) -> None:
    facts = native.facts
    assert (facts.engine, facts.version, facts.vocab_size, facts.tokenizer) == ("sglang", "0.5.23", 49152, True)
    with urlopen(f"{sglang_url}/openapi.json") as reply:
        listed = read_facts({"/openapi.json": json.load(reply)}).fields
    assert {route: listed[route] for route in openapi_fields.SGLANG} == openapi_fields.SGLANG


def test_streamed_and_plain_are_one_reply(messenger: Model) -> None:
    plain = streamed(messenger, ask(text_message("system", "Be brief."), ASK))
    assert plain.text
    assert plain.choices[0].finish.reason in ("stop", "length")
    assert plain.usage.prompt


def test_an_overlong_prompt_is_a_context_overflow(messenger: Model) -> None:
    with pytest.raises(ContextOverflow):
        messenger.call(ask("word " * 2100))


def test_what_a_messaging_route_ignores_is_refused(messenger: Model) -> None:
    for request in (
        ask(ASK, sampling=Sampling(max_tokens=2, seed=7)),
        ask(ASK, scoring=Scoring(prompt=0)),
        ask(ASK, scoring=Scoring(label_ids=(1, 2))),
        msgspec.structs.replace(ask(ASK), options={"guided_json": {}}),
    ):
        with pytest.raises(RequestRefused):
            messenger.call(request)


def test_chat_scores_what_the_native_wire_scores(chat: Model, native: Model) -> None:
    response = chat.call(ask(ASK, scoring=Scoring(sampled=3))).response
    assert response.prompt_ids is not None
    prompt = Input(token_ids=tuple(response.prompt_ids.tolist()))
    other = native.request(prompt, sampling=GREEDY, scoring=Scoring(sampled=3)).response
    mine, theirs = whole(response.choices[0].tokens), whole(other.choices[0].tokens)
    assert ids_of(mine) == ids_of(theirs)
    assert np.max(np.abs(mine.logprobs - theirs.logprobs)) <= NOISE
    assert mine.top is not None
    assert theirs.top is not None
    for i in range(len(mine)):
        left, right = mine.top.by_text(i), theirs.top.by_text(i)
        assert left.keys() == right.keys()
        assert max(abs(left[t] - right[t]) for t in left) <= NOISE


def test_chat_continues_an_answer(chat: Model) -> None:
    assert chat.call(ask(ASK, text_message("assistant", "The capital is"))).response.text.startswith(" Paris")


def test_a_scored_chat_stream_is_asked_plain(chat: Model) -> None:
    call = chat.call(ask(ASK, scoring=Scoring(sampled=0), schedule=STREAM))
    assert call.reply.events is None
    assert len(whole(call.response.choices[0].tokens)) == call.response.usage.completion


def test_texts_that_collapse_are_refused(chat: Model) -> None:
    with pytest.raises(BadReply, match="two entries for"):
        chat.call(ask("Repeat: 🦊🦊🦊🦊", scoring=Scoring(sampled=5)))


@pytest.mark.parametrize("text", [f"{FRANCE} Paris.", "中国的首都是北京。"])
def test_an_echo_scores_what_the_native_wire_scores(completions: Model, native: Model, text: str) -> None:
    """Pieces of a character come as bytes, so the texts of such a prompt are those of its ids."""
    mine, theirs = whole(completions.score(text, top=3).prompt), whole(native.score(text, top=3).prompt)
    assert ids_of(mine) == ids_of(theirs)
    assert np.nanmax(np.abs(mine.logprobs - theirs.logprobs)) <= NOISE
    assert mine.top is not None
    assert set(np.diff(mine.top.offsets)[1:].tolist()) <= {3, 4}
    if text.isascii():
        assert mine.texts == theirs.texts
    assert "".join(t or "" for t in theirs.texts or ()) == text


def test_completions_stream_and_stop(completions: Model) -> None:
    plain = streamed(completions, complete(FRANCE, scoring=Scoring(sampled=2)))
    assert "".join(whole(plain.choices[0].tokens).texts or ()) == plain.text
    stop = Sampling(max_tokens=4, temperature=0.0, stop=(".",))
    choice = completions.call(complete(FRANCE, sampling=stop, scoring=Scoring(sampled=0))).response.choices[0]
    assert (choice.text, choice.finish.reason, choice.finish.matched) == (" Paris", "stop", ".")


def test_several_choices_behind_one_echo(completions: Model) -> None:
    sampling = Sampling(max_tokens=2, temperature=1.0, n=2)
    request = complete("Once upon", sampling=sampling, scoring=Scoring(prompt=0, sampled=0))
    response = completions.call(request).response
    assert len(whole(response.prompt)) == response.usage.prompt == 2
    assert [len(whole(c.tokens)) for c in response.choices] == [2, 2]
    assert not any(c.text.startswith("Once") for c in response.choices)
