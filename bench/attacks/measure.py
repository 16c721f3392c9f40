"""Counts behind the tables: policies from honest records, and how often each detector rejects what. Pure.

Every honest sequence is held out once: in each of FOLDS rounds another part of them is judged by a policy that
`logproof.verify.calibration.fit` (the engine of `logproof calibrate`) made from the others. `fit` splits by a hash of
the prompt's name, so the bench gives each prompt a name whose hash falls where the round wants it.
Peers have no calibration of their own: their bound at 1 % is the conformal one on the same scoring part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import rivals
from arrays import Record, artifact, replayed

from logproof.verify import conformal
from logproof.verify.artifact import Artifact
from logproof.verify.calibration import Aim, Honest, fit, part_of
from logproof.verify.judge import judge
from logproof.verify.policy import Policy

LENGTHS = (16, 64, 256)
LEVEL = 0.01
FOLDS = 8
SCALE_SHARE = 32
"""One sequence in so many of those not held out fits the scales; the others give scores."""
NOW = datetime(2026, 1, 2, tzinfo=UTC)

Forge = Callable[[Record], Artifact]


class Count(msgspec.Struct, frozen=True):
    """Rejected sequences of one row, detector and length."""

    row: str
    detector: str
    length: int
    hits: int
    trials: int
    unsettled: int = 0
    """Sequences with an inconclusive verdict, of the others."""
    tests: dict[str, int] = msgspec.field(default_factory=dict)
    """How often each of our tests failed."""


class Calibration(msgspec.Struct, frozen=True, eq=False):
    """One round: the policy, its scoring part and the part it has not seen."""

    policy: Policy
    scored: tuple[Record, ...]
    held: tuple[Record, ...]


def named(name: str, part: str) -> str:
    """The first variation of a name whose hash falls in that part of the split."""
    return next(f"{name}/{i}" for i in range(10_000) if part_of(f"{name}/{i}") == part)


def rounds(honest: Sequence[Record], folds: int = FOLDS) -> Iterator[Calibration]:
    """The rounds, each with another held-out part. Raises UsageError of `fit` for too few sequences."""
    for fold in range(folds):
        held = honest[fold::folds]
        rest = [r for i, r in enumerate(honest) if i % folds != fold]
        scale, score = rest[::SCALE_SHARE], [r for i, r in enumerate(rest) if i % SCALE_SHARE]
        parts = (("scale", scale), ("score", score), ("held", held))
        pairs = [Honest(named(r.name, part), artifact(r), replayed(r)) for part, some in parts for r in some]
        yield Calibration(fit(pairs, Aim(name="attack bench", level=LEVEL), NOW), tuple(score), tuple(held))


def ours(
    row: str, records: Sequence[Record], policy: Policy, forge: Forge = artifact, lengths: Sequence[int] = LENGTHS
) -> list[Count]:
    """The real verdict on the beginnings of these records. forge: makes the artifact, with whatever it claims."""
    found = []
    for n in lengths:
        verdicts = [judge(forge(r), replayed(r), policy, NOW) for r in heads(records, n)]
        if not verdicts:
            continue
        failed = [f.test for v in verdicts for f in v.findings if f.outcome == "fail"]
        tests = {t: failed.count(t) for t in sorted(set(failed))}
        hits = sum(v.status == "invalid" for v in verdicts)
        open_ = sum(v.status == "inconclusive" for v in verdicts)
        found.append(Count(row, "logproof", n, hits, len(verdicts), open_, tests))
    return found


def heads(records: Sequence[Record], n: int) -> list[Record]:
    """The first n tokens of those that have so many."""
    return [r.head(n) for r in records if len(r.own) >= n]


SCORES: dict[str, Callable[[Record], float]] = {
    "gonka": rivals.gonka_own,
    "gonka, k 20": rivals.gonka_wide,
    "token-difr": rivals.difr,
    "token-difr as shipped": rivals.difr_shipped,
}
Scores = dict[tuple[str, int], dict[str, float]]
"""By detector and length: the peer's number for each sequence, by name."""


def scores(records: Sequence[Record], lengths: Sequence[int] = LENGTHS) -> Scores:
    """What each peer's statistic gives for these records."""
    cut = {n: heads(records, n) for n in lengths}
    return {(d, n): {r.name: score(r) for r in some} for d, score in SCORES.items() for n, some in cut.items()}


def peers(row: str, given: Scores, names: Sequence[str], honest: Scores, scored: Sequence[str]) -> list[Count]:
    """Rejections among `names` by each peer, at 1 % as honest scores of the names in `scored` set it, and by Gonka's
    own bounds."""
    found = []
    for (detector, n), table in given.items():
        values = [table[name] for name in names if name in table]
        if not values:
            continue
        known = [honest[detector, n][name] for name in scored]
        hits = sum(conformal.p_value(known, v) <= LEVEL for v in values)
        found.append(Count(row, detector, n, hits, len(values)))
        if detector == "gonka":
            for own, bound in rivals.GONKA_BOUNDS.items():
                found.append(Count(row, own, n, sum(v > bound for v in values), len(values)))
    return found


def added(parts: Sequence[Count]) -> list[Count]:
    """Counts of the same row, detector and length as one."""
    table: dict[tuple[str, str, int], Count] = {}
    for c in parts:
        key = (c.row, c.detector, c.length)
        before = table.get(key, Count(*key, 0, 0))
        tests = {t: before.tests.get(t, 0) + c.tests.get(t, 0) for t in sorted({*before.tests, *c.tests})}
        table[key] = Count(*key, before.hits + c.hits, before.trials + c.trials, before.unsettled + c.unsettled, tests)
    return list(table.values())
