"""The probe: recorded answers of each kind of server, partial ones, refused keys, and the measured mode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.wires import REPLIES
from fakes.server import FakeServer, Reply, Seen
from logproof.client.probe import QUESTIONS, RESPONSES, default_sampling, probe, read_facts
from logproof.errors import AuthError, NoEngine, ServerFault, StatusError, TransportError
from logproof.http.endpoint import endpoint
from logproof.http.exchange import WireReply, WireRequest
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Transport
from logproof.ir.facts import Facts


def recorded(engine: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((REPLIES / "probe" / f"{engine}.json").read_text(encoding="utf-8"))
    return answers


def listing(*entries: dict[str, object]) -> dict[str, object]:
    return {"/v1/models": {"object": "list", "data": list(entries)}}


def test_vllm_is_recognised_with_its_limits_and_fields() -> None:
    facts = read_facts(recorded("vllm"))
    assert (facts.engine, facts.version, facts.models) == ("vllm", "0.32.0", ("smollm2",))
    assert (facts.max_model_len, facts.model_root) == (2048, "smollm2")
    assert facts.has_field("/v1/completions", "logprob_token_ids")
    assert facts.has_field("/v1/completions", "min_p")
    assert not facts.has_field("/v1/completions", "enforced_token_ids")
    assert facts.tokenizer
    assert facts.sources["engine"] == "/v1/models owned_by"
    assert facts.sources["fields"] == "/openapi.json"
    assert facts.plugin is None


def test_sglang_and_llama_cpp() -> None:
    sglang = read_facts(recorded("sglang"))
    assert (sglang.engine, sglang.models, sglang.max_model_len) == ("sglang", ("smollm2",), 2048)
    assert sglang.fingerprint == "default"
    assert read_facts({"/model_info": {"served_model_name": "x"}}).models == ("x",)
    info = {"version": "0.5.23", "context_length": 4096, "vocab_size": 7, "enable_deterministic_inference": True}
    facts = read_facts({"/model_info": {"served_model_name": "x"}, "/server_info": info})
    assert (facts.version, facts.max_model_len, facts.vocab_size, facts.deterministic) == ("0.5.23", 4096, 7, True)
    assert read_facts({"/props": {"default_generation_settings": {}}}).engine == "llama.cpp"
    assert read_facts(listing({"id": "m", "owned_by": "llamacpp"})).engine == "llama.cpp"
    below = {"paths": {"/v1/tokenize": {}, "/v1/detokenize": {}}}
    assert read_facts({"/model_info": {"served_model_name": "x"}, "/openapi.json": below}).tokenizer
    assert not read_facts({**listing({"id": "m"}), "/openapi.json": below}).tokenizer
    unknown = read_facts(recorded("llamacpp"))
    assert (unknown.engine, unknown.models) == (None, ("smollm2",))


@pytest.mark.parametrize(
    ("answers", "engine", "models"),
    [
        ({"/info": {"max_total_tokens": 4096, "version": "3.0"}}, "tgi", ()),
        ({"/info": {"docker_label": "x"}}, "tgi", ()),
        (
            listing({"id": "gpt-4o", "owned_by": "system"}, {"id": "o1", "owned_by": "openai"}),
            "openai",
            ("gpt-4o", "o1"),
        ),
        (listing({"id": "claude-x", "type": "model", "display_name": "X"}), "anthropic", ("claude-x",)),
        ({"/v1beta/models": {"models": [{"name": "models/gemini-x"}]}}, "gemini", ("gemini-x",)),
        (listing({"id": "m", "owned_by": "someone"}), None, ("m",)),
        ({"/version": {"version": "0.32.0"}, "/openapi.json": {"paths": {"/generative_scoring": {}}}}, "vllm", ()),
        ({"/version": {"version": "0.32.0"}}, None, ()),
        ({"/v1/models": []}, None, ()),
        ({"/v1/models": {"data": "x"}, "/openapi.json": [1], "/server_info": 5, "/logproof/status": "on"}, None, ()),
        ({"/openapi.json": {"paths": {"/x": {"post": {"requestBody": None}}}}}, None, ()),
    ],
)
def test_each_kind_and_partial_answers(answers: dict[str, object], engine: str | None, models: tuple[str, ...]) -> None:
    facts = read_facts(answers)
    assert (facts.engine, facts.models) == (engine, models)


def test_a_gateway_is_no_openai_and_its_document_proves_nothing() -> None:
    schema = {"properties": {"seed": {}}}
    route = {"/v1/chat/completions": {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}}
    document = {"info": {"title": "LiteLLM API", "version": "1.108.7"}, "paths": route}
    facts = read_facts({**listing({"id": "m", "owned_by": "openai"}), "/openapi.json": document})
    assert (facts.engine, facts.version, facts.models, facts.fields) == ("litellm", "1.108.7", ("m",), {})
    assert facts.sources["engine"] == "/openapi.json title"
    nameless = read_facts({"/openapi.json": {"info": {"title": "LiteLLM API", "version": 1}}})
    assert (nameless.engine, nameless.version) == ("litellm", None)


def test_inline_schemas_are_read() -> None:
    schema = {"properties": {"a": {}, "b": {}}}
    item = {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}
    assert read_facts({"/openapi.json": {"paths": {"/x": item}}}).fields == {"/x": ("a", "b")}


def test_nothing_that_answers_is_no_server() -> None:
    with pytest.raises(NoEngine, match="answers none of the questions"):
        read_facts({})


def test_the_plugin_is_believed_only_where_it_says_true() -> None:
    features = {"enforced_replay": True, "logprobs_mode": "yes"}
    status = {"version": "0.1.0", "ready": True, "features": features, "logprobs_mode": "raw"}
    plugin = read_facts({**recorded("vllm"), "/logproof/status": status}).plugin
    assert plugin is not None
    assert (plugin.version, plugin.enforced_replay, plugin.logprobs_mode) == ("0.1.0", True, False)
    assert (plugin.default_mode, plugin.reason) == ("raw", None)
    unready = {**status, "ready": False, "reason": "canary failed"}
    off = read_facts({**recorded("vllm"), "/logproof/status": unready}).plugin
    assert off is not None
    assert (off.enforced_replay, off.reason) == (False, "canary failed")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
KEYS = (
    "data", "models", "id", "name", "root", "max_model_len", "owned_by", "type", "version", "context_length",
    "vocab_size", "enable_deterministic_inference", "weight_version", "served_model_name", "paths", "info", "title",
    "components", "schemas", "$ref", "properties", "post", "requestBody", "content", "application/json", "schema",
    "features", "ready", "logprobs_mode", "reason", "/tokenize", "/detokenize", "max_total_tokens",
)  # fmt: skip


def known_keys(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.dictionaries(st.sampled_from(KEYS), inner, max_size=6) | st.lists(inner, max_size=2)


@given(st.dictionaries(st.sampled_from(QUESTIONS), st.recursive(JSON, known_keys, max_leaves=8), min_size=1))
def test_answers_of_any_type_give_facts(answers: dict[str, object]) -> None:
    facts = read_facts(answers)
    assert msgspec.convert(msgspec.to_builtins(facts), Facts) == facts


FIELDS: tuple[tuple[str, tuple[str | int, ...], str, type], ...] = (
    ("/v1/models", ("data", 0, "id"), "models", str),
    ("/v1/models", ("data", 0, "root"), "model_root", str),
    ("/v1/models", ("data", 0, "max_model_len"), "max_model_len", int),
    ("/server_info", ("context_length",), "max_model_len", int),
    ("/server_info", ("vocab_size",), "vocab_size", int),
    ("/server_info", ("enable_deterministic_inference",), "deterministic", bool),
    ("/server_info", ("version",), "version", str),
    ("/version", ("version",), "version", str),
    ("/info", ("version",), "version", str),
    ("/v1beta/models", ("models", 0, "name"), "models", str),
    ("/model_info", ("weight_version",), "fingerprint", str),
    ("/model_info", ("served_model_name",), "models", str),
    ("/logproof/status", ("version",), "plugin", str),
    ("/openapi.json", ("paths",), "routes", dict),
    ("/openapi.json", ("paths",), "fields", dict),
)


@pytest.mark.parametrize(("question", "path", "field", "kind"), FIELDS)
@given(value=JSON)
def test_an_odd_type_is_unknown(
    question: str, path: tuple[str | int, ...], field: str, kind: type, value: object
) -> None:
    """A value of another type than a field's, or an empty or negative one, tells nothing."""
    answer = value
    for key in reversed(path):
        answer = [answer] if isinstance(key, int) else {key: answer}
    fact = getattr(read_facts({question: answer}), field)
    if type(value) is not kind or (kind is int and value <= 0):
        assert fact in (None, (), {})


