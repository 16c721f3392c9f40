"""The claim of a record: what an operator states of the executor, beside what the probe found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from logproof.errors import UsageError
from logproof.files import read_bounded
from logproof.ir.facts import Facts
from logproof.verify.artifact.artifact import Claim, EngineClaim, ModelClaim, Numerics

DIGESTS = ("weights_digest", "tokenizer_digest", "chat_template_digest")
MAX_DIGESTED = 256 << 20
"""Longest file that is digested for a claim: a tokenizer or template, not weights."""


class StatedClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator states of the claimed executor; None is not stated.

    model: its name, where the served one is another. The other fields are those of the artifact's claim.
    """

    model: str | None = None
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


def claim_of(facts: Facts, served: str, stated: StatedClaim | None = None) -> Claim:
    """The claim of an endpoint: what was stated, and what the probe found. served: the model's name there."""
    stated = stated or StatedClaim()
    return Claim(
        model=ModelClaim(
            id=stated.model or served,
            revision=stated.revision,
            weights_digest=stated.weights_digest,
            tokenizer_digest=stated.tokenizer_digest,
            chat_template_digest=stated.chat_template_digest,
            vocab_size=facts.vocab_size,
            eos_ids=stated.eos_ids,
        ),
        numerics=Numerics(dtype=stated.dtype),
        engine=EngineClaim(
            name=facts.engine,
            version=facts.version,
            runner=stated.runner,
            device=stated.device,
            spec_decode=stated.spec_decode,
        ),
        sampler_profile=stated.sampler_profile,
    )


def identity(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Fields of a StatedClaim from names and values: a revision, and digests as 64 hex digits or files to digest.

    Raises UsageError for another name, one that comes twice or an empty value, and for a file that cannot be read.
    """
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name not in ("revision", *DIGESTS):
            raise UsageError(f"--identity knows revision, {', '.join(DIGESTS)}; got {name!r}")
        if name in fields:
            raise UsageError(f"--identity gives {name} twice")
        if not value:
            kind = "a name" if name == "revision" else "64 hex digits or a file"
            raise UsageError(f"--identity {name}= is empty", hint=f"give {kind}")
        fields[name] = value
    return {name: value if name == "revision" else _digest(value) for name, value in fields.items()}


def _digest(value: str) -> str:
    if re.fullmatch("[0-9a-f]{64}", value):
        return value
    return hashlib.sha256(read_bounded(Path(value), MAX_DIGESTED)).hexdigest()
