"""S0a: checks of an artifact against itself. No model, no engine, exact: an honest artifact never fails one.

Each fault names the field and carries a reason: malformed, hash_mismatch, token_out_of_range, inconsistent_usage,
vocabulary, key. What the verifier knows by itself (`TrustedFacts`) counts before what the record says of itself.
Cannot see: anything that is wrong but consistent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from logproof.errors import ArtifactError
from logproof.verify.artifact import signing
from logproof.verify.artifact.artifact import Artifact, LogprobsSpec, Positions, artifact_digest
from logproof.verify.artifact.columns import FILLER, Floats
from logproof.verify.artifact.number_format import MOST_DENOMINATOR, in_format, most_step, unit_is_sound
from logproof.verify.artifact.seeds import derivation_holds
from logproof.verify.check_table import STRUCTURE
from logproof.verify.checks.case import NOTHING_KNOWN, TrustedFacts
from logproof.verify.verdict import Finding, failed_if, passed, unknown

FaultReason = Literal["malformed", "hash_mismatch", "token_out_of_range", "inconsistent_usage", "vocabulary", "key"]
SUM_SLACK = 1e-3
"""How far listed probabilities may sum beyond 1."""
ZERO_SLACK = 1e-6
"""How far above 0 a float32 logprob may come out, nats, beyond its rounding."""
MAX_WIDTH = 1024
"""Most entries that may be asked a position."""
MAX_ID = 2**31 - 1
MAX_CHOICES = 1 << 14
"""Most choices of one request: vLLM's own limit."""


class StructureFault(msgspec.Struct, frozen=True):
    """One broken rule. where: field, with the position if there is one."""

    reason: FaultReason
    where: str
    detail: str


def faults(artifact: Artifact, facts: TrustedFacts = NOTHING_KNOWN) -> list[StructureFault]:
    """Every broken rule, in field order; empty for a sound artifact. facts: what the verifier knows by itself."""
    values = _values_of(artifact.positions)
    return [
        *_seal(artifact, facts),
        *_choice(artifact),
        *_ids(artifact, facts),
        *_usage(artifact),
        *_sampling(artifact),
        *_spec(artifact, facts, values),
        *_rows(artifact, facts, values),
    ]


def _bad(where: str, detail: str, reason: FaultReason = "malformed") -> Iterator[StructureFault]:
    yield StructureFault(reason, where, detail)


def _seal(a: Artifact, facts: TrustedFacts) -> Iterator[StructureFault]:
    signature = None if a.seal is None else a.seal.signature
    if facts.keys and signature is None:
        yield from _bad("seal.signature", "is not there, and a signature is required", "key")
    if a.seal is None:
        return
    try:
        if a.seal.digest != artifact_digest(a):
            yield from _bad("seal.digest", "is not the digest of the content", "hash_mismatch")
        elif signature is not None and (facts.keys or signing.available()):
            signing.check_signature(a)
    except ArtifactError as error:
        yield from _bad("seal", error.message, "hash_mismatch")
    if facts.keys and signature is not None and signature.key_id not in facts.keys:
        yield from _bad("seal.signature", f"is by {signature.key_id}, which is no key that is required", "key")


def _choice(a: Artifact) -> Iterator[StructureFault]:
    if not (1 <= a.choice.n <= MAX_CHOICES and 0 <= a.choice.index < a.choice.n):
        yield from _bad("choice", f"index {a.choice.index} of {a.choice.n} choices")


def _vocabulary(a: Artifact, facts: TrustedFacts) -> int | None:
    """Size of the vocabulary: the trusted one, else what the record claims, which can only narrow its ids."""
    return a.claim.model.vocab_size if facts.vocab_size is None else facts.vocab_size