@pytest.mark.parametrize("odd", ["x", 1.5, True, -1, [], {}])
def test_a_plugin_that_tells_odd_things(odd: object) -> None:
    status = {"version": "1", "ready": odd, "features": odd, "logprobs_mode": odd, "reason": odd}
    plugin = read_facts({"/logproof/status": status}).plugin
    assert plugin is not None
    text = odd if isinstance(odd, str) else None
    assert (plugin.enforced_replay, plugin.logprobs_mode) == (False, False)
    assert (plugin.default_mode, plugin.reason) == (text, text)


LIMIT = {"error": {"message": "Requested sample logprobs of 1000000, which is greater than max allowed: 100"}}
VOCABULARY = {"error": {"message": "token_id(s) [2000000000] in logit_bias ... Vocabulary size: 49152 (parameter=x)"}}


def sampled(value: object) -> Callable[[Seen], Reply]:
    """A vLLM that refuses the questions about limits and gives this logprob for one token."""

    def answer(seen: Seen) -> Reply:
        body = seen.json()
        if body.get("logprobs") == 1_000_000:
            return Reply(400, json=LIMIT)
        if "logit_bias" in body:
            return Reply(400, json=VOCABULARY)
        assert (body["temperature"], body["top_k"], body["max_tokens"]) == (2.0, 1, 1)
        logprobs = {"tokens": ["a"], "token_logprobs": [value], "top_logprobs": [{"a": value}]}
        choice = {"index": 0, "text": "a", "logprobs": logprobs}
        return Reply(json={"choices": [choice], "system_fingerprint": "fp-1"})

    return answer


