"""The tests on a replay: alignment, S1 distribution, S2 seed, S2g greedy, S3 sampling. Pure; replay.py made the calls.

One artifact may be rejected by three statistical tests, among which policy.SHARES splits the policy's level. A test
without calibration for this length is unknown, never passed.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns, Floats
from logproof.verify.checks.recorded import Offline, drawn_seed, seed_obstacle
from logproof.verify.policy import Policy
from logproof.verify.stats import conformal, distance, evalue, gonka, plausibility, redraw
from logproof.verify.stats.align import misalignment
from logproof.verify.stats.support import claimed
from logproof.verify.verdict import Finding, Reason

LEAST_ENTROPY = 5.0
"""Summed entropy, nats, below which the sampling test says nothing."""
OPEN_SHARE = 0.75
"""Share of positions with an open distribution above which the sampling test says nothing."""
S1_BLIND = "who wrote the text: a foreign text scored by the right model has distance 0"
S2_BLIND = "seeds chosen to fit, speculative decoding"
S3_BLIND = "weight changes that keep the distribution nearly the same"


def measure(artifact: Columns, verifier: Columns, sigma: distance.Sigma) -> tuple[distance.Pairs, dict[str, float]]:
    """Pairs and the distribution scores of a pair: tz, mae, max_abs, kl, slope, bias; and Gonka's distance in both
    forms, on lists of the artifact's width, where every position lists something."""
    pairs = distance.pair(artifact, verifier)
    line = distance.shape(pairs)
    lists = {}
    if len(artifact) and artifact.counts.all():
        both = gonka.Lists(artifact, verifier.narrow(artifact.width), pairs)
        lists = {"gonka_go": both.go, "gonka_python": both.python[0]}
    scores = {
        **lists,
        "tz": distance.tz(pairs, sigma),
        "mae": distance.mae_k(pairs),
        "max_abs": distance.max_abs(pairs),
        "kl": distance.kl_tail(pairs),
        "slope": line.slope,
        "bias": line.bias,
    }
    return pairs, scores


def check(
    artifact: Artifact,
    offline: Offline,
    verifier: Columns,
    replay_mode: str,
    policy: Policy,
    scored: Columns | None = None,
) -> list[Finding]:
    """All findings of one replay. The replay's ids must be the artifact's: else one finding says so and nothing else
    runs. scored: rows that name every recorded token, for the distances alone."""
    if offline.columns is None or artifact.logprobs is None:
        raise ValueError("an artifact without columns was replayed")
    drawn_from = claimed(artifact.sampling, "raw")
    plain = not isinstance(drawn_from, str) and drawn_from.plain
    wrong = misalignment(offline.columns, verifier, artifact.logprobs.mode, replay_mode, same_when_plain=plain)
    if wrong is not None:
        return [Finding(test="align", outcome="unknown", reason=wrong.reason, detail=wrong.detail)]
    found = [*_distribution(artifact, offline.columns, verifier if scored is None else scored, policy)]
    if offline.sampler is None:
        detail = "the claimed sampling is not fully known, or cannot be repeated on these logprobs"
        return [*found, Finding(test="S3", outcome="unknown", reason="sampler_unknown", detail=detail)]
    if offline.sampler.greedy:
        return [*found, _greedy(verifier, policy)]
    seed = _seed(artifact, offline, verifier, policy)
    free = policy.level_of("S2") if seed.outcome == "unknown" else 0.0
    return [*found, seed, _sampling(artifact, offline, verifier, policy, policy.level_of("S3") + free)]


def _distribution(artifact: Artifact, own: Columns, verifier: Columns, policy: Policy) -> list[Finding]:
    pairs, scores = measure(own, verifier, policy.sigma)
    step = artifact.logprobs.step if artifact.logprobs is not None else 0.0
    if policy.exact is not None:
        return [_exact(pairs, scores, policy.exact + step, len(own))]
    calibration = policy.calibration("tz", len(own))
    finding = _conformal(calibration, scores, "tz", policy, len(own))
    exact_share = distance.equal_share(pairs)
    if exact_share > 0.9:
        detail = f"{exact_share:.0%} of the entries are equal to the last bit, more than this pair of engines gives"
        return [finding, Finding(test="N1", outcome="note", reason="too_good", detail=detail, n=len(own))]
    return [finding]


