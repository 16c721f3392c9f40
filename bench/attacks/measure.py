"""Counts behind the tables: policies from honest records, and how often each detector rejects what. Pure.

Every honest sequence is held out once: in each of FOLDS rounds another part of them is judged by a policy that
`logproof.verify.calibrate.fit.fit` (the engine of `logproof calibrate`) made from the others.
Peers have no calibration of their own: their bound at 1 % is the conformal one on the same scoring part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
import rivals
from arrays import Record, artifact, replayed

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.known_request import KnownRequest, MadePrompt
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.calibrate.fit import Aim, HonestPair, Part, fit
from logproof.verify.judge import judge
from logproof.verify.policy import Policy
from logproof.verify.stats import conformal, distance
from logproof.verify.verdict import Verdict

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


def split(names: Sequence[str], fold: int, folds: int = FOLDS) -> dict[str, Part]:
    """The part of every honest sequence in one round."""
    rest = [n for i, n in enumerate(names) if i % folds != fold]
    scale = set(rest[::SCALE_SHARE])
    return {n: "held" if i % folds == fold else "scale" if n in scale else "score" for i, n in enumerate(names)}


def pairs(honest: Sequence[Record]) -> list[HonestPair]:
    """What `fit` takes; made once, for all rounds."""
    return [HonestPair(r.name, artifact(r), replayed(r)) for r in honest]


def calibrated(honest: Sequence[Record], known: Sequence[HonestPair], fold: int, folds: int = FOLDS) -> Calibration:
    """One round. Raises UsageError of `fit` for too few sequences."""
    parts = split([r.name for r in honest], fold, folds)
    policy = fit(known, Aim(name="attack bench", level=LEVEL), NOW, parts.__getitem__)
    scored, held = (tuple(r for r in honest if parts[r.name] == part) for part in ("score", "held"))
    return Calibration(policy, scored, held)


def held_out(row: str, policy: Policy) -> list[Count]:
    """The false positives that calibration measured, at the lengths where its buckets begin."""
    held = {conformal.BUCKETS[int(b)]: h for b, h in policy.holdout.items()}
    return [Count(row, "logproof", n, h.alarms, h.sequences) for n, h in held.items()]


def judged(made: Artifact, replay: ReplayResult, policy: Policy) -> Verdict:
    """The verdict on a record that answers the requester's own request, with the prompt that it makes."""
    known = KnownRequest(path=made.request.path, body=made.request.body, source="own")
    prompt = MadePrompt(prompts=(made.tokens.prompt_ids or (),))
    return judge(made, replay, policy, NOW, known=known, prompt=prompt)


def ours(
    row: str, records: Sequence[Record], policy: Policy, forge: Forge = artifact, lengths: Sequence[int] = LENGTHS
) -> list[Count]:
    """The real verdict on the beginnings of these records. forge: makes the artifact, with whatever it claims."""
    found = []
    for n in lengths:
        verdicts = [judged(forge(r), replayed(r), policy) for r in heads(records, n)]
        if not verdicts:
            continue
        failed = [f.test for v in verdicts for f in v.findings if f.outcome == "fail"]
        tests = {t: failed.count(t) for t in sorted(set(failed))}
        hits = sum(v.status == "invalid" for v in verdicts)
        open_ = sum(v.status == "inconclusive" for v in verdicts)
        found.append(Count(row, "logproof", n, hits, len(verdicts), open_, tests))
    return found


def exactness(records: Sequence[Record]) -> str:
    """How far apart records and their replays are, in words; half of them are judged by a policy of the others."""
    if not records:
        return "not measured"
    parts = split([r.name for r in records], 0, 2)
    policy = fit(pairs(records), Aim(name="exact", level=LEVEL), NOW, parts.__getitem__)
    worst = max(distance.max_abs(distance.pair(r.own, r.replay)) for r in records)
    held = [r for r in records if parts[r.name] == "held"]
    verdicts = Counter(judged(artifact(r), replayed(r), policy).status for r in held)
    told = ", ".join(f"{n} {status}" for status, n in sorted(verdicts.items()))
    how = "not exact" if policy.exact is None else "exact"
    tokens = sum(len(r.own) for r in records)
    return f"{how}: largest difference {worst:g} nat in {tokens} tokens of {len(records)} sequences; held out: {told}"


def heads(records: Sequence[Record], n: int) -> list[Record]:
    """The first n tokens of those that have so many."""
    return [r.head(n) for r in records if len(r.own) >= n]


SHIPPED, SHIPPED_MOST = "token-difr as shipped", 64
"""It draws noise for the whole vocabulary, and is blind here at every length: longer ones are left out."""
SCORES: dict[str, Callable[[Record], float]] = {
    "gonka": rivals.gonka_own,
    "gonka, k 20": rivals.gonka_wide,
    "token-difr": rivals.difr,
    SHIPPED: rivals.difr_shipped,
}
Scores = dict[tuple[str, int], dict[str, float]]
"""By detector and length: the peer's number for each sequence, by name."""


def scores(records: Sequence[Record], lengths: Sequence[int] = LENGTHS) -> Scores:
    """What each peer's statistic gives for these records."""
    cut = {n: heads(records, n) for n in lengths}
    asked = [(d, n) for d in SCORES for n in lengths if d != SHIPPED or n <= SHIPPED_MOST]
    return {(d, n): {r.name: SCORES[d](r) for r in cut[n]} for d, n in asked}


def peers(row: str, given: Scores, names: Sequence[str], honest: Scores, scored: Sequence[str]) -> list[Count]:
    """Rejections among `names` by each peer, at 1 % as honest scores of the names in `scored` set it, and by Gonka's
    own bounds."""
    found = []
    for (detector, n), table in given.items():
        values = [table[name] for name in names if name in table]
        if not values:
            continue
        known = [honest[detector, n][name] for name in scored if name in honest[detector, n]]
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
