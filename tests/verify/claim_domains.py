"""Values that the accused may write into each field of a record: of its type, of a wrong one, extreme, or plausible."""

from __future__ import annotations

import json
import typing
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from logproof.errors import ArtifactError
from logproof.verify.artifact.artifact import (
    Artifact,
    RecordedSampling,
    UnreadableRecord,
    artifact_digest,
    decode_artifact,
    encode_artifact,
)
from logproof.verify.artifact.seeds import derive_seed
from logproof.verify.field_table import FIELDS, field_types
from logproof.verify.stats.sampler_profiles import PROFILES

ABSENT = object()
"""Stands for a key that is left out."""
TYPES = dict(field_types())
SEALED = tuple(path for path in FIELDS if path.split(".")[0] == "seal")
CLAIMS = tuple(path for path, field in FIELDS.items() if field.kind == "claim")
"""Fields that the accused states beside its evidence."""

Change = tuple[str, Any]
"""Path and value; the value may be ABSENT."""

WRONG: tuple[object, ...] = ("x", 7, -0.5, True, {}, [], {"x": 1}, [None])
"""Values of every JSON type; most do not fit a given field."""
INTEGERS = (-1, 0, 1, 2, 3, 8, 9, 10, 11, 16, 19, 20, 21, 49, 50, 51, 1000, 10**6, 2**31 - 1, 2**31, 2**63 - 1, 2**64)
FLOATS = (-1.0, 0.0, 1e-300, 1e-6, 0.001, 0.005, 0.05, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.0001, 1.1, 1.5, 2.0, 1e300)
TEXTS = ("", "x", "request", "stop", "length", "tool_calls", "0" * 64, "a" * 10_000)
SOURCES = ("request", "protocol", "engine", "generation_config", "operator")
LEAVES = tuple(n for n in RecordedSampling.__struct_fields__ if n not in ("seed", "sources"))


def _seeds() -> list[object]:
    """Whole seeds, among them some that follow from nonces of the executor's own."""
    own = [
        {"value": derive_seed("mine", name), "origin": "derived", "derivation": _derivation("mine", name)}
        for name in ("p", "q")
    ]
    plain = [{"value": v, "origin": o} for v in (0, 7, 2**63) for o in ("requester", "executor", "unknown")]
    return [*own, *plain]


def _derivation(nonce: str, name: str) -> dict[str, str]:
    return {"alg": "sha256-31", "nonce": nonce, "id": name}


def _sources() -> list[object]:
    return [{}, *(dict.fromkeys(LEAVES, s) for s in SOURCES), *({n: s} for n in LEAVES for s in SOURCES)]


def _bodies(body: dict[str, Any]) -> list[object]:
    """Other bodies: with a field left out, or of another value."""
    less = [{k: v for k, v in body.items() if k != name} for name in body]
    other = {
        "temperature": (0.0, 0.7, 1.1, 2.0),
        "top_p": (0.8, 0.95),
        "seed": (derive_seed("mine", "p"), 7, None),
        "prompt": ("other", [41, 17, 29, 23]),
        "max_tokens": (8, 100),
        "model": ("other",),
        "n": (2,),
        "stop": (["x"],),
        "logprobs": (5, None),
        "stop_token_ids": ([0], list(range(50))),
    }
    more = [{**body, name: value} for name, values in other.items() for value in values]
    return [*less, *more, None, [], "", {}]


FALSE_SIGNATURE = {"alg": "ed25519", "key_id": "0" * 64, "value": "0" * 128}
PLAUSIBLE: dict[str, tuple[object, ...]] = {
    "schema": ("logproof-artifact/2", "logproof-policy/2"),
    "claim.model.id": ("tiny", "other", ""),
    "claim.numerics.dtype": ("float32", "bfloat16", "float16", "int8", "fp8"),
    "claim.numerics.quantization": ("int8", "fp8", "awq"),
    "claim.engine.name": ("vllm", "sglang", "openai", "llama.cpp", "VLLM"),
    "claim.engine.version": ("0.32.0", "0.32.1", "0.31.0", "0.28.0", "0.24.0", "1.0", "0.5.23"),
    "claim.engine.runner": ("v1", "v2"),
    "claim.engine.device": ("cpu", "cuda", "rocm"),
    "claim.sampler_profile": tuple(PROFILES),
    "request.dialect": (
        "vllm_native",
        "openai_completions",
        "openai_chat",
        "openai_responses",
        "anthropic_messages",
        "google_genai",
        "sglang_native",
    ),
    "request.path": ("/v1/completions", "/v1/chat/completions", "/generate", "/v1/responses", "/v1/messages"),
    "request.redactions": (["/temperature"], ["/prompt"], ["/seed"], [""], ["/"], ["/prompt", "/seed", "/top_p"]),
    "sampling.logit_bias": ({}, {"5": -100.0}, {"5": 100.0}, {"x": 1.0}, {"5": 0.0}),
    "sampling.stop_token_ids": ([0], list(range(50))),
    "sampling.allowed_ids": ([], list(range(50)), [1, 2, 3]),
    "sampling.structured_output": ("", "0" * 64),
    "sampling.sources": tuple(_sources()),
    "sampling.seed": tuple(_seeds()),
    "sampling.seed.derivation": (_derivation("mine", "p"), _derivation("mine", "q")),
    "sampling.seed.value": (derive_seed("mine", "p"), derive_seed("mine", "q"), 7),
    "logprobs.denominator": (1024, 512, 4096, 2, 1 << 40, 1 << 41),
    "end.stop_reason": (0, 5, "x"),
    "seal.signature": (FALSE_SIGNATURE,),
    "seal.digest": ("0" * 64,),
}


