"""The claim of a record: what an operator states of the executor, beside what the probe found."""

from __future__ import annotations

import msgspec

from logproof.ir.facts import Facts
from logproof.verify.artifact import artifact as art
from logproof.verify.artifact.artifact import Claim


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
