"""Probe: asks an endpoint what it is, and returns Facts; `default_sampling` asks vLLM what it samples with.

Only questions that any server survives: a few GETs, on vLLM two requests that it must refuse, whose messages name
its limits, and one token sampled where raw and processed logprobs differ; on SGLang one request that it must refuse.
Every answer may be missing; what is not known stays unknown.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from logproof.dialects.common import completions
from logproof.errors import (
    AuthError,
    BadReply,
    EndpointError,
    NoEngine,
    RateLimited,
    ServerFault,
    StatusError,
    TransportError,
)
from logproof.http.exchange import WireRequest
from logproof.http.transport import Sender
from logproof.ir.facts import Facts, Plugin

COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
QUESTIONS = (
    "/version",
    "/v1/models",
    "/openapi.json",
    "/server_info",
    "/model_info",
    "/props",
    "/info",
    "/v1beta/models",
    "/logproof/status",
)
"""What is asked of every endpoint, below its root."""

GATEWAYS = ("litellm",)
"""Kinds that pass requests on: what their own document lists may be dropped on the way, so it proves nothing."""

_LITELLM = "LiteLLM API"
_UNGUARDED = {"/version", "/openapi.json", "/logproof/status"}
"""What vLLM answers to whoever asks, also where it wants a key for everything else."""

_LIMIT = re.compile(r"max allowed: (\d+)")
_VOCABULARY = re.compile(r"[Vv]ocabulary size: (\d+)")
_VALID_RANGE = re.compile(r"valid range is \[0, (\d+)\)")

Answers = Mapping[str, object]


async def probe(sender: Sender) -> Facts:
    """Facts of one endpoint.

    Raises AuthError where the key is refused, TransportError where nothing answers, ServerFault or RateLimited where
    the server only fails, NoEngine where nothing that answers looks like an inference server.
    """
    answers = await _ask_all(sender)
    facts = read_facts(answers)
    if facts.engine == "vllm" and facts.models:
        facts = await _vllm_limits(sender, facts)
    if facts.engine == "sglang" and facts.vocab_size is None:
        facts = await _sglang_vocabulary(sender, facts)
    return facts


def read_facts(answers: Answers) -> Facts:
    """Facts out of {question: decoded JSON answer}. Raises NoEngine where no answer tells anything."""
    if not answers:
        raise NoEngine(
            "this URL answers none of the questions that tell inference servers apart",
            hint="give the base URL of the server, such as http://127.0.0.1:8000, or name the dialect yourself",
        )
    models = _models(answers)
    engine, source = _engine(answers)
    first = _first_model(answers)
    schema = _dict(answers.get("/openapi.json"))
    info = _dict(answers.get("/server_info"))
    routes = tuple(_dict(schema.get("paths")))
    known: dict[str, object] = {
        "engine": engine,
        "version": _version(answers),
        "models": models or None,
        "model_root": _text(first.get("root")),
        "max_model_len": _count(first.get("max_model_len")) or _count(info.get("context_length")),
        "fields": (engine not in GATEWAYS and _fields(schema)) or None,
        "routes": routes or None,
        "tokenizer": _tokenizes(engine, routes) or None,
        "vocab_size": _count(info.get("vocab_size")),
        "deterministic": _flag(info.get("enable_deterministic_inference")),
        "fingerprint": _text(_dict(answers.get("/model_info")).get("weight_version")),
        "plugin": _plugin(answers.get("/logproof/status")),
    }
    values = {k: v for k, v in known.items() if v is not None}
    sources = {k: source if k == "engine" else _SOURCES.get(k, "/v1/models") for k in values}
    return msgspec.convert({**msgspec.to_builtins(values), "sources": sources}, Facts)


_SOURCES = {
    "version": "/version or /server_info",
    "fields": "/openapi.json",
    "routes": "/openapi.json",
    "tokenizer": "/openapi.json",
    "vocab_size": "/server_info",
    "deterministic": "/server_info",
    "fingerprint": "/model_info",
    "plugin": "/logproof/status",
}


def _tokenizes(engine: str | None, routes: Collection[str]) -> bool:
    """Whether the server answers on /tokenize and /detokenize. SGLang does, and lists them below /v1."""
    below = "/v1" if engine == "sglang" else ""
    return f"{below}/tokenize" in routes and f"{below}/detokenize" in routes


async def _ask_all(sender: Sender) -> dict[str, object]:
    results = await asyncio.gather(*(_ask(sender, path) for path in QUESTIONS), return_exceptions=True)
    answers: dict[str, object] = {}
    failures: list[EndpointError] = []
    for path, result in zip(QUESTIONS, results, strict=True):
        if isinstance(result, EndpointError):
            failures.append(result)
        elif isinstance(result, BaseException):
            raise result
        elif result is not None:
            answers[path] = result
    auth = next((f for f in failures if isinstance(f, AuthError)), None)
    if auth is not None and not answers.keys() - _UNGUARDED:
        raise auth
    outage = next((f for f in failures if isinstance(f, (TransportError, ServerFault, RateLimited))), None)
    if outage is not None and not answers:
        raise outage
    return answers


async def _ask(sender: Sender, path: str) -> object:
    reply = await sender.send(WireRequest(path=path, method="GET"))
    try:
        return msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, RecursionError):
        return None


async def _vllm_limits(sender: Sender, facts: Facts) -> Facts:
    """Two requests that vLLM refuses with its widest top-k and its vocabulary size in the message, and one token."""
    ask = {"model": facts.models[0], "prompt": "a", "max_tokens": 1}
    width = await _refusal(sender, {**ask, "logprobs": 1_000_000}, _LIMIT)
    vocabulary = await _refusal(sender, {**ask, "logit_bias": {"2000000000": 1}}, _VOCABULARY)
    reply = await _one_token(sender, ask)
    known = {
        "max_logprobs": (width, "a refused request"),
        "vocab_size": (vocabulary, "a refused request"),
        "logprobs_mode": (_logprobs_mode(reply), "a token sampled with top_k 1"),
        "fingerprint": (reply.system_fingerprint if reply is not None else None, "the reply to one token"),
    }
    values = {name: value for name, (value, _) in known.items() if value is not None}
    sources = {**facts.sources, **{name: known[name][1] for name in values}}
    return msgspec.convert({**msgspec.to_builtins(facts), **values, "sources": sources}, Facts)


async def _sglang_vocabulary(sender: Sender, facts: Facts) -> Facts:
    """Facts with the vocabulary size, from a label id outside it: refused early, where an input id would end SGLang."""
    params = {"max_new_tokens": 0, "temperature": 0.0}
    body = {"text": "a", "sampling_params": params, "return_logprob": True, "token_ids_logprob": [2**31 - 1]}
    size = await _refusal(sender, body, _VALID_RANGE, "/generate")
    if size is None:
        return facts
    return msgspec.structs.replace(facts, vocab_size=size, sources={**facts.sources, "vocab_size": "a refused request"})


async def _one_token(sender: Sender, ask: dict[str, object]) -> completions.CompletionsBody | None:
    """The reply to one token sampled with top_k 1, or None where the server gives none."""
    body = msgspec.json.encode({**ask, "logprobs": 0, "temperature": 2.0, "top_k": 1, "seed": 0})
    try:
        return completions.read((await sender.send(WireRequest(path=COMPLETIONS, body=body))).body)
    except EndpointError:
        return None


def _logprobs_mode(reply: completions.CompletionsBody | None) -> Literal["raw", "processed"] | None:
    """What a sampled logprob is a logprob of: with top_k 1 a processed one is 0, the raw one is what it was.

    None where the server gives no logprob, or one above 0: a server may be started to report logits.
    """
    try:
        values = completions.read_logprobs(reply.choices[0], 0).values if reply is not None and reply.choices else []
    except BadReply:
        return None
    if len(values) != 1 or values[0] is None or values[0] > 0:
        return None
    return "processed" if values[0] == 0 else "raw"


async def _refusal(
    sender: Sender, body: Mapping[str, object], pattern: re.Pattern[str], path: str = COMPLETIONS
) -> int | None:
    try:
        await sender.send(WireRequest(path=path, body=msgspec.json.encode(body)))
    except StatusError as error:
        match = pattern.search(error.server_message)
        return int(match[1]) if match else None
    except EndpointError:
        return None
    return None


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    """A text that says something; None for whatever else a server sends."""
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    """A whole number above 0; JSON's true is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _entries(answers: Answers) -> list[dict[str, object]]:
    listed = _dict(answers.get("/v1/models")).get("data") or _dict(answers.get("/v1beta/models")).get("models")
    return [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []


def _models(answers: Answers) -> tuple[str, ...]:
    names = [_text(e.get("id")) or (_text(e.get("name")) or "").removeprefix("models/") for e in _entries(answers)]
    served = _text(_dict(answers.get("/model_info")).get("served_model_name"))
    return tuple(n for n in names if n) or ((served,) if served else ())


def _first_model(answers: Answers) -> dict[str, object]:
    return next(iter(_entries(answers)), {})


def _engine(answers: Answers) -> tuple[str | None, str]:
    """The kind of server, and the question that shows it. Gateways come first: they look like what they front."""
    if _about(answers).get("title") == _LITELLM:
        return "litellm", "/openapi.json title"
    owners = {str(e.get("owned_by")) for e in _entries(answers)}
    if "vllm" in owners:
        return "vllm", "/v1/models owned_by"
    if "sglang" in owners or "served_model_name" in _dict(answers.get("/model_info")):
        return "sglang", "/v1/models owned_by or /model_info"
    if owners & {"llamacpp"} or "default_generation_settings" in _dict(answers.get("/props")):
        return "llama.cpp", "/v1/models owned_by or /props"
    if "max_total_tokens" in _dict(answers.get("/info")) or "docker_label" in _dict(answers.get("/info")):
        return "tgi", "/info"
    if any(e.get("type") == "model" for e in _entries(answers)):
        return "anthropic", "/v1/models type"
    if "/v1beta/models" in answers and "models" in _dict(answers["/v1beta/models"]):
        return "gemini", "/v1beta/models"
    if any(owner.startswith(("openai", "system")) for owner in owners):
        return "openai", "/v1/models owned_by"
    if "version" in _dict(answers.get("/version")) and _mentions_vllm(answers):
        return "vllm", "/openapi.json"
    return None, "no answer tells"


def _mentions_vllm(answers: Answers) -> bool:
    paths = _dict(_dict(answers.get("/openapi.json")).get("paths"))
    return "/is_scaling_elastic_ep" in paths or "/generative_scoring" in paths


def _about(answers: Answers) -> dict[str, object]:
    return _dict(_dict(answers.get("/openapi.json")).get("info"))


def _version(answers: Answers) -> str | None:
    for question in ("/version", "/server_info", "/info"):
        version = _text(_dict(answers.get(question)).get("version"))
        if version is not None:
            return version
    return _text(_about(answers).get("version")) if _about(answers).get("title") == _LITELLM else None


def _fields(schema: dict[str, object]) -> dict[str, list[str]]:
    """{route: names of its POST body's top-level fields} of an OpenAPI document."""
    fields = {}
    for route, item in _dict(schema.get("paths")).items():
        body = _dict(_dict(_dict(item).get("post")).get("requestBody"))
        content = _dict(_dict(_dict(body.get("content")).get("application/json")).get("schema"))
        names = list(_properties(content, schema))
        if names:
            fields[route] = names
    return fields


def _properties(schema: dict[str, object], document: dict[str, object]) -> dict[str, object]:
    ref = schema.get("$ref")
    if isinstance(ref, str):
        schemas = _dict(_dict(document.get("components")).get("schemas"))
        schema = _dict(schemas.get(ref.rsplit("/", 1)[-1]))
    return _dict(schema.get("properties"))


def _plugin(status: object) -> Plugin | None:
    """The plugin's status document (plugin/src/logproof_vllm/server/endpoint.py gives its form)."""
    document = _dict(status)
    version = _text(document.get("version"))
    if version is None:
        return None
    features = _dict(document.get("features"))
    ready = document.get("ready") is True
    return Plugin(
        version=version,
        enforced_replay=ready and features.get("enforced_replay") is True,
        logprobs_mode=ready and features.get("logprobs_mode") is True,
        default_mode=_text(document.get("logprobs_mode")),
        reason=_text(document.get("reason")),
        status=document,
    )


class _SamplingEcho(msgspec.Struct, frozen=True):
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


async def default_sampling(sender: Sender, facts: Facts) -> dict[str, float]:
    """Ask for the sampling that an engine takes where a request says nothing: leaf -> value. One token is generated.

    vLLM's /v1/responses repeats the sampling that it used, and fills gaps from the same generation config as its chat
    and completions routes (read in 0.32). It names four of the leaves; top_k, min_p and the repetition penalty are in
    no reply. Empty where the engine names nothing.
    """
    if facts.engine != "vllm" or RESPONSES not in facts.routes or not facts.models:
        return {}
    body = {"model": facts.models[0], "input": "a", "max_output_tokens": 1, "store": False}
    try:
        reply = await sender.send(WireRequest(path=RESPONSES, body=msgspec.json.encode(body)))
        echo = msgspec.json.decode(reply.body, type=_SamplingEcho)
    except (EndpointError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    values = {name: getattr(echo, name) for name in _SamplingEcho.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