def domain(path: str, record: Any) -> list[object]:
    """Values for this field of a record in JSON; its own is not among them."""
    kind, own = TYPES[path], value_of(record, path)
    values = [ABSENT, None, *WRONG, *PLAUSIBLE.get(path, ()), *_typed(kind)]
    if path == "request.body":
        values += _bodies(own if isinstance(own, dict) else {})
    if path == "positions.kept":
        n = len(record["tokens"]["completion_ids"])
        values += [[w] * n for w in (0, 1, 5, 10, 50)]
    if path == "tokens.prompt_ids" and own:
        values += [own[1:], own[-4:], [41, 17, 29, 23, *own], own[::-1], [0], list(range(50))]
    if isinstance(own, int | float) and not isinstance(own, bool):
        values += [own + 1, own - 1, own * 2]
    if isinstance(own, str):
        values += [f"{own}x", own.upper()]
    distinct = {repr(v): v for v in values if v != own or type(v) is not type(own)}
    return list(distinct.values())


def _typed(kind: object) -> list[object]:
    parts = [kind, *typing.get_args(kind)]
    values: list[object] = []
    for part in parts:
        if typing.get_origin(part) is typing.Literal:
            values += typing.get_args(part)
        if part is bool:
            values += [True, False]
        if part is int:
            values += INTEGERS
        if part is float:
            values += FLOATS
        if part is str:
            values += TEXTS
        if part == tuple[int, ...]:
            values += [[], [0], [1, 2, 3], [-1], [2**63]]
        if part == tuple[str, ...]:
            values += [[], ["x"], [""], ["x", "y"]]
    return values


def value_of(record: Any, path: str) -> Any:
    """The value at this path of a record in JSON; ABSENT where there is none."""
    for name in path.split("."):
        if not isinstance(record, dict) or name not in record:
            return ABSENT
        record = record[name]
    return record


def plain_record(artifact: Artifact) -> Any:
    """The record in JSON."""
    return json.loads(encode_artifact(artifact))


def stated(record: Any, changes: Sequence[Change]) -> Artifact | UnreadableRecord:
    """The record with these fields stated otherwise, sealed again, as a verifier reads it. Changes of the seal come
    after it."""
    made = json.loads(json.dumps(record))
    for path, value in changes:
        if path not in SEALED:
            _set(made, path, value)
    read = _read(made)
    late = [change for change in changes if change[0] in SEALED]
    if isinstance(read, UnreadableRecord):
        return read
    made["seal"] = {"digest": artifact_digest(read)}
    for path, value in late:
        if path.startswith("seal.signature.") and isinstance(made.get("seal"), dict):
            made["seal"].setdefault("signature", dict(FALSE_SIGNATURE))
        _set(made, path, value)
    return _read(made)


def _read(made: Any) -> Artifact | UnreadableRecord:
    try:
        return decode_artifact(json.dumps(made))
    except ArtifactError as error:
        return UnreadableRecord("record", error.message, "0" * 64)


def _set(made: Any, path: str, value: object) -> None:
    """Put a value; groups that are not there are made."""
    *groups, name = path.split(".")
    for group in groups:
        if not isinstance(made.get(group), dict):
            made[group] = {}
        made = made[group]
    if value is ABSENT:
        made.pop(name, None)
    else:
        made[name] = value


def readable(record: Any, path: str) -> list[object]:
    """The values of the domain that a verifier can read."""
    return [v for v in domain(path, record) if isinstance(stated(record, [(path, v)]), Artifact)]


def dangerous(path: str, record: Any) -> list[object]:
    """The values of the domain that are of the field's type, or leave it out."""
    kind = TYPES[path]
    return [v for v in domain(path, record) if v is ABSENT or _fits(v, kind)] or [ABSENT]


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def joint(values: dict[str, list[object]], random: Random) -> list[Change]:
    """A random assignment of several claims at once. values: those that may be taken for each field."""
    count = random.choice((2, 3, 4, 6, 9, 14, 25))
    return [(path, random.choice(values[path])) for path in random.sample(list(values), count)]
