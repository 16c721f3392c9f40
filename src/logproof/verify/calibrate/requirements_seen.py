"""What honest records have in common, as the requirements and machines of a policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logproof.verify.artifact.artifact import Artifact, Claim, RecordedSampling
from logproof.verify.artifact.seeds import seed_is_bound
from logproof.verify.checks.seed import choice_is_bound
from logproof.verify.policy import PolicyEngine
from logproof.verify.requirements import (
    CUTS_AND_HEAT,
    RANGES,
    ExecutorKind,
    Level,
    NumberFormat,
    Range,
    Requirements,
    SamplingRanges,
    depth,
)
from logproof.verify.stats import sampler_profiles
from logproof.verify.stats.sampler import GREEDY_BELOW, bending


def requirements_of(artifacts: Sequence[Artifact], level: Level) -> Requirements:
    """What these honest records have, so that others must have it too. level: least one that shall count as valid."""
    drawn = [a for a in artifacts if not _greedy(a.sampling)]
    bound = bool(drawn) and all(seed_is_bound(a) and choice_is_bound(a) for a in drawn)
    kinds = {_kind(a.claim) for a in artifacts}
    return Requirements(
        level=level,
        seed="bound" if bound else None,
        sampling=_ranges(artifacts),
        executors=tuple(sorted(kinds, key=_stated, reverse=True)),
        numbers=_numbers(artifacts),
    )


def machines_of(artifacts: Iterable[Artifact], named: PolicyEngine) -> tuple[PolicyEngine, ...]:
    """The kinds of machine that made these records. named: one of them with its processor, as its operator states."""
    bare = PolicyEngine(name=named.name, version=named.version, dtype=named.dtype, device=named.device)
    seen = dict.fromkeys(
        PolicyEngine(
            name=a.claim.engine.name,
            version=a.claim.engine.version,
            dtype=a.claim.numerics.dtype,
            device=a.claim.engine.device,
        )
        for a in artifacts
    )
    return tuple(named if machine == bare else machine for machine in seen)


def _greedy(sampling: RecordedSampling) -> bool:
    return sampling.temperature is not None and sampling.temperature < GREEDY_BELOW


def _kind(claim: Claim) -> ExecutorKind:
    """The claimed executor with its sampler profile, which its version implies where it names none."""
    engine = claim.engine
    implied = sampler_profiles.find(engine.name, engine.version, engine.runner, engine.device)
    return ExecutorKind(
        engine=engine.name,
        version=engine.version,
        runner=engine.runner,
        device=engine.device,
        sampler_profile=claim.sampler_profile or (None if implied is None else implied.id),
        spec_decode=bool(engine.spec_decode),
    )


def _stated(kind: ExecutorKind) -> tuple[int, str]:
    """How much a kind says, then its words: the one that says most is what a claim is held against first."""
    fields = (kind.engine, kind.version, kind.runner, kind.device, kind.sampler_profile)
    return sum(f is not None for f in fields), repr(kind)


def _ranges(artifacts: Sequence[Artifact]) -> SamplingRanges:
    drawn = [a.sampling for a in artifacts if not _greedy(a.sampling)]
    every = [a.sampling for a in artifacts]
    ranges = {name: _range(name, drawn if name in CUTS_AND_HEAT else every) for name in RANGES}
    bent = {
        name
        for a in artifacts
        for name in bending(a.sampling, "raw" if a.logprobs is None else a.logprobs.mode)
        if name not in RANGES and getattr(a.sampling, name) is not None
    }
    return SamplingRanges(greedy=len(drawn) < len(artifacts), bending=tuple(sorted(bent)), **ranges)


def _range(name: str, samplings: Sequence[RecordedSampling]) -> Range | None:
    values = [getattr(s, name) for s in samplings if getattr(s, name) is not None]
    ordered = sorted(values, key=lambda value: depth(name, value))
    return (ordered[0], ordered[-1]) if ordered else None


def _numbers(artifacts: Sequence[Artifact]) -> tuple[NumberFormat, ...]:
    specs = [a.logprobs for a in artifacts if a.logprobs is not None]
    formats = {NumberFormat(format=spec.format, denominator=spec.denominator) for spec in specs}
    return tuple(sorted(formats, key=lambda number: number.words))
