"""S1: are the recorded logprobs those of the claimed model? N1 notes where they agree too well."""

from __future__ import annotations

import math

import msgspec

from logproof.verify.check_table import DISTRIBUTION, TOO_GOOD
from logproof.verify.checks.case import ReplayedCase
from logproof.verify.policy import Policy
from logproof.verify.stats import conformal, distance, evalue
from logproof.verify.stats.distance_table import MAX_ABS, TZ, measure
from logproof.verify.verdict import Finding, failed_if, passed, unknown

EQUAL_SHARE = 0.9
"""Share of entries equal to the last bit above which a pair that is not exact agrees too well."""

OTHER_MACHINES = "an honest one of another kind may fail too: calibrate --honest FILE, or audit --second URL"
"""What to do about a failure of S1 on a machine that calibration did not see."""


def check_distribution(case: ReplayedCase) -> list[Finding]:
    """S1, and N1 where the entries agree better than this pair of engines does."""
    own, policy = case.record.columns, case.policy
    pairs, scores = measure(own, case.scored, policy.sigma)
    if policy.exact is not None:
        return [_beyond(_exact(pairs, scores, policy.exact + case.record.step, len(own)), policy)]
    finding = _beyond(_conformal(policy.calibration(TZ, len(own)), scores, TZ, policy, len(own)), policy)
    equal = distance.equal_share(pairs)
    if equal > EQUAL_SHARE:
        detail = f"{equal:.0%} of the entries are equal to the last bit, more than this pair of engines gives"
        return [finding, Finding(test=TOO_GOOD.id, outcome="note", reason="too_good", detail=detail, n=len(own))]
    return [finding]


def _beyond(finding: Finding, policy: Policy) -> Finding:
    """A failure with what it does not say: other machines were not seen, and may differ as much."""
    if finding.outcome != "fail":
        return finding
    exact = "; an exact pair: no other machine was seen" if policy.exact is not None else ""
    detail = f"{finding.detail} (calibrated: {policy.machine_words}{exact}; {OTHER_MACHINES})"
    return msgspec.structs.replace(finding, detail=detail)


def _exact(pairs: distance.Pairs, scores: dict[str, float], limit: float, n: int) -> Finding:
    """Equality, for pairs of engines whose honest difference is at most `limit` nats."""
    worst = scores[MAX_ABS]
    kept = {k: v for k, v in scores.items() if math.isfinite(v)}
    if math.isnan(worst):
        return unknown(DISTRIBUTION, "no_logprobs", "no entry to compare", n)
    if worst <= limit:
        return passed(DISTRIBUTION, f"all entries agree within {limit:.1e} nat (largest {worst:.1e})", n, kept)
    where = distance.positions_over(pairs, limit)
    detail = (
        f"{len(where)} of {n} positions differ by more than {limit:.1e} nat, first {where[0]}, by up to {worst:.4f}"
    )
    return failed_if(True, passed(DISTRIBUTION, detail, n, kept), "distribution")


def _conformal(calibration: tuple[float, ...], scores: dict[str, float], name: str, policy: Policy, n: int) -> Finding:
    """One-sided conformal test of one score at the level of S1."""
    kept = {k: v for k, v in scores.items() if math.isfinite(v)}
    if name not in kept:
        return unknown(DISTRIBUTION, "no_logprobs", "no entry to compare", n)
    if n < conformal.BUCKETS[0]:
        detail = f"{n} tokens; distances are calibrated from {conformal.BUCKETS[0]} on"
        return unknown(DISTRIBUTION, "too_few_tokens", detail, n, kept)
    level = policy.level_of(DISTRIBUTION)
    if conformal.least_p(len(calibration)) > level:
        detail = (
            f"{len(calibration)} honest scores of this length; {conformal.needed(level)} are needed"
            f" for a false-positive rate of {policy.level:g}"
        )
        return unknown(DISTRIBUTION, "profile_uncalibrated", detail, n, kept)
    p = conformal.p_value(calibration, scores[name])
    detail = f"{name} {scores[name]:.3f}, p = {p:.4f} against {len(calibration)} honest sequences"
    finding = msgspec.structs.replace(passed(DISTRIBUTION, detail, n, kept), p=p, log_e=evalue.from_p(p))
    return failed_if(p <= level, finding, "distribution")
