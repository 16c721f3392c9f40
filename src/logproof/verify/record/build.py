"""From a call to artifacts: what was sent and what came back, as data. Pure; capture and proxy feed it."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec
import numpy as np

from logproof.dialects.call import Call
from logproof.ir.facts import Facts
from logproof.ir.response import Choice
from logproof.verify.artifact import artifact as art
from logproof.verify.artifact.artifact import Artifact, Claim, LogprobsSpec, Sampling
from logproof.verify.artifact.artifact_files import to_positions
from logproof.verify.artifact.columns import Columns, columns_of
from logproof.verify.artifact.pack import to_fixed, to_float32
from logproof.version import VERSION


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says beyond the reply. k: width asked. denominator: steps a nat of fixed format, None: float32."""

    claim: Claim
    sampling: Sampling
    k: int
    endpoint: str
    denominator: int | None = None
    redactions: tuple[str, ...] = ()


def from_call(call: Call, setting: Setting, now: datetime) -> list[Artifact]:
    """One sealed artifact a choice. Raises BadReply where a choice has no tokens at all."""
    return [_artifact(call, choice, setting, now) for choice in call.response.choices]


def _artifact(call: Call, choice: Choice, setting: Setting, now: datetime) -> Artifact:
    reply, ids = call.response, choice.token_ids
    if ids is None and choice.tokens is not None:
        ids = choice.tokens.ids
    spec, positions = _rows(choice, setting)
    prompt = None if reply.prompt_ids is None else tuple(reply.prompt_ids.tolist())
    name = call.wire.body + call.reply_digest.encode() + choice.index.to_bytes(8, "big")
    made = Artifact(
        schema="logproof-artifact/1",
        artifact_id=hashlib.sha256(name).hexdigest()[:32],
        created_at=now.astimezone(UTC).isoformat(timespec="milliseconds"),
        producer=art.Producer(name="logproof", version=VERSION),
        claim=setting.claim,
        request=_sent(call, setting),
        sampling=setting.sampling,
        choice=art.ChoiceRef(n=len(reply.choices), index=choice.index),
        logprobs=spec,
        tokens=art.TokenIds(prompt_ids=prompt, completion_ids=None if ids is None else tuple(ids.tolist())),
        positions=positions,
        end=_end(call, choice),
        provenance=_provenance(call, choice, setting),
    )
    return art.seal(made)


def _rows(choice: Choice, setting: Setting) -> tuple[LogprobsSpec | None, art.Positions | None]:
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
    return spec, to_positions(exact, tuple(int(c) for c in counts) if short else None)


def _step(columns: Columns, kept: Columns) -> float:
    """Largest change that the number format made, nats. Rounding keeps the order, so sorted values pair up."""
    change = np.abs(columns.logprobs[columns.present] - kept.logprobs[kept.present])
    drawn = np.abs(columns.sampled_logprobs - kept.sampled_logprobs)
    return float(max(change.max(initial=0.0), np.nan_to_num(drawn).max(initial=0.0)))


def _sent(call: Call, setting: Setting) -> art.Sent:
    body = msgspec.json.decode(call.wire.body)
    return art.Sent(dialect=call.dialect, path=call.wire.path, body=body, redactions=setting.redactions)


def _end(call: Call, choice: Choice) -> art.End:
    usage = call.response.usage
    whole = len(call.response.choices) == 1
    return art.End(
        finish_reason=choice.finish.reason,
        stop_reason=choice.finish.matched,
        usage=art.Usage(prompt=usage.prompt, completion=usage.completion if whole else None),
    )


def _provenance(call: Call, choice: Choice, setting: Setting) -> art.Provenance:
    return art.Provenance(
        endpoint=setting.endpoint,
        request_sha256=hashlib.sha256(call.wire.body).hexdigest(),
        response_sha256=call.reply_digest,
        streamed=call.reply.events is not None,
        chunks=None if call.reply.events is None else len(call.reply.events),
        fingerprint=call.response.fingerprint,
        served_model=call.response.model,
        text=choice.text,
    )


def claim_of(facts: Facts, model: str, **known: object) -> Claim:
    """A claim from what the probe found; `known` fills what it cannot tell, by the names of `_Known`."""
    told = msgspec.convert(known, _Known)
    return Claim(
        model=art.ModelClaim(
            id=model,
            revision=told.revision,
            weights_digest=told.weights_digest,
            tokenizer_digest=told.tokenizer_digest,
            chat_template_digest=told.chat_template_digest,
            vocab_size=facts.vocab_size,
            eos_ids=told.eos_ids,
        ),
        numerics=art.Numerics(dtype=told.dtype),
        engine=art.EngineClaim(
            name=facts.engine,
            version=facts.version,
            runner=told.runner,
            device=told.device,
            spec_decode=told.spec_decode,
        ),
        sampler_profile=told.sampler_profile,
    )


class _Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    revision: str | None = None
    weights_digest: str | None = None
    tokenizer_digest: str | None = None
    chat_template_digest: str | None = None
    eos_ids: tuple[int, ...] | None = None
    dtype: str | None = None
    runner: str | None = None
    device: str | None = None
    spec_decode: bool | None = None
    sampler_profile: str | None = None