def _exact(pairs: distance.Pairs, scores: dict[str, float], limit: float, n: int) -> Finding:
    """Equality, for pairs of engines whose honest difference is at most `limit` nats."""
    worst = scores["max_abs"]
    kept = {k: v for k, v in scores.items() if math.isfinite(v)}
    if math.isnan(worst):
        return Finding(test="S1", outcome="unknown", reason="no_logprobs", detail="no entry to compare", n=n)
    if worst <= limit:
        detail = f"all entries agree within {limit:.1e} nat (largest {worst:.1e})"
        return Finding(test="S1", outcome="pass", detail=detail, n=n, statistic=kept, blind=S1_BLIND)
    where = distance.positions_over(pairs, limit)
    detail = (
        f"{len(where)} of {n} positions differ by more than {limit:.1e} nat, first {where[0]}, by up to {worst:.4f}"
    )
    return Finding(test="S1", outcome="fail", reason="distribution", detail=detail, n=n, statistic=kept, blind=S1_BLIND)


def _conformal(calibration: tuple[float, ...], scores: dict[str, float], name: str, policy: Policy, n: int) -> Finding:
    """One-sided conformal test of one score at the level of S1."""
    kept = {k: v for k, v in scores.items() if math.isfinite(v)}
    if name not in kept:
        return Finding(test="S1", outcome="unknown", reason="no_logprobs", detail="no entry to compare", n=n)
    if n < conformal.BUCKETS[0]:
        detail = f"{n} tokens; distances are calibrated from {conformal.BUCKETS[0]} on"
        return Finding(test="S1", outcome="unknown", reason="too_few_tokens", detail=detail, n=n, statistic=kept)
    level = policy.level_of("S1")
    if conformal.least_p(len(calibration)) > level:
        detail = (
            f"{len(calibration)} honest scores of this length; {conformal.needed(level)} are needed"
            f" for a false-positive rate of {policy.level:g}"
        )
        return Finding(test="S1", outcome="unknown", reason="profile_uncalibrated", detail=detail, n=n, statistic=kept)
    p = conformal.p_value(calibration, scores[name])
    detail = f"{name} {scores[name]:.3f}, p = {p:.4f} against {len(calibration)} honest sequences"
    finding = Finding(
        test="S1", outcome="pass", detail=detail, n=n, p=p, log_e=evalue.from_p(p), statistic=kept, blind=S1_BLIND
    )
    return _failed_if(p <= level, finding, "distribution")


def _failed_if(failed: bool, finding: Finding, reason: Reason) -> Finding:
    return msgspec.structs.replace(finding, outcome="fail", reason=reason) if failed else finding


def _seed(artifact: Artifact, offline: Offline, verifier: Columns, policy: Policy) -> Finding:
    """S2: the draw repeated on the verifier's logprobs, margins bet against honest ones."""
    obstacle = seed_obstacle(artifact, offline.sampler or "the sampling is unknown", offline.profile)
    seed = drawn_seed(artifact)
    if obstacle is not None or offline.profile is None or seed is None or offline.sampler is None:
        return Finding(test="S2", outcome="unknown", reason="sampler_unknown", detail=obstacle or "no seed")
    draw = redraw.redraw(
        verifier,
        offline.sampler,
        offline.profile,
        seed,
        len(artifact.tokens.prompt_ids or ()),
        step=policy.exact or 0.0,
        slack=policy.cut_slack(offline.sampler),
        vocab_size=artifact.claim.model.vocab_size,
    )
    return seed_finding(draw, policy)


def seed_finding(draw: redraw.Redraw, policy: Policy) -> Finding:
    """The finding of a redraw: exact pairs allow no mismatch, others as much as honest margins explain.

    Of S2's level two thirds go to the mean margin among those of honest records of this length, one third to the bet on
    its size token by token; all of it to the bet where too few records are known.
    """
    judged = int(draw.known.sum())
    if judged == 0:
        return Finding(test="S2", outcome="unknown", reason="no_logprobs", detail="no sampled logprob came back")
    missed = int((draw.mismatch & draw.known).sum())
    numbers = {"mismatch_share": missed / judged, "capped_margin": draw.capped(), "out": float(draw.out.sum())}
    detail = f"{missed} of {judged} tokens are not the draws of the claimed seed"
    finding = Finding(test="S2", outcome="pass", detail=detail, n=judged, statistic=numbers, blind=S2_BLIND)
    if policy.exact is not None:
        return _failed_if(missed > 0, finding, "seed")
    if len(policy.rates.margins) != redraw.BINS or sum(policy.rates.margins) == 0:
        detail = "no honest margins were measured"
        return msgspec.structs.replace(finding, outcome="unknown", reason="profile_uncalibrated", detail=detail)
    log_e = evalue.bins_log_e(redraw.margin_bins(draw), evalue.null_shares(policy.rates.margins))
    level, p = policy.level_of("S2"), math.exp(-max(0.0, float(log_e.max())))
    calibration = policy.calibration("margin", len(draw.margin))
    if 1.5 * conformal.least_p(len(calibration)) <= level:
        p = min(1.0, 3.0 * p, 1.5 * conformal.p_value(calibration, draw.capped()))
    finding = msgspec.structs.replace(finding, detail=f"{detail}, p = {p:.4f}", log_e=float(log_e[-1]), p=p)
    return _failed_if(p <= level, finding, "seed")


