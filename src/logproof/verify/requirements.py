"""What a policy requires of a record: as `calibrate` saw it of honest ones, or as its author wrote it. Pure.

A test that a record's claims may switch off is held here against what the policy requires. A group that is None or
empty requires nothing; without those of `STATED` no verdict says more than `distribution`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal

from logproof.verify.artifact.artifact import Claim, LogprobsSpec, Record, RecordedSampling
from logproof.verify.stats.sampler import GREEDY_BELOW, bending

Level = Literal["distribution", "sampled", "replayed"]
Range = tuple[float, float]
"""Least and largest value, both allowed."""

RANGES = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
"""Leaves of the sampling whose range is required. The first four say nothing where the best token is taken."""
CUTS_AND_HEAT = RANGES[:4]
STATED = ("sampling", "executors", "numbers")
"""Groups without which a record could switch tests off by what it claims."""


class SamplingRanges(Record, frozen=True, kw_only=True):
    """Sampling that honest records were seen with. A range that is None was not seen at all.

    greedy: whether records that take the best token were. temperature, top_p, top_k, min_p: of the others. top_k 0 is
    off, and counts as above every number. bending: other leaves that were set, such as logit_bias.
    """

    greedy: bool = False
    temperature: Range | None = None
    top_p: Range | None = None
    top_k: Range | None = None
    min_p: Range | None = None
    frequency_penalty: Range | None = None
    presence_penalty: Range | None = None
    repetition_penalty: Range | None = None
    bending: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The ranges as a reader wants them."""
        seen = [f"{name} {_range_words(name, getattr(self, name))}" for name in RANGES if getattr(self, name)]
        return ", ".join([*(["greedy"] if self.greedy else []), *seen, *self.bending]) or "none"

    def outside(self, sampling: RecordedSampling, mode: str = "raw") -> list[str]:
        """What of this sampling the policy did not see, in words with the range; empty where it saw all.

        A value that is not known is left to the tests, which cannot repeat the draw then.
        """
        greedy = sampling.temperature is not None and sampling.temperature < GREEDY_BELOW
        names = tuple(n for n in RANGES if n not in CUTS_AND_HEAT) if greedy else RANGES
        wrong = ["greedy, sampled ones alone were seen"] if greedy and not self.greedy else []
        for name in names:
            value, seen = getattr(sampling, name), getattr(self, name)
            if value is not None and not _within(name, value, seen):
                wrong.append(f"{name} {value:g}, seen {_range_words(name, seen)}")
        unseen = [n for n in bending(sampling, mode) if n not in RANGES and n not in self.bending]
        return wrong + [f"{name}, never seen" for name in unseen if getattr(sampling, name) is not None]


def _within(name: str, value: float, seen: Range | None) -> bool:
    if seen is None:
        return False
    low, high, here = (depth(name, v) for v in (*seen, value))
    return low <= here <= high


def depth(name: str, value: float) -> float:
    """The value as it is ordered: top_k 0 is off, so it keeps more than every number."""
    return math.inf if name == "top_k" and value == 0 else value


def _range_words(name: str, seen: Range | None) -> str:
    if seen is None:
        return "greedy ones alone" if name in CUTS_AND_HEAT else "none"
    low, high = ("off" if math.isinf(depth(name, v)) else f"{v:g}" for v in seen)
    return low if low == high else f"{low} to {high}"


