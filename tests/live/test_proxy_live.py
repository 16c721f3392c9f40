"""The proxy between the official SDK and a real engine: the client's bytes, and the artifacts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from openai import OpenAI

from logproof.client.probe import probe
from logproof.http.endpoint import endpoint
from logproof.http.transport import Transport
from logproof.ir.facts import Facts
from logproof.proxy.request_plan import CHAT, COMPLETIONS, asks
from logproof.proxy.sink import observed
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.checks import structure
from logproof.verify.record.observed import artifacts_of
from logproof.verify.record.stated_claim import claim_of
from proxy.running import Answer, Running, call, running

K = 5
MODEL = "smollm2"
TEXT = "Repeat: 你好，世界 😀 👩‍👩‍👧 Ω"
MESSAGES = [{"role": "user", "content": TEXT}]
BASE: dict[str, object] = {"model": MODEL, "max_tokens": 12, "temperature": 0}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "s",
        "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}


@pytest.fixture(scope="module")
def facts(engine_url: str) -> Facts:
    async def ask() -> Facts:
        async with Transport(endpoint(engine_url)) as transport:
            return await probe(transport)

    return asyncio.run(ask())


@pytest.fixture
def proxy(engine_url: str, facts: Facts) -> Iterator[Running]:
    able = asks(facts.fields[CHAT], K, facts.max_logprobs)
    assert able == asks(facts.fields[COMPLETIONS], K, facts.max_logprobs)
    with running(engine_url, able=able) as made:
        yield made


def same(body: bytes) -> bytes:
    """A reply with what differs between any two calls made equal."""
    body = re.sub(rb'"id":"(chatcmpl|cmpl)-[^"]*"', b'"id":"0"', body)
    return re.sub(rb'"created":\d+', b'"created":0', body)


CASES = {
    "chat": (CHAT, {"messages": MESSAGES}),
    "chat_json": (CHAT, {"messages": MESSAGES, "response_format": {"type": "json_object"}}),
    "chat_own_logprobs": (CHAT, {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
    "chat_own_ids": (CHAT, {"messages": MESSAGES, "return_token_ids": True}),
    "chat_refused": (CHAT, {"messages": MESSAGES, "top_logprobs": 2}),
    "chat_no_model": (CHAT, {"messages": MESSAGES, "model": "nobody"}),
    "completion": (COMPLETIONS, {"prompt": TEXT}),
    "completion_n": (COMPLETIONS, {"prompt": TEXT, "n": 2, "temperature": 1, "seed": 5}),
    "completion_batch": (COMPLETIONS, {"prompt": ["a", "b c"]}),
    "completion_echo": (COMPLETIONS, {"prompt": TEXT, "echo": True}),
    "completion_own_logprobs": (COMPLETIONS, {"prompt": TEXT, "logprobs": 2}),
    "completion_scored": (COMPLETIONS, {"prompt": TEXT, "prompt_logprobs": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_replies_are_those_of_a_direct_call(engine_url: str, proxy: Running, name: str) -> None:
    path, more = CASES[name]
    body = json.dumps({**BASE, **more}, ensure_ascii=False).encode()
    direct, through = (call(port, "POST", path, body, JSON) for port in (port_of(engine_url), proxy.port))
    assert through.status == direct.status
    assert same(through.body) == same(direct.body)
    assert without_date(through) == without_date(direct)


JSON = {"content-type": "application/json"}


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def without_date(answer: Answer) -> list[tuple[str, str]]:
    return [pair for pair in answer.headers if pair[0] != "date"]


@pytest.mark.parametrize(
    "more",
    [
        {"messages": MESSAGES},
        {"messages": MESSAGES, "stream_options": {"include_usage": True}},
        {"messages": MESSAGES, "response_format": {"type": "json_object"}},
        {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2},
        {"prompt": TEXT},
        {"prompt": TEXT, "logprobs": 2, "return_token_ids": True},
    ],
)
def test_streams_are_those_of_a_direct_call_event_by_event(
    engine_url: str, proxy: Running, more: dict[str, object]
) -> None:
    """The engine joins tokens into one event when it is busy, in either stream: then both are asked again."""
    path = CHAT if "messages" in more else COMPLETIONS
    body = json.dumps({**BASE, **more, "stream": True}).encode()
    for _ in range(10):
        direct, through = (call(port, "POST", path, body, JSON) for port in (port_of(engine_url), proxy.port))
        if same(through.body) == same(direct.body):
            break
    assert same(through.body).split(b"\n\n") == same(direct.body).split(b"\n\n")
    assert without_date(through) == without_date(direct)


def chat(client: OpenAI) -> str:
    reply = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=12, temperature=0, seed=3)
    assert reply.choices[0].logprobs is None
    return reply.choices[0].message.content or ""


def chat_stream(client: OpenAI) -> str:
    chunks = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=12, temperature=0, seed=3, stream=True
    )
    return "".join(c.choices[0].delta.content or "" for c in chunks)


def chat_structured(client: OpenAI) -> str:
    reply = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=60, temperature=0, seed=3, response_format=SCHEMA
    )
    assert isinstance(json.loads(reply.choices[0].message.content or "")["a"], int)
    return reply.choices[0].message.content or ""


def completion(client: OpenAI) -> str:
    return client.completions.create(model=MODEL, prompt=TEXT, max_tokens=12, temperature=0, seed=3).choices[0].text


def completion_stream(client: OpenAI) -> str:
    chunks = client.completions.create(model=MODEL, prompt=TEXT, max_tokens=12, temperature=0, seed=3, stream=True)
    return "".join(c.choices[0].text for c in chunks)


@pytest.mark.parametrize("ask", [chat, chat_stream, chat_structured, completion, completion_stream])
def test_the_official_client_sees_no_difference_and_leaves_an_artifact(
    engine_url: str, proxy: Running, facts: Facts, ask: Callable[[OpenAI], str]
) -> None:
    direct = ask(OpenAI(base_url=f"{engine_url}/v1", api_key="sk-live-secret", max_retries=0))
    text = ask(OpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="sk-live-secret", max_retries=0))
    assert text == direct
    artifact = made(proxy, facts)
    assert structure.faults(artifact) == []
    assert "sk-live-secret" not in repr(artifact)
    assert artifact.provenance.text == text
    ids, rows = artifact.tokens.completion_ids, artifact.positions
    assert ids is not None
    assert rows is not None
    assert {len(row) for row in rows.ids} <= ({K, K + 1} if ask is not chat_structured else set(range(K + 2)))
    assert detokenized(engine_url, ids) == text
    assert TEXT in detokenized(engine_url, artifact.tokens.prompt_ids or ())
    assert artifact.sampling.seed is not None
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == ("constrained" if ask is chat_structured else "raw")


def made(proxy: Running, facts: Facts) -> Artifact:
    (exchange,) = proxy.records(1)
    assert datetime.fromisoformat(exchange.started_at).tzinfo is not None
    (artifact,) = artifacts_of(observed(exchange), facts, claim_of(facts, MODEL), "http://engine")
    return artifact


def detokenized(engine_url: str, ids: tuple[int, ...]) -> str:
    """Text of ids, special tokens left out."""
    kept = [i for i in ids if i > 2]
    body = json.dumps({"model": MODEL, "tokens": kept}).encode()
    found: str = json.loads(call(port_of(engine_url), "POST", "/detokenize", body, JSON).body)["prompt"]
    return found


def test_the_rest_of_the_engine_is_there(engine_url: str, proxy: Running) -> None:
    for path in ("/openapi.json", "/v1/models", "/version", "/nowhere"):
        direct, through = (call(port, "GET", path, None) for port in (port_of(engine_url), proxy.port))
        assert through.status == direct.status
        assert path == "/v1/models" or through.body == direct.body
    assert OpenAI(base_url=f"http://127.0.0.1:{proxy.port}/v1", api_key="x").models.list().data[0].id == MODEL
