"""From an exchange with an engine to artifacts: what was sent and what came back, as data. Pure."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec
import numpy as np

from logproof.ir.response import Choice, Response
from logproof.verify.artifact.artifact import (
    Artifact,
    ChoiceRef,
    Claim,
    End,
    LogprobsSpec,
    Positions,
    Producer,
    Provenance,
    RecordedSampling,
    RecordedUsage,
    Sent,
    TokenIds,
    positions_of,
    seal,
)
from logproof.verify.artifact.columns import Columns, columns_of, to_fixed, to_float32
from logproof.version import VERSION


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says beyond the reply. k: width asked. denominator: steps a nat of fixed format, None: float32."""

    claim: Claim
    sampling: RecordedSampling
    k: int
    endpoint: str
    denominator: int | None = None
    redactions: tuple[str, ...] = ()


class Observation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One exchange with an engine, as far as a record tells of it: an own call, or one that the proxy saw.

    path: below the endpoint's root. body: the JSON request as the engine got it, credentials blanked. dialect: id of
    the one that read the reply. response: the reply, checked. chunks: events of a streamed reply, None where it came
    whole. Digests are SHA-256, hex, over the bytes before anything was blanked.
    """

    dialect: str
    path: str
    body: bytes
    response: Response
    chunks: int | None
    request_sha256: str
    reply_sha256: str


def artifacts_from(observation: Observation, setting: Setting, now: datetime) -> list[Artifact]:
    """One sealed artifact a choice. Raises BadReply where a choice has no tokens at all."""
    return [_artifact(observation, choice, setting, now) for choice in observation.response.choices]


def _artifact(seen: Observation, choice: Choice, setting: Setting, now: datetime) -> Artifact:
    reply, ids = seen.response, choice.token_ids
    if ids is None and choice.tokens is not None:
        ids = choice.tokens.ids
    spec, positions = _rows(choice, setting)
    prompt = None if reply.prompt_ids is None else tuple(reply.prompt_ids.tolist())
    name = seen.body + seen.reply_sha256.encode() + choice.index.to_bytes(8, "big")
    artifact = Artifact(
        schema="logproof-artifact/1",
        artifact_id=hashlib.sha256(name).hexdigest()[:32],
        created_at=now.astimezone(UTC).isoformat(timespec="milliseconds"),
        producer=Producer(name="logproof", version=VERSION),
        claim=setting.claim,
        request=_sent(seen, setting),
        sampling=setting.sampling,
        choice=ChoiceRef(n=len(reply.choices), index=choice.index),
        logprobs=spec,
        tokens=TokenIds(prompt_ids=prompt, completion_ids=None if ids is None else tuple(ids.tolist())),
        positions=positions,
        end=_end(reply, choice),
        provenance=_provenance(seen, choice, setting),
    )
    return seal(artifact)


def _rows(choice: Choice, setting: Setting) -> tuple[LogprobsSpec | None, Positions | None]:
    tokens = choice.tokens
    if tokens is None or tokens.ids is None or len(tokens) == 0:
        return None, None
    columns = columns_of(tokens)
    exact = to_float32(columns) if setting.denominator is None else to_fixed(columns, setting.denominator)
    counts = exact.present.sum(axis=1)
    short = bool((counts < setting.k).any())
    spec = LogprobsSpec(
        mode=tokens.meaning,
        k=setting.k,
        format="float32" if setting.denominator is None else "fixed",
        denominator=setting.denominator,
        step=_step(columns, exact),
    )
    return spec, positions_of(exact, tuple(int(c) for c in counts) if short else None)


def _step(columns: Columns, kept: Columns) -> float:
    """Largest change that the number format made, nats. Rounding keeps the order, so sorted values pair up."""
    change = np.abs(columns.logprobs[columns.present] - kept.logprobs[kept.present])
    drawn = np.abs(columns.sampled_logprobs - kept.sampled_logprobs)
    return float(max(change.max(initial=0.0), np.nan_to_num(drawn).max(initial=0.0)))


def _sent(seen: Observation, setting: Setting) -> Sent:
    body = msgspec.json.decode(seen.body)
    return Sent(dialect=seen.dialect, path=seen.path, body=body, redactions=setting.redactions)


def _end(reply: Response, choice: Choice) -> End:
    usage = reply.usage
    whole = len(reply.choices) == 1
    return End(
        finish_reason=choice.finish.reason,
        stop_reason=choice.finish.matched,
        usage=RecordedUsage(prompt=usage.prompt, completion=usage.completion if whole else None),
    )


def _provenance(seen: Observation, choice: Choice, setting: Setting) -> Provenance:
    return Provenance(
        endpoint=setting.endpoint,
        request_sha256=seen.request_sha256,
        response_sha256=seen.reply_sha256,
        streamed=seen.chunks is not None,
        chunks=seen.chunks,
        fingerprint=seen.response.fingerprint,
        served_model=seen.response.model,
        text=choice.text,
    )
