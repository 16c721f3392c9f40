"""The artifact: one recorded inference, as data that another party can check.

Flow: capture or proxy build one and seal it; artifact_files.py carries it; checks/structure.py checks it; replay and
the statistics read it. Ids decide; texts are comments. What is not known says so (None, "unknown", or a name in
`unresolved`) and is never filled in. A record without ids is accepted and can only end inconclusive.

Canonical form: UTF-8 JSON with sorted keys and no spaces, every float written as `float.hex()`, and each column of
`positions` replaced by the SHA-256 of its little-endian bytes (zeros positive). The seal, and `sources` where it is
empty, are left out. The digest is its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import chain
from typing import Literal

import msgspec
import numpy as np

from logproof.errors import ArtifactError
from logproof.verify.artifact.columns import Columns, make_columns

SCHEMA = "logproof-artifact/1"
MAX_BYTES = 64 * 1024 * 1024
"""Largest JSON document of one artifact that is read."""

MAX_DEPTH = 100
"""Levels of arrays and objects in a recorded request."""

Mode = Literal["raw", "processed", "constrained", "unknown"]
Origin = Literal["requester", "derived", "executor", "unknown"]
Source = Literal["request", "protocol", "engine", "generation_config", "operator"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all parts: unknown keys are refused."""


class Producer(Record, frozen=True, kw_only=True):
    """The program that wrote the artifact."""

    name: str
    version: str


class ModelClaim(Record, frozen=True, kw_only=True):
    """The claimed model. Digests are lower-case hex SHA-256. vocab_size: ids below it are valid.

    eos_ids: ids that end a completion. None is unknown.
    """

    id: str
    revision: str | None = None
    weights_digest: str | None = None
    tokenizer_digest: str | None = None
    chat_template_digest: str | None = None
    vocab_size: int | None = None
    eos_ids: tuple[int, ...] | None = None


class Numerics(Record, frozen=True, kw_only=True):
    """Number formats as claimed: float32, bfloat16, float16, or the quantisation's own name. None: unknown."""

    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    head_dtype: str | None = None


class EngineClaim(Record, frozen=True, kw_only=True):
    """The claimed engine. spec_decode, prefix_caching, batch_invariant: None is unknown."""

    name: str | None = None
    version: str | None = None
    runner: str | None = None
    device: str | None = None
    batch_invariant: bool | None = None
    spec_decode: bool | None = None
    prefix_caching: bool | None = None


class Claim(Record, frozen=True, kw_only=True):
    """What the executor says it ran. sampler_profile: an id of sampler_profiles.py, None where not known."""

    model: ModelClaim
    numerics: Numerics = Numerics()
    engine: EngineClaim = EngineClaim()
    sampler_profile: str | None = None


class Derivation(Record, frozen=True, kw_only=True):
    """How a seed follows from the requester's nonce and the request id (`derive_seed`)."""

    alg: Literal["sha256-31"]
    nonce: str
    id: str


class Seed(Record, frozen=True, kw_only=True):
    """A seed and who chose it. It binds the executor only where the recorded request states it."""

    value: int
    origin: Origin
    derivation: Derivation | None = None