def _ids(a: Artifact, facts: TrustedFacts) -> Iterator[StructureFault]:
    bound, stated = _vocabulary(a, facts), a.claim.model.vocab_size
    for name, ids in (("prompt_ids", a.tokens.prompt_ids), ("completion_ids", a.tokens.completion_ids)):
        yield from _range(f"tokens.{name}", ids or (), bound)
    if a.tokens.completion_ids is not None and not a.tokens.completion_ids:
        yield from _bad("tokens.completion_ids", "is empty: nothing was produced")
    if a.tokens.prompt_ids is not None and not a.tokens.prompt_ids:
        yield from _bad("tokens.prompt_ids", "is empty: a completion follows from something")
    if stated is not None and not 1 <= stated <= MAX_ID + 1:
        yield from _bad("claim.model.vocab_size", f"is {stated}")
    elif None not in (stated, facts.vocab_size) and stated != facts.vocab_size:
        yield from _bad(
            "claim.model.vocab_size", f"is {stated}, the trusted model has {facts.vocab_size}", "vocabulary"
        )


def _range(where: str, ids: Sequence[int], bound: int | None) -> Iterator[StructureFault]:
    top = MAX_ID if bound is None else min(MAX_ID, bound - 1)
    if ids and not (min(ids) >= 0 and max(ids) <= top):
        first = next(i for i, t in enumerate(ids) if not 0 <= t <= top)
        yield StructureFault("token_out_of_range", f"{where}[{first}]", f"{ids[first]} is not in 0..{top}")


def _usage(a: Artifact) -> Iterator[StructureFault]:
    pairs = (
        ("prompt", a.end.usage.prompt, a.tokens.prompt_ids),
        ("completion", a.end.usage.completion, a.tokens.completion_ids),
    )
    for name, reported, ids in pairs:
        if reported is not None and ids is not None and reported != len(ids):
            yield StructureFault(
                "inconsistent_usage", f"end.usage.{name}", f"says {reported}, {len(ids)} ids are recorded"
            )


_BOUNDS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "top_k": (0, MAX_ID),
    "min_p": (0.0, 1.0),
    "min_tokens": (0, MAX_ID),
    "max_tokens": (1, MAX_ID),
    "frequency_penalty": (-math.inf, math.inf),
    "presence_penalty": (-math.inf, math.inf),
    "repetition_penalty": (0.0, math.inf),
}


def _sampling(a: Artifact) -> Iterator[StructureFault]:
    for name, (low, high) in _BOUNDS.items():
        value = getattr(a.sampling, name)
        if value is not None and not (math.isfinite(value) and low <= value <= high):
            yield from _bad(f"sampling.{name}", f"{value} is not in {low}..{high}")
    if any(not (k.isdecimal() and math.isfinite(v)) for k, v in (a.sampling.logit_bias or {}).items()):
        yield from _bad("sampling.logit_bias", "has a key that is no token id, or a value that is not finite")
    odd = [name for name in a.sampling.sources if name in (*a.sampling.unresolved(), "seed", "sources")]
    odd += [name for name in a.sampling.sources if name not in a.sampling.__struct_fields__]
    if odd:
        yield from _bad("sampling.sources", f"names {odd[0]}, which has no value")
    if a.sampling.top_p == 0.0:
        yield from _bad("sampling.top_p", "is 0: no token may be drawn")
    seed = a.sampling.seed
    if seed is not None and seed.origin == "derived" and not derivation_holds(seed):
        yield from _bad("sampling.seed", "does not follow from its derivation")


def _spec(a: Artifact, facts: TrustedFacts, values: Floats) -> Iterator[StructureFault]:
    if (a.logprobs is None) != (a.positions is None):
        yield from _bad("logprobs", "and positions are given together or not at all")
    spec = a.logprobs
    if spec is None:
        return
    if not 0 <= spec.k <= MAX_WIDTH:
        yield from _bad("logprobs.k", f"{spec.k} is not in 0..{MAX_WIDTH}")
    if not unit_is_sound(spec):
        yield from _bad("logprobs.denominator", f"goes with the fixed format, from 1 to {MOST_DENOMINATOR}")
    elif spec.denominator is not None and spec.denominator < facts.least_denominator:
        coarse = f"1/{spec.denominator} nat is coarser than 1/{facts.least_denominator}, which is asked for"
        yield from _bad("logprobs.denominator", coarse)
    most = most_step(spec, values)
    if not 0.0 <= spec.step <= most:
        yield from _bad("logprobs.step", f"{spec.step:.3g} is not in 0..{most:.3g} nat, as {spec.format} rounds")


