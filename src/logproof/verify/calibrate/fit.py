"""From honest pairs to a policy. Pure.

Prompts, not positions, are split (positions of one text are not independent): a quarter fits the residual scales, half
gives the scores that p-values count, a quarter is judged by the finished policy to measure its false-positive rate.
Each sequence gives one score a length bucket, of a beginning as long as the bucket's shortest: scores of short texts
spread widest, so longer ones of the bucket are rejected less often than stated, never more. An engine pair that never
differs by more than EXACT_BELOW is exact, and then judged by equality.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np

from logproof.errors import UsageError
from logproof.verify.artifact.artifact import Artifact, Positions, artifact_columns, seal
from logproof.verify.artifact.columns import Columns
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.artifact.request_body import with_limit
from logproof.verify.calibrate.requirements_seen import machines_of, requirements_of
from logproof.verify.checks import recorded
from logproof.verify.checks.case import TrustedFacts, drawn_by
from logproof.verify.checks.seed import drawn_seed, seed_obstacle
from logproof.verify.judge import judge
from logproof.verify.policy import Holdout, NoiseFloor, Policy, PolicyEngine, Rates, SelfTest
from logproof.verify.requirements import Level
from logproof.verify.stats import conformal, distance, plausibility, redraw
from logproof.verify.stats.distance_table import measure
from logproof.verify.stats.sampler import Sampler
from logproof.verify.stats.sampler_profiles import Profile

EXACT_BELOW = 1e-3
"""Largest difference, nats, of pairs that are taken to be exact; the policy then allows three times what was seen."""
EXACT_LEAST = 1e-4
GREEDY_STEPS = {"bfloat16": 0.125, "float16": 0.016, "float32": 1e-3}
DAYS = 30

Part = Literal["scale", "score", "held"]
Split = Callable[[str], Part]
"""From a prompt's id to the part that its pairs belong to."""