def _greedy(verifier: Columns, policy: Policy) -> Finding:
    """S2g: sampled tokens against the verifier's best, ties as sets."""
    gaps = plausibility.greedy_gaps(verifier)
    known = ~np.isnan(gaps)
    if not known.any():
        return Finding(test="S2g", outcome="unknown", reason="no_logprobs", detail="no sampled logprob came back")
    rates = policy.rates
    step = policy.exact if policy.exact is not None else rates.greedy_step
    beyond = gaps[known] > step
    worst = {"worst_gap": float(gaps[known].max()), "beyond": float(beyond.sum())}
    detail = f"{int(beyond.sum())} of {len(beyond)} tokens lie more than {step:.2g} nat below the best"
    finding = Finding(
        test="S2g", outcome="pass", detail=detail, n=len(beyond), statistic=worst, blind="foreign text in flat regions"
    )
    if policy.exact is not None:
        return _failed_if(bool(beyond.any()), finding, "sampling")
    if rates.greedy_tokens == 0:
        detail = "no honest greedy tokens were measured"
        return msgspec.structs.replace(finding, outcome="unknown", reason="profile_uncalibrated", detail=detail)
    p0 = conformal.upper_rate(rates.greedy_beyond, rates.greedy_tokens)
    return _bet(finding, evalue.mismatch_log_e(beyond, min(p0, 0.99)), policy)


def _bet(finding: Finding, log_e: Floats, policy: Policy) -> Finding:
    """A running log e-value turned into a finding: failed once it ever reached the level of S2."""
    best = float(log_e.max())
    finding = msgspec.structs.replace(finding, log_e=float(log_e[-1]), p=min(1.0, math.exp(-max(0.0, best))))
    return _failed_if(best >= -math.log(policy.level_of("S2")), finding, "sampling")


def _sampling(artifact: Artifact, offline: Offline, verifier: Columns, policy: Policy, level: float) -> Finding:
    """S3: surprise, out-of-support share and tempered alternatives; `level` is shared by the three."""
    if offline.sampler is None:
        raise ValueError("no sampler")
    drawn = plausibility.outcomes(verifier, offline.sampler, artifact.claim.model.vocab_size)
    told = plausibility.surprise(drawn)
    numbers = {"z": told.z, "entropy": told.entropy, "out": float(told.out), "open": float(told.open)}
    numbers = {k: v for k, v in numbers.items() if math.isfinite(v)}
    detail = f"surprise z {told.z:.2f} over {told.tokens} tokens, {told.out} outside the support"
    finding = Finding(test="S3", outcome="pass", detail=detail, n=told.tokens, statistic=numbers, blind=S3_BLIND)
    tempered = plausibility.tempered_log_e(drawn)
    finding = msgspec.structs.replace(finding, log_e=float(tempered[-1]) if len(tempered) else None)
    failed = _sampling_failed(drawn, told, tempered, policy, level / 3.0)
    if failed is not None:
        return msgspec.structs.replace(finding, outcome="fail", reason="sampling", p=failed)
    if told.open > OPEN_SHARE * len(verifier):
        detail = f"at {told.open} of {len(verifier)} positions the record does not fix the claimed distribution"
        return msgspec.structs.replace(finding, outcome="unknown", reason="sampler_unknown", detail=detail)
    if told.entropy < LEAST_ENTROPY:
        detail = f"the summed entropy is {told.entropy:.1f} nats, {LEAST_ENTROPY:g} are needed"
        return msgspec.structs.replace(finding, outcome="unknown", reason="low_entropy", detail=detail)
    return finding


def _sampling_failed(
    drawn: plausibility.Outcomes, told: plausibility.Surprise, tempered: Floats, policy: Policy, level: float
) -> float | None:
    """The p-value that rejects at this level, or None.

    z counts only where honest scores are many enough for its level: the normal null that it has in long texts is far
    too light in the tails of short ones.
    """
    calibration = policy.calibration("surprise", len(drawn.out))
    calibrated = 2.0 * conformal.least_p(len(calibration)) <= level
    p_values = []
    if calibrated and told.entropy >= LEAST_ENTROPY and math.isfinite(told.z):
        p_values.append(conformal.two_sided_p(calibration, told.z))
    p0 = 0.0 if policy.exact is not None else conformal.upper_rate(policy.rates.out, policy.rates.tokens)
    if p0 < 1.0:
        p_values.append(math.exp(-max(0.0, float(evalue.mismatch_log_e(drawn.out, p0).max(initial=0.0)))))
    p_values.append(math.exp(-max(0.0, float(tempered.max(initial=0.0)))))
    least = min(p_values)
    return least if least <= level else None
