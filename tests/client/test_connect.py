"""From a URL to a ready client; and the synchronous door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import logproof
from client import served
from dialects.wires import REPLIES, load
from fakes.server import FakeServer, Reply, Seen
from logproof.client.connect import Connection, Options, _brief_timeouts, best_dialect, choose_model, connect
from logproof.client.model import Model
from logproof.client.probe import QUESTIONS
from logproof.client.tokenizer import LocalTokenizer, ServerTokenizer
from logproof.dialects.registry import BUILT_IN, FITTING, fitting
from logproof.errors import AuthError, NoEngine, RateLimited, ServerFault, TransportError, UsageError
from logproof.http.endpoint import Timeouts
from logproof.http.retry import RetryPolicy
from logproof.ir.facts import Facts
from logproof.ir.message import text_message
from logproof.ir.request import Input, Request, Sampling, Scoring

ONCE = RetryPolicy(attempts=1)
IDS = (504, 3575, 282, 4649, 314)


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield served.vllm(server)


def opened(url: str, options: Options | None = None) -> Connection:
    async def run() -> Connection:
        async with connect(url, options) as connection:
            return connection

    return asyncio.run(run())


def test_auto_picks_the_best_dialect_the_only_model_and_the_servers_tokenizer(fake: FakeServer) -> None:
    connection = opened(fake.url)
    assert (connection.client.dialect.id, connection.model) == ("vllm_native", "smollm2")
    assert isinstance(connection.tokenizer, ServerTokenizer)
    assert connection.client.tokenizer is connection.tokenizer
    assert connection.facts.max_logprobs == 100


def test_a_named_dialect_and_known_facts_need_no_probe(fake: FakeServer) -> None:
    options = Options(dialect="openai_completions", model="m", facts=Facts(), texts=False, drop=("sampling.seed",))
    connection = opened(fake.url, options)
    assert (connection.client.dialect.id, connection.model, connection.tokenizer) == ("openai_completions", "m", None)
    assert connection.client.drop == {"sampling.seed"}
    assert fake.seen == []


def test_a_silent_endpoint_is_open_to_a_named_dialect_only() -> None:
    with FakeServer() as server:
        connection = opened(server.url, Options(dialect="openai_completions", model="m"))
        assert connection.facts == Facts()
        with pytest.raises(NoEngine, match="answers none of the questions"):
            opened(server.url)


def failing(server: FakeServer, status: int) -> str:
    for question in QUESTIONS:
        server.on(question, Reply(status, json={}))
    return server.url


def test_a_server_that_fails_every_question_is_open_to_a_named_dialect_unless_a_gateway_says_that_none_is_there() -> (
    None
):
    named = Options(dialect="openai_completions", model="m", retry=ONCE)
    with FakeServer() as server:
        assert opened(failing(server, 500), named).facts == Facts()
        for options, status in ((Options(retry=ONCE), 500), (named, 502), (named, 503), (named, 504)):
            with pytest.raises(ServerFault, match=f"HTTP {status}"):
                opened(failing(server, status), options)
        with pytest.raises(RateLimited):
            opened(failing(server, 429), Options(retry=ONCE))


def test_questions_are_repeated_brief_timeoutsly_and_each_round_is_told_once() -> None:
    lines: list[str] = []

    async def go(url: str) -> None:
        async with connect(url, Options(retry=RetryPolicy(base_s=0.0)), lines.append):
            raise AssertionError("it opened")

    with FakeServer() as server:
        url = failing(server, 500)
        with pytest.raises(ServerFault, match="sent 3 times"):
            asyncio.run(go(url))
        assert len(server.seen) == 3 * len(QUESTIONS)
    assert [line.partition(": ")[0] for line in lines] == [f"asking {url} again, try {n} of 3" for n in (2, 3)]


def test_no_question_waits_longer_than_the_probe_may_whatever_the_timeouts() -> None:
    assert _brief_timeouts(Timeouts()) == Timeouts(connect=5.0, first_byte=20.0, idle=20.0, total=20.0)
    assert _brief_timeouts(Timeouts(None, None, None, None)) == _brief_timeouts(Timeouts())
    assert _brief_timeouts(Timeouts(connect=1, first_byte=2, idle=3, total=4)) == Timeouts(1, 2, 3, 4)


KEY = "sk-local-0123456789"


def guarded(server: FakeServer, header: str, value: str) -> FakeServer:
    """A vLLM that wants this header for everything below /v1, as `--api-key` makes it."""
    known = served.vllm(server)
    answers = json.loads((REPLIES / "probe" / "vllm.json").read_text(encoding="utf-8"))
    message = load("anthropic_messages", "vllm_plain").json()
    answers |= {"/v1/messages": message, "/v1/completions": served.answer}

    def checked(answer: Any) -> Callable[[Seen], Any]:
        def reply(seen: Seen) -> Any:
            if seen.headers.get(header) != value:
                return Reply(401, json={"error": "Unauthorized"})
            return answer(seen) if callable(answer) else answer

        return reply

    for path, answer in answers.items():
        if path.startswith("/v1"):
            known.on(path, checked(answer))
    return known


@pytest.mark.parametrize(
    ("dialect", "header", "value"),
    [
        ("anthropic_messages", "authorization", f"Bearer {KEY}"),
        ("anthropic_messages", "x-api-key", KEY),
        ("vllm_native", "authorization", f"Bearer {KEY}"),
        ("auto", "authorization", f"Bearer {KEY}"),
        ("auto", "x-goog-api-key", KEY),
    ],
)
def test_the_key_travels_as_the_endpoint_takes_it(dialect: str, header: str, value: str) -> None:
    with FakeServer() as server:
        connection = opened(guarded(server, header, value).url, Options(dialect=dialect, key=KEY))
        assert connection.endpoint.secret_headers() == {header if header != "authorization" else "Authorization": value}
        assert connection.facts.engine == "vllm"
        assert connection.model == "smollm2"


def test_a_keyed_vllm_answers_in_anthropics_wire() -> None:
    async def run(url: str) -> str:
        async with connect(url, Options(dialect="anthropic_messages", key=KEY)) as connection:
            request = Request("smollm2", Input(messages=(text_message("user", "Hi"),)), Sampling(max_tokens=16))
            return (await connection.client.call(request)).response.text

    with FakeServer() as server:
        assert asyncio.run(run(guarded(server, "authorization", f"Bearer {KEY}").url))
        sent = next(seen for seen in server.seen if seen.path == "/v1/messages")
    assert "x-api-key" not in sent.headers


@pytest.mark.parametrize("key", ["sk-another-0123456789", None])
def test_a_key_that_no_way_opens_is_an_auth_error(key: str | None) -> None:
    with FakeServer() as server, pytest.raises(AuthError):
        opened(guarded(server, "authorization", f"Bearer {KEY}").url, Options(dialect="anthropic_messages", key=key))


@pytest.mark.parametrize(("engine", "auth"), [("vllm", "bearer"), ("anthropic", "x-api-key"), (None, "x-api-key")])
def test_known_facts_tell_how_the_key_travels(fake: FakeServer, engine: str | None, auth: str) -> None:
    options = Options(dialect="anthropic_messages", model="m", key=KEY, facts=Facts(engine=engine), texts=False)
    assert opened(fake.url, options).endpoint.auth == auth
    assert fake.seen == []


def test_nothing_at_the_url_is_a_transport_error() -> None:
    with FakeServer() as server:
        url = server.url
    with pytest.raises(TransportError):
        opened(url, Options(retry=ONCE))


def test_an_unknown_endpoint_has_no_best_dialect(fake: FakeServer) -> None:
    fake.on("/v1/models", {"data": [{"id": "m", "owned_by": "someone"}]})
    fake.on("/openapi.json", Reply(404))
    with pytest.raises(UsageError, match="cannot tell what this endpoint speaks"):
        opened(fake.url)


def test_every_kind_has_dialects_that_exist() -> None:
    for engine, ids in FITTING.items():
        assert set(ids) <= set(BUILT_IN)
        assert fitting(Facts(engine=engine)) == ids
    assert fitting(Facts()) == ()
    assert best_dialect(Facts(engine="vllm")).id == "vllm_native"


def test_the_model_is_the_callers_or_the_only_one() -> None:
    many = Facts(models=tuple(f"m{i}" for i in range(9)))
    assert choose_model(None, Facts(models=("m",))) == "m"
    assert choose_model("x", Facts()) == "x"
    assert choose_model("m1", many) == "m1"
    for asked, facts, hint in (("x", many, "it serves: m0, "), (None, many, ", …"), (None, Facts(), None)):
        with pytest.raises(UsageError) as caught:
            choose_model(asked, facts)
        assert hint is None if caught.value.hint is None else hint is not None and hint in caught.value.hint


def test_a_local_tokenizer_comes_first(fake: FakeServer, tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    made.save(str(tmp_path / "tokenizer.json"))
    assert isinstance(opened(fake.url, Options(tokenizer=tmp_path)).tokenizer, LocalTokenizer)


def test_a_model_scores_and_generates(fake: FakeServer) -> None:
    with Model(fake.url) as model:
        assert model.name == "smollm2"
        assert model.facts.engine == "vllm"
        prompt = model.score("The capital of France is", top=3).prompt
        assert prompt is not None
        assert prompt.texts == ("The", " capital", " of", " France", " is")
        tokens = model.generate("The capital of France is", top=3, max_tokens=3).choices[0].tokens
        assert tokens is not None
        assert tokens.texts is not None
        assert all(t is not None and t.startswith("<") for t in tokens.texts)
        call = model.request(Input(token_ids=IDS), sampling=Sampling(max_tokens=3), scoring=Scoring(sampled=3))
        assert call.request.input.token_ids == IDS
    assert [("prompt_logprobs" in b, b["prompt"]) for b in served.sent(fake)] == [
        (True, "The capital of France is"),
        (False, "The capital of France is"),
        (False, list(IDS)),
    ]


def test_a_model_scores_ids(fake: FakeServer) -> None:
    with Model(fake.url) as model:
        prompt = model.score(IDS).prompt
        assert prompt is not None
        assert prompt.ids is not None
        assert len(prompt) == 5


def test_a_model_works_inside_a_running_loop(fake: FakeServer) -> None:
    async def notebook() -> str:
        with Model(fake.url) as model:
            return model.generate("x", max_tokens=3, top=3).text

    assert asyncio.run(notebook())


def test_closing_twice_and_failing_to_open_leave_nothing_behind(fake: FakeServer) -> None:
    model = Model(fake.url)
    model.close()
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model.score("x")
    with pytest.raises(UsageError):
        Model(fake.url, model="nope")
    with pytest.raises(TypeError):
        Model(fake.url, modle="typo")


def test_the_package_gives_the_door_and_nothing_else() -> None:
    assert logproof.Model is Model
    with pytest.raises(AttributeError, match="no attribute 'Modle'"):
        _ = logproof.Modle