def probed(server: FakeServer) -> Facts:
    async def run() -> Facts:
        async with Transport(endpoint(server.url, env={}), policy=RetryPolicy(attempts=1)) as transport:
            return await probe(transport)

    return asyncio.run(run())


@pytest.mark.parametrize(("value", "mode"), [(-1.25, "raw"), (0.0, "processed"), (14.5, None), (None, None)])
def test_limits_and_the_meaning_of_logprobs_are_measured(value: object, mode: str | None) -> None:
    with FakeServer() as server:
        for path, answer in recorded("vllm").items():
            server.on(path, answer)
        server.on("/v1/completions", sampled(value))
        facts = probed(server)
    assert (facts.max_logprobs, facts.vocab_size, facts.logprobs_mode) == (100, 49152, mode)
    assert facts.sources["max_logprobs"] == "a refused request"
    assert ("logprobs_mode" in facts.sources) == (mode is not None)
    fact = ("fp-1", "the reply to one token") if value is not None else (None, None)
    assert (facts.fingerprint, facts.sources.get("fingerprint")) == fact


@pytest.mark.parametrize(
    "answer",
    [Reply(200, json={"choices": []}), Reply(500, json={}), Reply(400, json={"error": "no"}), Reply(drop=True)],
)
def test_limits_that_the_server_keeps_to_itself_stay_unknown(answer: Reply) -> None:
    with FakeServer() as server:
        for path, known in recorded("vllm").items():
            server.on(path, known)
        server.on("/v1/completions", answer)
        facts = probed(server)
    assert (facts.engine, facts.max_logprobs, facts.vocab_size, facts.logprobs_mode) == ("vllm", None, None, None)