class RecordedSampling(Record, frozen=True, kw_only=True):
    """The effective values that the engine used, after its defaults. None is unresolved, for every field.

    top_k 0 is off. structured_output: digest of the constraint, "" for none. logit_bias: id -> added logit.
    sources: leaf -> where its value comes from: the request, the engine's protocol, the engine's own word about its
    defaults, a generation config, or the operator's statement. A leaf without one does not say.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    bad_words: tuple[str, ...] | None = None
    allowed_ids: tuple[int, ...] | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    stop_token_ids: tuple[int, ...] | None = None
    ignore_eos: bool | None = None
    structured_output: str | None = None
    seed: Seed | None = None
    sources: dict[str, Source] = {}

    def unresolved(self) -> tuple[str, ...]:
        """Names of the leaves whose effective value is not known. A seed may be absent without being unresolved."""
        return tuple(f for f in self.__struct_fields__ if f != "seed" and getattr(self, f) is None)


class Sent(Record, frozen=True, kw_only=True):
    """The request as it left. body: the JSON body after redactions; redactions: JSON pointers that were blanked."""

    dialect: str
    path: str
    body: object = None
    redactions: tuple[str, ...] = ()


class ChoiceRef(Record, frozen=True, kw_only=True):
    """Which of n choices this is."""

    n: int
    index: int


class LogprobsSpec(Record, frozen=True, kw_only=True):
    """How the logprobs were recorded.

    mode: raw (the model's own), processed (after temperature and cuts) or constrained (raw, over the tokens that a
    grammar lets through). k: entries asked a position.
    format: float32, or fixed with `denominator` steps a nat. step: largest rounding error of a value against the
    engine's own, in nats (0 where the engine's float32 is kept).
    """

    mode: Mode
    k: int
    format: Literal["float32", "fixed"]
    denominator: int | None = None
    step: float = 0.0


class TokenIds(Record, frozen=True, kw_only=True):
    """Ids that went in and came out. None: the source gave texts only. prompt_cut: ids dropped by the server."""

    prompt_ids: tuple[int, ...] | None
    completion_ids: tuple[int, ...] | None
    prompt_cut: int | None = None


class Positions(Record, frozen=True, kw_only=True):
    """Columns over the completion's n tokens. sampled: logprob of each token, None unreported.

    ids, logprobs: the recorded best entries of each position. kept: size of the sampling support, if told.
    """

    sampled: tuple[float | None, ...]
    ids: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]
    kept: tuple[int, ...] | None = None


class RecordedUsage(Record, frozen=True, kw_only=True):
    """Token counts as reported. None is unreported."""

    prompt: int | None = None
    completion: int | None = None


class End(Record, frozen=True, kw_only=True):
    """How the completion ended. finish_reason: the wire's word. stop_reason: matched stop string or id, if told."""

    finish_reason: str | None
    stop_reason: str | int | None = None
    usage: RecordedUsage = RecordedUsage()


class Provenance(Record, frozen=True, kw_only=True):
    """Where the record comes from. Digests: SHA-256 hex over the exact bytes of request and reply.

    endpoint holds no user name, key or query. chunks: events of a streamed reply.
    """

    endpoint: str
    request_sha256: str | None = None
    response_sha256: str | None = None
    streamed: bool = False
    chunks: int | None = None
    fingerprint: str | None = None
    served_model: str | None = None
    text: str | None = None


class Signature(Record, frozen=True, kw_only=True):
    """An ed25519 signature over the digest's 32 bytes. key_id: hex of the public key. value: hex."""

    alg: Literal["ed25519"]
    key_id: str
    value: str


class Seal(Record, frozen=True, kw_only=True):
    """SHA-256 of the canonical form, hex, and an optional signature."""

    digest: str
    signature: Signature | None = None


class Artifact(Record, frozen=True, kw_only=True):
    """One recorded inference. created_at: RFC 3339 in UTC. positions: None where no logprobs were recorded."""

    schema: Literal["logproof-artifact/1"]
    artifact_id: str
    created_at: str
    producer: Producer
    claim: Claim
    request: Sent
    sampling: RecordedSampling
    choice: ChoiceRef
    logprobs: LogprobsSpec | None
    tokens: TokenIds
    positions: Positions | None
    end: End
    provenance: Provenance
    seal: Seal | None = None


class UnreadableRecord(msgspec.Struct, frozen=True):
    """A line or row of a file that is no artifact. where: file and line, or row. digest: SHA-256 hex of its bytes, of
    a row of its JSON text alone."""

    where: str
    detail: str
    digest: str


def artifact_columns(artifact: Artifact) -> Columns:
    """The artifact's positions as arrays. Raises ArtifactError where ids or logprobs were not recorded."""
    ids, rows = artifact.tokens.completion_ids, artifact.positions
    if ids is None or rows is None:
        raise ArtifactError("this artifact holds no token ids or no logprobs", hint="it can be stored, not replayed")
    try:
        return make_columns(ids, rows.sampled, rows.ids, rows.logprobs)
    except ValueError as error:
        raise ArtifactError(f"artifact columns do not fit together: {error}") from None


def positions_of(columns: Columns, kept: tuple[int, ...] | None = None) -> Positions:
    """Columns as the artifact writes them; entries of a row in the columns' order."""
    drawn = (None if np.isnan(v) else v for v in columns.sampled_logprobs.tolist())
    counts = columns.present.sum(axis=1).tolist()
    return Positions(
        sampled=tuple(drawn),
        ids=tuple(tuple(r[:c]) for r, c in zip(columns.ids.tolist(), counts, strict=True)),
        logprobs=tuple(tuple(r[:c]) for r, c in zip(columns.logprobs.tolist(), counts, strict=True)),
        kept=kept,
    )


