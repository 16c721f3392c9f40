"""The table of all fields of an artifact: whose word each is, and what it may do to a verdict. Pure.

What the accused claims may make a verdict stricter or leave it inconclusive, never easier. A field is *evidence*
(tokens, logprobs, top lists), which the tests judge, or a *claim*, which is every other. A claim that an honest record
needs names the checks that it is held against; one that deviates from them lifts nothing. The table of
docs/verification.md is made from these rows, and a field of the schema without a row fails a test.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.check_table import (
    CLAIM,
    DISTRIBUTION,
    END,
    GREEDY,
    MASS,
    POLICY,
    PROMPT,
    REQUEST,
    ROUNDING,
    SAMPLING,
    SEED,
    SEED_ORIGIN,
    SELF_REPLAY,
    STRUCTURE,
    Check,
)

Speaker = Literal["requester", "executor", "verifier", "policy"]
Effect = Literal["none", "stricter", "needed"]


class ArtifactField(msgspec.Struct, frozen=True, kw_only=True):
    """One field.

    path: names from the artifact on, with dots. said_by: whose word stands there. overruled_by: whose word counts
    instead where it is known, None where nobody else knows. kind: evidence or claim.
    effect: none (no value that is well formed changes status or level), stricter (an honest record without it is as
    valid; a value may bring a failure or an open question), needed (an honest record without it does not reach its
    level). changes: what it may change, in words. held_against: the checks that judge it.
    """

    path: str
    said_by: Speaker
    overruled_by: Speaker | None = None
    kind: Literal["evidence", "claim"] = "claim"
    effect: Effect
    changes: str
    held_against: tuple[Check, ...] = ()


def _evidence(path: str, changes: str, *held: Check) -> ArtifactField:
    return ArtifactField(
        path=path, said_by="executor", kind="evidence", effect="needed", changes=changes, held_against=held
    )


def _needed(
    path: str, changes: str, *held: Check, by: Speaker = "executor", instead: Speaker | None = None
) -> ArtifactField:
    return ArtifactField(
        path=path, said_by=by, overruled_by=instead, effect="needed", changes=changes, held_against=held
    )


def _stricter(
    path: str, changes: str, *held: Check, by: Speaker = "executor", instead: Speaker | None = None
) -> ArtifactField:
    return ArtifactField(
        path=path, said_by=by, overruled_by=instead, effect="stricter", changes=changes, held_against=held
    )


def _comment(path: str, changes: str = "nothing; a comment") -> ArtifactField:
    return ArtifactField(path=path, said_by="executor", effect="none", changes=changes)


def _leaf(name: str, changes: str, *held: Check) -> ArtifactField:
    """A leaf of the sampling, which the request states."""
    return _needed(f"sampling.{name}", changes, REQUEST, *held, instead="requester")


_BENT = "above its neutral value the draw is not repeated on raw logprobs"
_DRAWN = (SAMPLING, SEED, SELF_REPLAY, POLICY)

_ABOUT = (
    _needed("schema", "how the record is read", STRUCTURE),
    _comment("artifact_id"),
    _comment("created_at"),
    _comment("producer.name"),
    _comment("producer.version"),
)
_CLAIM = (
    _needed("claim.model.id", "whether the policy speaks about the record", POLICY, REQUEST, DISTRIBUTION),
    _comment("claim.model.revision"),
    _stricter("claim.model.weights_digest", "another one than the policy's is another model", POLICY),
    _stricter("claim.model.tokenizer_digest", "another one than the policy's is another model", POLICY),
    _comment("claim.model.chat_template_digest"),
    _stricter("claim.model.vocab_size", "another one than the trusted model's fails", STRUCTURE, instead="policy"),
    _needed("claim.model.eos_ids", "what ends a completion, if no policy knows it", END, instead="policy"),
    _stricter("claim.numerics.dtype", "float32 of rounded logits fails", ROUNDING, instead="policy"),
    _comment("claim.numerics.quantization"),
    _comment("claim.numerics.kv_cache_dtype"),
    _comment("claim.numerics.head_dtype"),
    _needed("claim.engine.name", "whether the policy knows the executor", POLICY, SEED, SAMPLING),
    _needed("claim.engine.version", "whether the policy knows the executor", POLICY, SEED),
    _needed("claim.engine.runner", "whether the policy knows the executor", POLICY, SEED),
    _needed("claim.engine.device", "whether the policy knows the executor", POLICY, SEED),
    _comment("claim.engine.batch_invariant"),
    _stricter("claim.engine.spec_decode", "the draw is not repeated; only a policy that saw it passes", POLICY),
    _comment("claim.engine.prefix_caching"),
    _stricter("claim.sampler_profile", "another one than the policy's is left open", POLICY, SEED, instead="policy"),
)
_REQUEST = (
    _needed("request.dialect", "how the body is read", REQUEST, by="requester"),
    _needed("request.path", "how the body is read", REQUEST, by="requester", instead="requester"),
    _needed("request.body", "what was asked", REQUEST, PROMPT, POLICY, by="requester", instead="requester"),
    _stricter("request.redactions", "what was blanked is left open", REQUEST, PROMPT),
)
_SAMPLING = (
    _leaf("temperature", "which draw is repeated, or the best token is due", *_DRAWN, GREEDY, MASS),
    _leaf("top_p", "which draw is repeated", *_DRAWN, MASS),
    _leaf("top_k", "which draw is repeated", *_DRAWN, MASS),
    _leaf("min_p", "which draw is repeated", *_DRAWN, MASS),
    _leaf("frequency_penalty", _BENT, *_DRAWN),
    _leaf("presence_penalty", _BENT, *_DRAWN),
    _leaf("repetition_penalty", _BENT, *_DRAWN),
    _leaf("logit_bias", _BENT, *_DRAWN),
    _leaf("bad_words", _BENT, *_DRAWN),
    _leaf("allowed_ids", _BENT, *_DRAWN),
    _leaf("min_tokens", f"{_BENT}; what may end the text", *_DRAWN, END),
    _leaf("max_tokens", "what may end the text", END),
    _leaf("stop", "what may end the text", END),
    _leaf("stop_token_ids", "what may end the text", END),
    _leaf("ignore_eos", "what may end the text", END),
    _leaf("structured_output", f"{_BENT}; what may be constrained", *_DRAWN),
    _leaf("seed", "whether the draw is repeated", SEED, SELF_REPLAY, SEED_ORIGIN, POLICY),
    _leaf("seed.value", "which draw is repeated", SEED, SELF_REPLAY),
    _leaf("seed.origin", "whether the seed binds the executor", SEED_ORIGIN),
    _leaf("seed.derivation", "whether the seed binds the executor", SEED_ORIGIN, STRUCTURE),
    _leaf("seed.derivation.alg", "how the seed follows", STRUCTURE),
    _leaf("seed.derivation.nonce", "what the seed follows from", STRUCTURE, SEED_ORIGIN),
    _leaf("seed.derivation.id", "what the seed follows from", STRUCTURE, SEED_ORIGIN),
    _leaf("sources", "whose word a leaf is that the request leaves out", CLAIM),
)
_REPLY = (
    _needed("choice.n", "of several choices the seed is another", REQUEST, SEED, SEED_ORIGIN, instead="requester"),
    _needed("choice.index", "of several choices the seed is another", SEED, SEED_ORIGIN),
    _needed("logprobs", "without them nothing is compared", STRUCTURE, POLICY),
    _needed("logprobs.mode", "what is replayed; other modes than the policy's are left open", POLICY, REQUEST, MASS),
    _needed("logprobs.k", "the width; another than the policy's is left open", POLICY, REQUEST, STRUCTURE),
    _needed("logprobs.format", "how far a value may be rounded", STRUCTURE, POLICY),
    _needed("logprobs.denominator", "how far a value may be rounded", STRUCTURE, POLICY),
    _needed("logprobs.step", "how far a value may be rounded; more than its format rounds fails", STRUCTURE),
    _needed("tokens.prompt_ids", "what is replayed", PROMPT, DISTRIBUTION, instead="verifier"),
    _evidence("tokens.completion_ids", "the text that is judged", DISTRIBUTION, SAMPLING, SEED, SELF_REPLAY, GREEDY),
    _comment("tokens.prompt_cut"),
    _evidence("positions", "without them nothing is compared", STRUCTURE),
    _evidence("positions.sampled", "what is compared", DISTRIBUTION, SELF_REPLAY),
    _evidence("positions.ids", "what is compared", DISTRIBUTION, SELF_REPLAY),
    _evidence("positions.logprobs", "what is compared", DISTRIBUTION, SELF_REPLAY, ROUNDING, MASS),
    _stricter("positions.kept", "how short a processed row may be", STRUCTURE, MASS),
    _needed("end.finish_reason", "how the text ended", END),
    _comment("end.stop_reason"),
    _stricter("end.usage.prompt", "another count than the ids have fails", STRUCTURE),
    _stricter("end.usage.completion", "another count than the ids have fails", STRUCTURE),
    _comment("provenance.endpoint"),
    _comment("provenance.request_sha256"),
    _comment("provenance.response_sha256"),
    _comment("provenance.streamed"),
    _comment("provenance.chunks"),
    _comment("provenance.fingerprint", "nothing; it stands in the verdict"),
    _comment("provenance.served_model"),
    _comment("provenance.text"),
    _stricter("seal", "a seal that does not fit fails", STRUCTURE),
    _stricter("seal.digest", "another one than the content's fails", STRUCTURE),
    _stricter("seal.signature", "whether a required key signed the record", STRUCTURE, POLICY),
    _stricter("seal.signature.alg", "how the signature is checked", STRUCTURE),
    _stricter("seal.signature.key_id", "which key signed; a signature that does not fit fails", STRUCTURE, POLICY),
    _stricter("seal.signature.value", "a signature that does not fit fails", STRUCTURE),
)

FIELDS: dict[str, ArtifactField] = {field.path: field for field in (*_ABOUT, *_CLAIM, *_REQUEST, *_SAMPLING, *_REPLY)}
"""Every field by its path, in the order of the schema."""


def field_types(record: type[msgspec.Struct] = Artifact, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Paths and types of all fields of a record, outermost first. A group that is always there is none itself."""
    hints = get_type_hints(record)
    for field in msgspec.structs.fields(record):
        kind = hints[field.name]
        group = next((k for k in _parts(kind) if isinstance(k, type) and issubclass(k, msgspec.Struct)), None)
        path = f"{prefix}{field.encode_name}"
        if group is None or group is not kind:
            yield path, kind
        if group is not None:
            yield from field_types(group, f"{path}.")


def _parts(kind: object) -> tuple[object, ...]:
    """The members of a union, else the type alone."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