def _values_of(rows: Positions | None) -> Floats:
    """All recorded logprobs, float64: the entries row by row, then those of the sampled tokens."""
    if rows is None:
        return np.zeros(0)
    listed = [v for row in rows.logprobs for v in row]
    return np.array([*listed, *(v for v in rows.sampled if v is not None)], np.float64)


def _rows(a: Artifact, facts: TrustedFacts, values: Floats) -> Iterator[StructureFault]:
    rows, spec = a.positions, a.logprobs
    if rows is None or spec is None:
        return
    n = len(a.tokens.completion_ids) if a.tokens.completion_ids is not None else len(rows.sampled)
    sizes = {"sampled": len(rows.sampled), "ids": len(rows.ids), "logprobs": len(rows.logprobs)}
    if rows.kept is not None:
        sizes["kept"] = len(rows.kept)
    wrong = {name: size for name, size in sizes.items() if size != n}
    if wrong:
        yield from _bad("positions", f"{n} tokens, but {wrong}")
        return
    # A larger step is a fault by itself, and allows no value.
    spec = msgspec.structs.replace(spec, step=max(0.0, min(spec.step, most_step(spec, values))))
    bound, sound = _vocabulary(a, facts), _values_sound(rows, spec, values)
    for i in range(n):
        yield from _row(a, rows, spec, i, bound, sound=sound)


def _row(
    a: Artifact, rows: Positions, spec: LogprobsSpec, i: int, bound: int | None, *, sound: bool
) -> Iterator[StructureFault]:
    """Faults of one position. bound: size of the vocabulary. sound: its values are known to have none."""
    ids, values, where = rows.ids[i], rows.logprobs[i], f"positions[{i}]"
    if len(ids) != len(values):
        yield from _bad(where, f"{len(ids)} ids and {len(values)} logprobs")
        return
    yield from _range(f"{where}.ids", ids, bound)
    if len(set(ids)) != len(ids):
        yield from _bad(f"{where}.ids", "holds an id twice")
    yield from _width(where, len(ids), spec, None if rows.kept is None else rows.kept[i], bound)
    if not sound:
        yield from _values(where, values, rows.sampled[i], spec)
    yield from _drawn(where, a, rows, i)


def _width(where: str, width: int, spec: LogprobsSpec, kept: int | None, bound: int | None) -> Iterator[StructureFault]:
    """Short rows only where fewer tokens were kept, raw ones only where there are no more tokens; wide rows only by
    engine ties, which double a row at most."""
    least = spec.k if kept is None else min(spec.k, kept)
    if spec.mode == "raw":
        least = spec.k if bound is None else min(spec.k, bound)
    if kept is not None and kept < 1:
        yield from _bad(f"{where}.kept", f"is {kept}")
    if width < least:
        yield from _bad(f"{where}.ids", f"has {width} entries, {least} were asked")
    if width > 2 * spec.k + 1:
        yield from _bad(f"{where}.ids", f"has {width} entries, {spec.k} were asked")


def _values_sound(rows: Positions, spec: LogprobsSpec, every: Floats) -> bool:
    """Whether `_values` would find nothing in any row: all at once, as nearly all artifacts are sound."""
    widths = [len(row) for row in rows.logprobs]
    listed = every[: sum(widths)]
    if not (np.isfinite(every).all() and (every <= spec.step + ZERO_SLACK).all() and (every > FILLER).all()):
        return False
    mass = np.bincount(np.repeat(np.arange(len(widths)), widths), np.exp(np.minimum(listed, 0.0)))
    return bool(mass.max(initial=0.0) < _most_mass(spec) * (1.0 - 1e-12)) and in_format(every, spec)


def _most_mass(spec: LogprobsSpec) -> float:
    """What listed probabilities may sum to, with the rounding of each value."""
    return (1.0 + SUM_SLACK) * math.exp(spec.step)