def decode_artifact(data: bytes | str) -> Artifact:
    """One artifact from JSON. Raises ArtifactError: too large, not JSON, unknown or missing keys, wrong types, or
    values that its digest has no place for."""
    if len(data) > MAX_BYTES:
        raise ArtifactError(f"artifact of {len(data)} bytes; the limit is {MAX_BYTES}")
    try:
        artifact = msgspec.json.decode(data, type=Artifact)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"artifact is malformed: {error}") from None
    if artifact.positions is not None and not _fits_digest(artifact.positions):
        raise ArtifactError("artifact is malformed: a number of its positions does not fit 64 bits")
    if _is_deep(artifact.request.body):
        raise ArtifactError(f"artifact is malformed: its request's body has more than {MAX_DEPTH} levels")
    return artifact


def _fits_digest(rows: Positions) -> bool:
    """Whether all whole numbers of these columns fit the signed 64 bits in which they are digested."""
    numbers = [*chain.from_iterable(rows.ids), *(rows.kept or ())]
    return not numbers or (min(numbers) >= -(2**63) and max(numbers) < 2**63)


def _is_deep(body: object) -> bool:
    """Whether a JSON value is nested beyond MAX_DEPTH, where recursive code would end the program."""
    level = [body]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for value in level for inner in _members(value)]
        if not level:
            return False
    return True


def _members(value: object) -> Iterable[object]:
    """What a JSON array or object holds."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def encode_artifact(artifact: Artifact) -> bytes:
    """The artifact as one line of JSON."""
    return msgspec.json.encode(artifact)


def artifact_schema() -> dict[str, object]:
    """JSON Schema (2020-12) of an artifact."""
    schema: dict[str, object] = msgspec.json.schema(Artifact, schema_hook=_any_json)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}


def _any_json(kind: type) -> dict[str, object]:
    """Schema of a field that holds any JSON value."""
    if kind is not object:
        raise NotImplementedError(kind)
    return {"description": "any JSON value"}


def canonical_form(artifact: Artifact) -> bytes:
    """The canonical form described above. Raises ArtifactError for a non-finite number or an id beyond 64 bits."""
    body = msgspec.to_builtins(artifact)
    del body["seal"]
    if not artifact.sampling.sources:
        del body["sampling"]["sources"]
    if artifact.positions is not None:
        body["positions"] = _column_digests(artifact.positions)
    return json.dumps(plain_json(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def artifact_digest(artifact: Artifact) -> str:
    """SHA-256 hex of the canonical form."""
    return hashlib.sha256(canonical_form(artifact)).hexdigest()


def seal(artifact: Artifact) -> Artifact:
    """The artifact with its digest, unsigned."""
    return msgspec.structs.replace(artifact, seal=Seal(digest=artifact_digest(artifact)))


def _column_digests(rows: Positions) -> dict[str, object]:
    try:
        flat = {
            "sampled": np.array([np.nan if v is None else v for v in rows.sampled], "<f8") + 0.0,
            "widths": np.array([len(r) for r in rows.ids], "<i8"),
            "ids": np.array([t for r in rows.ids for t in r], "<i8"),
            "logprobs": np.array([v for r in rows.logprobs for v in r], "<f8") + 0.0,
            "kept": np.array(rows.kept or (), "<i8"),
        }
    except OverflowError:
        raise ArtifactError("a token id does not fit 64 bits") from None
    return {name: hashlib.sha256(column.tobytes()).hexdigest() for name, column in flat.items()}


_SAME = {str, int, bool, type(None)}
"""Types that stay as they are; named so that thousands of ids cost no call each."""


def plain_json(value: object) -> object:
    """JSON values with floats as hexadecimal strings. Raises ArtifactError for a number that is not finite."""
    if isinstance(value, dict):
        return {k: v if type(v) in _SAME else plain_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [v if type(v) in _SAME else plain_json(v) for v in value]
    if isinstance(value, float):
        if not np.isfinite(value):
            raise ArtifactError("an artifact holds a number that is not finite")
        return value.hex()
    return value
