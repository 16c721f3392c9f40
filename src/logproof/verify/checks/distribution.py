"""S1: are the recorded logprobs those of the claimed model? N1 notes where they agree too well."""

from __future__ import annotations

import math

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns
from logproof.verify.check_table import DISTRIBUTION, TOO_GOOD
from logproof.verify.policy import Policy
from logproof.verify.stats import conformal, distance, evalue, gonka
from logproof.verify.verdict import Finding, failed_if


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


def check_distribution(artifact: Artifact, own: Columns, verifier: Columns, policy: Policy) -> list[Finding]:
    pairs, scores = measure(own, verifier, policy.sigma)
    step = artifact.logprobs.step if artifact.logprobs is not None else 0.0
    if policy.exact is not None:
        return [_exact(pairs, scores, policy.exact + step, len(own))]
    calibration = policy.calibration("tz", len(own))
    finding = _conformal(calibration, scores, "tz", policy, len(own))
    exact_share = distance.equal_share(pairs)
    if exact_share > 0.9:
        detail = f"{exact_share:.0%} of the entries are equal to the last bit, more than this pair of engines gives"
        return [finding, Finding(test=TOO_GOOD.id, outcome="note", reason="too_good", detail=detail, n=len(own))]
    return [finding]


def _exact(pairs: distance.Pairs, scores: dict[str, float], limit: float, n: int) -> Finding:
    """Equality, for pairs of engines whose honest difference is at most `limit` nats."""
    worst = scores["max_abs"]
    kept = {k: v for k, v in scores.items() if math.isfinite(v)}
    if math.isnan(worst):
        return Finding(test=DISTRIBUTION.id, outcome="unknown", reason="no_logprobs", detail="no entry to compare", n=n)
    if worst <= limit:
        detail = f"all entries agree within {limit:.1e} nat (largest {worst:.1e})"
        return Finding(
            test=DISTRIBUTION.id, outcome="pass", detail=detail, n=n, statistic=kept, blind=DISTRIBUTION.blind
        )
    where = distance.positions_over(pairs, limit)
    detail = (
        f"{len(where)} of {n} positions differ by more than {limit:.1e} nat, first {where[0]}, by up to {worst:.4f}"
    )
    return Finding(
        test=DISTRIBUTION.id,
        outcome="fail",
        reason="distribution",
        detail=detail,
        n=n,
        statistic=kept,
        blind=DISTRIBUTION.blind,
    )


def _conformal(calibration: tuple[float, ...], scores: dict[str, float], name: str, policy: Policy, n: int) -> Finding:
    """One-sided conformal test of one score at the level of S1."""
    kept = {k: v for k, v in scores.items() if math.isfinite(v)}
    if name not in kept:
        return Finding(test=DISTRIBUTION.id, outcome="unknown", reason="no_logprobs", detail="no entry to compare", n=n)
    if n < conformal.BUCKETS[0]:
        detail = f"{n} tokens; distances are calibrated from {conformal.BUCKETS[0]} on"
        return Finding(
            test=DISTRIBUTION.id, outcome="unknown", reason="too_few_tokens", detail=detail, n=n, statistic=kept
        )
    level = policy.level_of(DISTRIBUTION)
    if conformal.least_p(len(calibration)) > level:
        detail = (
            f"{len(calibration)} honest scores of this length; {conformal.needed(level)} are needed"
            f" for a false-positive rate of {policy.level:g}"
        )
        return Finding(
            test=DISTRIBUTION.id, outcome="unknown", reason="profile_uncalibrated", detail=detail, n=n, statistic=kept
        )
    p = conformal.p_value(calibration, scores[name])
    detail = f"{name} {scores[name]:.3f}, p = {p:.4f} against {len(calibration)} honest sequences"
    finding = Finding(
        test=DISTRIBUTION.id,
        outcome="pass",
        detail=detail,
        n=n,
        p=p,
        log_e=evalue.from_p(p),
        statistic=kept,
        blind=DISTRIBUTION.blind,
    )
    return failed_if(p <= level, finding, "distribution")