class HonestPair(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One honest pair: an artifact that the trusted executor made, and its replay. prompt: id, unit of the split."""

    prompt: str
    artifact: Artifact
    replay: ReplayResult

    @cached_property
    def own(self) -> Columns:
        """The artifact's rows."""
        return artifact_columns(self.artifact)

    @cached_property
    def fault(self) -> str | None:
        """The first test that the artifact fails by itself, with its detail; None where it is sound."""
        findings = recorded.check(self.artifact, TrustedFacts(vocab_size=self.replay.vocab_size)).findings
        return next((f"{f.test}: {f.detail}" for f in findings if f.outcome == "fail"), None)


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy shall promise. level: false-positive rate; require: least level of a verdict that counts as
    valid, None: as high as honest records reach; days: validity; floor: measured noise of repeats;
    notes: what the reader must know (calls that failed); pin_model: another model's record is invalid."""

    name: str
    level: float = 0.01
    require: Level | None = None
    days: int = DAYS
    floor: NoiseFloor = NoiseFloor()
    notes: tuple[str, ...] = ()
    executor: PolicyEngine = PolicyEngine()
    verifier: PolicyEngine = PolicyEngine()
    pin_model: bool = False


def fit(pairs: Sequence[HonestPair], aim: Aim, now: datetime, split: Split | None = None) -> Policy:
    """The policy. split: the part of each prompt's pairs, `part_of` unless given.

    Raises UsageError for no or mixed pairs, fewer than four prompts, or an artifact that fails offline.
    """
    scale, score, holdout = parts = _parts(pairs, split or part_of)
    first = _checked(pairs, parts)
    matched = [distance.pair(p.own, p.replay.columns) for p in pairs]
    worst = max(distance.max_abs(m) - _rounding(p) for p, m in zip(pairs, matched, strict=True))
    spec = first.artifact.logprobs
    policy = Policy(
        schema="logproof-policy/2",
        name=aim.name,
        created_at=now.astimezone(UTC).isoformat(timespec="seconds"),
        expires_at=(now.astimezone(UTC) + timedelta(days=aim.days)).isoformat(timespec="seconds"),
        model_id=first.artifact.claim.model.id,
        weights_digest=first.artifact.claim.model.weights_digest,
        tokenizer_digest=first.artifact.claim.model.tokenizer_digest,
        eos_ids=_eos_ids(pairs),
        vocab_size=first.replay.vocab_size,
        executor=aim.executor,
        verifier=aim.verifier,
        method=first.replay.method,
        mode="raw" if spec is None else spec.mode,
        k=0 if spec is None else spec.k,
        level=aim.level,
        requires=requirements_of([p.artifact for p in pairs], aim.require or "sampled"),
        machines=machines_of([p.artifact for p in pairs], aim.executor),
        sigma=distance.fit_sigma([distance.pair(p.own, p.replay.columns) for p in scale]),
        scores={},
        floor=aim.floor,
        pin_model=aim.pin_model,
        notes=aim.notes,
        selftest=_selftest(pairs),
        exact=max(EXACT_LEAST, 3.0 * worst) if worst <= EXACT_BELOW else None,
    )
    policy = msgspec.structs.replace(policy, scores=_scores(score, policy), rates=_rates(score, policy))
    if aim.require is None:
        policy = msgspec.structs.replace(
            policy, requires=msgspec.structs.replace(policy.requires, level=_level(pairs, policy))
        )
    return msgspec.structs.replace(policy, holdout=_holdout(holdout, policy, now))


def _rounding(p: HonestPair) -> float:
    """By how much the record's number format may have moved a value, nats: no difference of the engines."""
    return 0.0 if p.artifact.logprobs is None else p.artifact.logprobs.step


def _checked(pairs: Sequence[HonestPair], parts: Sequence[list[HonestPair]]) -> HonestPair:
    if not pairs:
        raise UsageError("no honest pairs to calibrate from")
    kinds = {_kind(p) for p in pairs}
    if len(kinds) > 1:
        raise UsageError(f"honest pairs of several kinds are mixed: {'; '.join(sorted(map(str, kinds)))}")
    for name in ("weights_digest", "tokenizer_digest"):
        digests = {getattr(p.artifact.claim.model, name) for p in pairs} - {None}
        if len(digests) > 1:
            raise UsageError(
                f"honest pairs of several models are mixed: {name} {' and '.join(sorted(digests))}",
                hint="calibrate each model by itself",
            )
    bad = next((p for p in pairs if p.fault is not None), None)
    if bad is not None:
        detail = f"artifact {bad.artifact.artifact_id} fails its own test {bad.fault}"
        raise UsageError(detail, hint="the trusted engine must make sound records before it can calibrate")
    if not all(parts):
        raise UsageError("too few different prompts to split", hint="give at least a dozen")
    return pairs[0]


def _kind(p: HonestPair) -> tuple[object, ...]:
    spec = p.artifact.logprobs
    return (
        p.artifact.claim.model.id,
        p.replay.method,
        None if spec is None else spec.mode,
        None if spec is None else spec.k,
    )


def _parts(pairs: Sequence[HonestPair], split: Split) -> tuple[list[HonestPair], list[HonestPair], list[HonestPair]]:
    """The pairs that fit scales, give scores, and are held out."""
    scale, score, holdout = ([p for p in pairs if split(p.prompt) == part] for part in ("scale", "score", "held"))
    return scale, score, holdout


def part_of(prompt: str) -> Part:
    """scale (a quarter), score (half) or held (a quarter), by a hash of the prompt's id."""
    quarters: tuple[Part, ...] = ("scale", "score", "score", "held")
    return quarters[hashlib.sha256(prompt.encode()).digest()[0] % 4]


def head_length(p: HonestPair, bucket: int) -> int | None:
    """Length of the beginning of this sequence that stands for a bucket, or None where it is too short."""
    least = conformal.BUCKETS[bucket]
    return least if len(p.replay.columns) >= least else None


def truncated(artifact: Artifact, n: int) -> Artifact:
    """The artifact as if max_tokens had been n: honest again, for n below its length; itself otherwise."""
    ids, rows = artifact.tokens.completion_ids, artifact.positions
    if ids is None or rows is None or n >= len(ids):
        return artifact
    replace = msgspec.structs.replace
    kept = None if rows.kept is None else rows.kept[:n]
    usage = replace(artifact.end.usage, completion=n)
    return seal(
        replace(
            artifact,
            tokens=replace(artifact.tokens, completion_ids=ids[:n]),
            positions=Positions(sampled=rows.sampled[:n], ids=rows.ids[:n], logprobs=rows.logprobs[:n], kept=kept),
            request=with_limit(artifact.request, n),
            sampling=replace(artifact.sampling, max_tokens=n),
            end=replace(artifact.end, finish_reason="length", stop_reason=None, usage=usage),
        )
    )


def _scores(pairs: Sequence[HonestPair], policy: Policy) -> dict[str, dict[str, tuple[float, ...]]]:
    table: dict[str, dict[str, list[float]]] = {}
    for p in pairs:
        draw = _redraw(p, p.replay.columns, *drawn_by(p.artifact, _trusted(policy)), policy)
        for b in range(len(conformal.BUCKETS)):
            n = head_length(p, b)
            if n is None:
                continue
            for name, value in _score(p, n, policy, draw).items():
                table.setdefault(str(b), {}).setdefault(name, []).append(value)
    return {b: {name: tuple(sorted(values)) for name, values in row.items()} for b, row in table.items()}


def _score(p: HonestPair, n: int, policy: Policy, draw: redraw.Redraw | None) -> dict[str, float]:
    """Scores of its first n tokens. draw: repeated on the whole replay, None where it cannot be."""
    own, theirs = p.own.head(n), p.replay.columns.head(n)
    _, scores = measure(own, theirs, policy.sigma)
    sampler, _ = drawn_by(p.artifact)
    if not isinstance(sampler, str) and not sampler.greedy:
        drawn = plausibility.outcomes(theirs, sampler, p.replay.vocab_size)
        scores["surprise"] = plausibility.surprise(drawn).z
    if draw is not None:
        scores["margin"] = draw.head(n).capped()
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def _rates(pairs: Sequence[HonestPair], policy: Policy) -> Rates:
    """Honest token counts over the scoring part, full lengths."""
    bins = np.zeros(redraw.BINS, np.int64)
    out = tokens = beyond = greedy = 0
    step = GREEDY_STEPS.get(policy.executor.dtype or "", 0.125)
    for p in pairs:
        sampler, profile = drawn_by(p.artifact, _trusted(policy))
        if isinstance(sampler, str):
            continue
        if sampler.greedy:
            gaps = plausibility.greedy_gaps(p.replay.columns)
            beyond, greedy = beyond + int((gaps > step).sum()), greedy + len(gaps)
            continue
        draw = _redraw(p, p.replay.columns, sampler, profile, policy)
        if draw is not None:
            bins += np.bincount(redraw.margin_bins(draw), minlength=redraw.BINS)
        drawn = plausibility.outcomes(p.replay.columns, sampler, p.replay.vocab_size)
        out, tokens = out + int(drawn.out.sum()), tokens + len(drawn.out)
    return Rates(
        margins=tuple(bins.tolist()),
        out=out,
        tokens=tokens,
        greedy_step=step,
        greedy_beyond=beyond,
        greedy_tokens=greedy,
    )


def _level(pairs: Sequence[HonestPair], policy: Policy) -> Level:
    """The level that honest records reach: `replayed` where each draw can be repeated, so that leaving out what that
    needs is never valid."""
    sampled = [p for p in pairs if not _is_greedy(p)]
    redrawn = all(_redraw(p, p.own, *drawn_by(p.artifact, _trusted(policy))) is not None for p in sampled)
    margins = policy.exact is not None or sum(policy.rates.margins) > 0
    proven = policy.selftest is not None and policy.selftest.passed
    return "replayed" if redrawn and margins and proven and policy.requires.seed == "bound" else "sampled"


def _is_greedy(p: HonestPair) -> bool:
    sampler, _ = drawn_by(p.artifact)
    return not isinstance(sampler, str) and sampler.greedy


def _trusted(policy: Policy) -> str | None:
    return policy.selftest.profile if policy.selftest is not None and policy.selftest.passed else None


def _redraw(
    p: HonestPair, rows: Columns, sampler: Sampler | str, profile: Profile | None, policy: Policy | None = None
) -> redraw.Redraw | None:
    """The draw repeated on these rows, the verifier's under a policy or the record's own; None where it cannot be."""
    seed = drawn_seed(p.artifact)
    if isinstance(sampler, str) or sampler.greedy or profile is None or seed is None:
        return None
    if seed_obstacle(p.artifact, sampler, profile) is not None:
        return None
    vocab, prompt = p.replay.vocab_size, len(p.artifact.tokens.prompt_ids or ())
    slack = policy.cut_slack(sampler) if policy is not None else 0.0
    return redraw.redraw(rows, sampler, profile, seed, prompt, slack=slack, vocab_size=vocab)


def _selftest(pairs: Sequence[HonestPair]) -> SelfTest | None:
    """S4 on all sampled records under the profile that they claim; None where none can be replayed."""
    names, tokens, violations = set[str](), 0, 0
    for p in pairs:
        sampler, profile = drawn_by(p.artifact, p.artifact.claim.sampler_profile)
        draw = _redraw(p, p.own, sampler, profile)
        if draw is not None and profile is not None:
            names.add(profile.id)
            tokens += int(draw.known.sum())
            violations += int((draw.mismatch & draw.known).sum())
    return SelfTest(profile=names.pop(), tokens=tokens, violations=violations) if len(names) == 1 else None


def _eos_ids(pairs: Sequence[HonestPair]) -> tuple[int, ...] | None:
    """Ids that ended honest completions without a stop string or stop id; None where none ended so."""
    ids = set()
    for p in pairs:
        a = p.artifact
        plain = a.end.finish_reason == "stop" and a.end.stop_reason is None and not a.sampling.stop
        if plain and not a.sampling.stop_token_ids and a.tokens.completion_ids:
            ids.add(a.tokens.completion_ids[-1])
        ids |= set(a.claim.model.eos_ids or ())
    return tuple(sorted(ids)) or None


def _holdout(pairs: Sequence[HonestPair], policy: Policy, now: datetime) -> dict[str, Holdout]:
    """The finished policy on pairs it has not seen, by bucket: an alarm is an invalid verdict."""
    table: dict[str, list[bool]] = {}
    for b in range(len(conformal.BUCKETS)):
        for p in pairs:
            n = head_length(p, b)
            if n is not None:
                cut = msgspec.structs.replace(p.replay, columns=p.replay.columns.head(n))
                verdict = judge(truncated(p.artifact, n), cut, policy, now)
                table.setdefault(str(b), []).append(verdict.status == "invalid")
    return {b: Holdout(sequences=len(alarms), alarms=sum(alarms)) for b, alarms in table.items()}