class ExecutorKind(Record, frozen=True, kw_only=True):
    """An executor as records may claim it; None requires nothing. sampler_profile: an id of sampler_profiles.py.

    A policy knows the profile itself, so a claim that leaves it out, or names another, changes no test.
    """

    engine: str | None = None
    version: str | None = None
    runner: str | None = None
    device: str | None = None
    sampler_profile: str | None = None
    spec_decode: bool = False

    @property
    def words(self) -> str:
        """As a reader wants it."""
        parts = (self.engine, self.version, self.runner, self.device, self.sampler_profile)
        known = [part for part in parts if part is not None] or ["of any kind"]
        return " ".join([*known, *(["with speculative decoding"] if self.spec_decode else [])])

    def differences(self, claim: Claim) -> list[str]:
        """What the claim says otherwise, or leaves out, in words; empty where it is of this kind."""
        engine = claim.engine
        pairs = (
            ("engine", self.engine, engine.name),
            ("version", self.version, engine.version),
            ("runner", self.runner, engine.runner),
            ("device", self.device, engine.device),
        )
        wrong = [
            f"{name} {here or 'not stated'}, required {then}" for name, then, here in pairs if then not in (None, here)
        ]
        if bool(engine.spec_decode) != self.spec_decode:
            wrong.append("speculative decoding" if engine.spec_decode else "no speculative decoding, which is required")
        return wrong

    def other_profile(self, claim: Claim) -> str | None:
        """The sampler profile that is claimed where another is required, in words."""
        named, required = claim.sampler_profile, self.sampler_profile
        return None if None in (named, required) or named == required else f"sampler {named}, required {required}"


class NumberFormat(Record, frozen=True, kw_only=True):
    """A number format of recorded logprobs, which implies how far a value may be rounded. denominator: of fixed."""

    format: Literal["float32", "fixed"]
    denominator: int | None = None

    @property
    def words(self) -> str:
        """As a verdict names it."""
        return f"{self.format} 1/{self.denominator}" if self.denominator else self.format


class Requirements(Record, frozen=True, kw_only=True):
    """What a record must have. level: least one that counts as valid.

    seed: "bound" where the executor must not have chosen it. sampling: ranges. executors: kinds of which it must be
    one. numbers: formats of which it must have one. key_ids: keys of which one must have signed it.
    """

    level: Level = "sampled"
    seed: Literal["bound"] | None = None
    sampling: SamplingRanges | None = None
    executors: tuple[ExecutorKind, ...] = ()
    numbers: tuple[NumberFormat, ...] = ()
    key_ids: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Groups of STATED that say nothing."""
        return [name for name in STATED if not getattr(self, name)]

    def kind_of(self, claim: Claim) -> ExecutorKind | None:
        """The executor that is required and claimed, whatever sampler profile is named; None where there is none."""
        return next((kind for kind in self.executors if not kind.differences(claim)), None)

    def faults(self) -> Iterator[str]:
        """What makes the requirements unusable, in words."""
        if not all(re.fullmatch("[0-9a-f]{64}", key) for key in self.key_ids):
            yield "requires.key_ids hold what is not 64 hex digits"
        sampling = self.sampling or SamplingRanges()
        for name in RANGES:
            seen: Range | None = getattr(sampling, name)
            if seen is not None and not (
                all(map(math.isfinite, seen)) and depth(name, seen[0]) <= depth(name, seen[1])
            ):
                yield f"requires.sampling.{name} {seen[0]:g} to {seen[1]:g} is no range"


def other_numbers(spec: LogprobsSpec, allowed: tuple[NumberFormat, ...]) -> str | None:
    """How the record's number format differs from all that are allowed, in words; None where it is one of them."""
    here = NumberFormat(format=spec.format, denominator=spec.denominator)
    if not allowed or here in allowed:
        return None
    return f"{here.words}, required {' or '.join(n.words for n in allowed)}"


def requirement_lines(requires: Requirements) -> list[str]:
    """The requirements in words, one line each, for whoever reads a policy."""
    lines = [f"level {requires.level}"]
    if requires.seed is not None:
        lines.append("a seed that the executor did not choose")
    if requires.sampling is not None:
        lines.append(f"sampling: {requires.sampling.words}")
    if requires.executors:
        lines.append(f"an executor: {' or '.join(kind.words for kind in requires.executors)}")
    if requires.numbers:
        lines.append(f"logprobs in {' or '.join(number.words for number in requires.numbers)}")
    if requires.key_ids:
        lines.append(f"a signature by {' or '.join(requires.key_ids)}")
    return lines