def test_a_refused_key_is_an_auth_error_though_some_routes_are_open() -> None:
    with FakeServer() as server:
        server.on("/version", {"version": "0.32.0"})
        for path in ("/v1/models", "/server_info"):
            server.on(path, Reply(401, json={"error": {"message": "no key"}}))
        with pytest.raises(AuthError):
            probed(server)
        server.on("/v1/models", listing({"id": "m", "owned_by": "openai"})["/v1/models"])  # type: ignore[arg-type]
        assert probed(server).engine == "openai"


def test_a_server_that_tells_nothing_is_no_engine_and_a_dead_one_a_transport_error() -> None:
    with FakeServer() as server:
        server.on("/info", Reply(body="not JSON"))
        with pytest.raises(NoEngine):
            probed(server)
        url = server.url

    class Dead:
        async def send(self, request: WireRequest) -> WireReply:
            raise TransportError(f"nothing answers at {url}")

    with pytest.raises(TransportError):
        asyncio.run(probe(Dead()))


@pytest.mark.parametrize(
    ("reply", "size"),
    [
        (Reply(400, json={"error": "token_ids_logprob ... the valid range is [0, 49152)"}), 49152),
        (Reply(400, json={"error": "no"}), None),
        (Reply(json={"text": "x"}), None),
    ],
)
def test_sglang_is_asked_for_its_vocabulary(reply: Reply, size: int | None) -> None:
    with FakeServer() as server:
        for path, answer in recorded("sglang").items():
            server.on(path, answer)
        server.on("/generate", reply)
        facts = probed(server)
        assert (facts.engine, facts.vocab_size) == ("sglang", size)
        assert ("vocab_size" in facts.sources) == (size is not None)
        server.on("/server_info", {"vocab_size": 7})
        assert probed(server).vocab_size == 7


def test_a_bug_in_the_sender_is_not_swallowed() -> None:
    class Broken:
        async def send(self, request: WireRequest) -> WireReply:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(probe(Broken()))


def test_a_failing_route_does_not_hide_the_others() -> None:
    class Sick:
        async def send(self, request: WireRequest) -> WireReply:
            if request.path == "/v1/models":
                return WireReply(200, (), msgspec.json.encode(listing({"id": "m", "owned_by": "openai"})["/v1/models"]))
            raise ServerFault(503, "busy") if request.path == "/info" else StatusError(404, "no")

    assert asyncio.run(probe(Sick())).engine == "openai"


RESPONDING = Facts(engine="vllm", models=("m",), routes=(RESPONSES,))


def defaults(reply: Any, facts: Facts = RESPONDING) -> dict[str, float]:
    async def work(url: str) -> dict[str, float]:
        async with Transport(endpoint(url), policy=RetryPolicy(attempts=1)) as transport:
            return await default_sampling(transport, facts)

    with FakeServer() as fake:
        fake.on(RESPONSES, reply)
        values = asyncio.run(work(fake.url))
        assert [s.json()["max_output_tokens"] for s in fake.seen] in ([1], [])
    return values


def test_vllm_repeats_the_sampling_it_used() -> None:
    echo = {"id": "r", "temperature": 0.6, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": None}
    assert defaults(echo) == {"temperature": 0.6, "top_p": 1.0, "presence_penalty": 0.0}


@pytest.mark.parametrize("reply", [Reply(400, json={}), Reply(body="nothing"), Reply(drop=True), {"temperature": "x"}])
def test_an_engine_that_tells_nothing(reply: Any) -> None:
    assert defaults(reply) == {}


@pytest.mark.parametrize(
    "facts", [Facts(), Facts(engine="vllm", models=("m",)), Facts(engine="vllm", routes=(RESPONSES,))]
)
def test_only_an_engine_that_has_the_route_is_asked(facts: Facts) -> None:
    assert defaults({"temperature": 0.6}, facts) == {}