def _values(where: str, values: Sequence[float], sampled: float | None, spec: LogprobsSpec) -> Iterator[StructureFault]:
    every = list(values) if sampled is None else [*values, sampled]
    if not all(map(math.isfinite, every)):
        yield from _bad(f"{where}.logprobs", "is not finite; a token that cannot occur is left out")
        return
    if any(v > spec.step + ZERO_SLACK for v in every):
        yield from _bad(f"{where}.logprobs", f"{max(every)} is above 0")
    if any(v <= FILLER for v in every):
        yield from _bad(f"{where}.logprobs", "holds a filler value; a token that cannot occur is left out")
    if math.fsum(math.exp(min(v, 0.0)) for v in values) > _most_mass(spec):
        yield from _bad(f"{where}.logprobs", "sum to more than 1 as probabilities")
    if not in_format(every, spec):
        yield from _bad(f"{where}.logprobs", f"holds a value that is not in {spec.format} format")


def _drawn(where: str, a: Artifact, rows: Positions, i: int) -> Iterator[StructureFault]:
    """The sampled logprob equals its entry, where the row lists the sampled token."""
    if a.tokens.completion_ids is None or rows.sampled[i] is None:
        return
    drawn = a.tokens.completion_ids[i]
    listed = next((v for t, v in zip(rows.ids[i], rows.logprobs[i], strict=True) if t == drawn), None)
    if listed is not None and listed != rows.sampled[i]:
        yield from _bad(f"{where}.sampled", f"{rows.sampled[i]}, but the row lists {listed} for this token")


def explained_width(artifact: Artifact, vocab_size: int | None) -> int:
    """Entries that a row must have by what the record says of its kind, at most k.

    Raw rows lack none but those of a small vocabulary. Processed ones list what the cuts left, constrained ones what a
    grammar let through. vocab_size: the trusted one; without it none is known to be small.
    """
    spec, sampling = artifact.logprobs, artifact.sampling
    if spec is None:
        return 0
    least = spec.k if vocab_size is None else min(spec.k, vocab_size)
    if spec.mode == "constrained":
        return min(least, 1) if sampling.structured_output else least
    if spec.mode != "processed":
        return least
    if sampling.top_p not in (None, 1.0) or sampling.min_p or sampling.structured_output:
        return min(least, 1)
    return min(least, sampling.top_k or least, len(sampling.allowed_ids or ()) or least)


def check_structure(artifact: Artifact, facts: TrustedFacts = NOTHING_KNOWN) -> Finding:
    """S0a: the first fault and how many there are; unknown for rows that are short without a reason; else passed."""
    broken = faults(artifact, facts)
    if broken:
        first = broken[0]
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return failed_if(True, passed(STRUCTURE, f"{first.where} {first.detail}{more}", len(broken)), first.reason)
    widths = [len(row) for row in artifact.positions.ids] if artifact.positions is not None else []
    least = explained_width(artifact, facts.vocab_size)
    short = [i for i, width in enumerate(widths) if width < least]
    if short:
        asked = artifact.logprobs.k if artifact.logprobs is not None else 0
        detail = (
            f"{len(short)} of {len(widths)} rows, first {short[0]}, have fewer than {least} of {asked} entries asked"
        )
        return unknown(STRUCTURE, "rows_short", detail, len(short))
    signature = artifact.seal.signature if artifact.seal is not None else None
    if signature is None:
        return passed(STRUCTURE, "the artifact obeys its own rules")
    if not signing.available():
        return passed(
            STRUCTURE, "the artifact obeys its own rules; its signature is not checked without `cryptography`"
        )
    return passed(STRUCTURE, f"the artifact obeys its own rules, and is signed by {signature.key_id}")


def check_evidence(artifact: Artifact) -> Finding | None:
    """S0a again, unknown: which evidence is missing, so that nothing can be replayed; None where all is there."""
    if artifact.tokens.completion_ids is None or artifact.tokens.prompt_ids is None:
        detail = "only texts were recorded; retokenising them may give other tokens than were sampled"
        return unknown(STRUCTURE, "no_token_ids", detail)
    if artifact.positions is None:
        return unknown(STRUCTURE, "no_logprobs", "ids were recorded without logprobs")
    return None
