"""What the body of a recorded request states, read as its dialect writes it: sampling, model and choices. Pure.

Captures, the records of the proxy and the check that holds a record against its request all read bodies here, so none
of them takes a field for something else than the others do. A field that is null states nothing.
"""

from __future__ import annotations

import re

import msgspec

from logproof.errors import ArtifactError
from logproof.verify.artifact import grammar
from logproof.verify.artifact.artifact import Artifact, RecordedSampling, Sent, Source

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

EMPTY: dict[str, object] = {
    "logit_bias": {},
    "bad_words": (),
    "allowed_ids": (),
    "min_tokens": 0,
    "stop": (),
    "stop_token_ids": (),
    "ignore_eos": False,
}
"""Leaves whose absence from a body asks for this value; vLLM and SGLang fill them from no configuration."""
COMPLETION_TOKENS = 16
"""max_tokens of a vLLM completion request that does not name it."""
_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "bad_words",
    "stop",
    "stop_token_ids",
    "ignore_eos",
)
"""Leaves that OpenAI's wires, as vLLM extends them, and SGLang's native one call as the record does."""


class BodyForm(msgspec.Struct, frozen=True):
    """Where the body of one dialect states each leaf.

    route: regular expression of its paths. pointers: leaf, or "model", "n", "seed" -> JSON pointers, of which the first
    that states something counts. Without a pointer of the model, the wire names none.
    """

    route: str
    pointers: dict[str, tuple[str, ...]]


def _form(route: str, pointers: dict[str, str], under: str = "", **more: tuple[str, ...]) -> BodyForm:
    return BodyForm(route, {**{leaf: (f"{under}/{name}",) for leaf, name in pointers.items()}, **more})


_COMPLETION_NAMES = {
    **{name: name for name in (*_SAME_NAME, "min_tokens", "max_tokens", "seed", "n", "model")},
    "allowed_ids": "allowed_token_ids",
}
_COMPLETION_FORM = _form(re.escape(COMPLETIONS), _COMPLETION_NAMES)
FORMS: dict[str, BodyForm] = {
    "vllm_native": _COMPLETION_FORM,
    "openai_completions": _COMPLETION_FORM,
    "openai_chat": _form(re.escape(CHAT), _COMPLETION_NAMES, max_tokens=("/max_completion_tokens", "/max_tokens")),
    "openai_responses": _form(
        "/v1/responses",
        {**{k: v for k, v in _COMPLETION_NAMES.items() if k != "n"}, "max_tokens": "max_output_tokens"},
    ),
    "anthropic_messages": _form(
        "/v1/messages",
        {
            **{name: name for name in ("model", "temperature", "top_p", "top_k", "max_tokens")},
            "stop": "stop_sequences",
        },
    ),
    "google_genai": _form(
        ".*:(generateContent|streamGenerateContent)",
        {
            **{name: name for name in ("temperature", "seed")},
            "top_p": "topP",
            "top_k": "topK",
            "max_tokens": "maxOutputTokens",
            "stop": "stopSequences",
            "frequency_penalty": "frequencyPenalty",
            "presence_penalty": "presencePenalty",
            "n": "candidateCount",
        },
        "/generationConfig",
    ),
    "sglang_native": _form(
        "/generate",
        {
            **{name: name for name in (*_SAME_NAME, "n")},
            "min_tokens": "min_new_tokens",
            "max_tokens": "max_new_tokens",
            "seed": "sampling_seed",
        },
        "/sampling_params",
    ),
}
"""By the dialect's id, how its bodies are read."""


class StatedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a request states.

    sampling: its leaves, each with the source "request", the seed as the requester's, and what constrains the text;
    None where it states nothing. pointers: leaf (or "model", "n", "seed") -> where the body states it. model: None
    where the body names none. names_model: whether its wire has a place for that. n: choices asked.
    """

    sampling: RecordedSampling
    pointers: dict[str, str]
    model: str | None
    names_model: bool
    n: int


def stated_request(sent: Sent) -> StatedRequest:
    """Read a request. Raises ArtifactError for a dialect or path that is not known, for a body that is no JSON object,
    and for a value that no engine takes."""
    form = FORMS.get(sent.dialect)
    if form is None:
        raise ArtifactError(f"bodies of the dialect {sent.dialect} are not read")
    if re.fullmatch(form.route, sent.path) is None:
        raise ArtifactError(f"{sent.dialect} sends nothing to {sent.path}")
    if not isinstance(sent.body, dict):
        raise ArtifactError("the body of the request is no JSON object")
    pointers = {leaf: at for leaf, places in form.pointers.items() if (at := _first(sent.body, places)) is not None}
    values = {leaf: value_at(sent.body, at) for leaf, at in pointers.items()}
    model, n = values.pop("model", None), values.pop("n", 1)
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ArtifactError(f"{n!r} is no number of choices")
    try:
        constraint = grammar.digest(sent.body)
    except RecursionError:
        raise ArtifactError("the body of the request is nested too deeply") from None
    return StatedRequest(
        sampling=_sampling(values, constraint),
        pointers=pointers,
        model=None if model is None else str(model),
        names_model="model" in form.pointers,
        n=n,
    )


def read_stated(artifact: Artifact) -> StatedRequest | None:
    """What the recorded request states; None where its body cannot be read."""
    try:
        return stated_request(artifact.request)
    except ArtifactError:
        return None


def value_at(body: object, pointer: str) -> object:
    """The value behind a JSON pointer; None where there is none."""
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(body, list):
            body = {str(i): inner for i, inner in enumerate(body)}
        body = body.get(name) if isinstance(body, dict) else None
    return body


def with_limit(sent: Sent, limit: int) -> Sent:
    """The request with this limit of tokens, where it states one that can be read; itself otherwise."""
    try:
        at = stated_request(sent).pointers.get("max_tokens")
    except ArtifactError:
        return sent
    return sent if at is None else msgspec.structs.replace(sent, body=_placed(sent.body, at.split("/")[1:], limit))


def _placed(body: object, names: list[str], value: object) -> object:
    """The body with this value behind names of objects, from the outermost on."""
    if not names:
        return value
    inner = body if isinstance(body, dict) else {}
    return {**inner, names[0]: _placed(inner.get(names[0]), names[1:], value)}


def _first(body: dict[str, object], places: tuple[str, ...]) -> str | None:
    return next((at for at in places if value_at(body, at) is not None), None)


def _sampling(values: dict[str, object], constraint: str) -> RecordedSampling:
    seed = values.pop("seed", None)
    sources: dict[str, Source] = dict.fromkeys(values, "request")
    if isinstance(values.get("stop"), str):
        values["stop"] = (values["stop"],)
    if values.get("top_k") == -1:
        values["top_k"] = 0
    if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0:
        values["seed"] = {"value": seed, "origin": "requester"}
    whole = {**values, "structured_output": constraint, "sources": sources}
    try:
        return msgspec.convert(whole, RecordedSampling, strict=False)
    except msgspec.ValidationError as error:
        raise ArtifactError(f"the request's sampling cannot be read: {error}") from None


def protocol_values(engine: str | None, path: str) -> dict[str, object]:
    """Leaves that the protocol of this engine fixes where a request leaves them out. Others fall back to the model's
    generation config."""
    if engine != "vllm":
        return {}
    return {**EMPTY, "max_tokens": COMPLETION_TOKENS} if path == COMPLETIONS else dict(EMPTY)


def filled_in(artifact: Artifact) -> Artifact:
    """The record with what it leaves open and its request leaves out as the protocol has it, unsealed; itself where
    the request cannot be read. Else an executor could switch tests off by leaving out what everybody knows."""
    stated = read_stated(artifact)
    if stated is None:
        return artifact
    fixed = protocol_values(artifact.claim.engine.name, artifact.request.path)
    values = {leaf: value for leaf, value in fixed.items() if leaf not in stated.pointers}
    if fixed:
        values["structured_output"] = stated.sampling.structured_output
    return msgspec.structs.replace(artifact, sampling=with_protocol(artifact.sampling, values))


def with_protocol(sampling: RecordedSampling, values: dict[str, object]) -> RecordedSampling:
    """The sampling with leaves that it leaves open as the protocol has them."""
    gaps = {leaf: value for leaf, value in values.items() if getattr(sampling, leaf) is None}
    sources: dict[str, Source] = {**dict.fromkeys(gaps, "protocol"), **sampling.sources}
    return msgspec.structs.replace(sampling, **gaps, sources=sources)
