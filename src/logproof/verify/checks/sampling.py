"""S2g and S3: are the recorded tokens plausible draws under the claimed sampling, by the verifier's logprobs?"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from logproof.verify.artifact.columns import Columns, Floats
from logproof.verify.check_table import GREEDY, SAMPLING, SEED
from logproof.verify.checks.case import ReplayedCase
from logproof.verify.policy import Policy
from logproof.verify.stats import conformal, evalue, plausibility
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Finding, failed_if, passed, unknown

LEAST_ENTROPY = 5.0
"""Summed entropy, nats, below which the sampling test says nothing."""
OPEN_SHARE = 0.75
"""Share of positions with an open distribution above which the sampling test says nothing."""
MOST_BEYOND = 0.99
"""Highest honest share of greedy tokens beyond a rounding step that is bet against; a bet needs room above it."""
SAMPLING_TESTS = 3.0
"""How many tests share the level of S3 alike: surprise, tokens outside the support, tempered alternatives."""


def check_greedy(verifier: Columns, policy: Policy) -> Finding:
    """S2g: sampled tokens against the verifier's best, ties as sets."""
    gaps = plausibility.greedy_gaps(verifier)
    known = ~np.isnan(gaps)
    if not known.any():
        return unknown(GREEDY, "no_logprobs", "no sampled logprob came back")
    rates = policy.rates
    step = policy.exact if policy.exact is not None else rates.greedy_step
    beyond = gaps[known] > step
    worst = {"worst_gap": float(gaps[known].max()), "beyond": float(beyond.sum())}
    detail = f"{int(beyond.sum())} of {len(beyond)} tokens lie more than {step:.2g} nat below the best"
    finding = passed(GREEDY, detail, len(beyond), worst)
    if policy.exact is not None:
        return failed_if(bool(beyond.any()), finding, "sampling")
    if rates.greedy_tokens == 0:
        detail = "no honest greedy tokens were measured"
        return msgspec.structs.replace(finding, outcome="unknown", reason="profile_uncalibrated", detail=detail)
    p0 = conformal.upper_rate(rates.greedy_beyond, rates.greedy_tokens)
    return _bet(finding, evalue.mismatch_log_e(beyond, min(p0, MOST_BEYOND)), policy)


def _bet(finding: Finding, log_e: Floats, policy: Policy) -> Finding:
    """A running log e-value turned into a finding: failed once it ever reached the level of S2, which S2g has."""
    finding = msgspec.structs.replace(finding, log_e=float(log_e[-1]), p=evalue.ever_p(log_e))
    return failed_if(float(log_e.max()) >= -math.log(policy.level_of(SEED)), finding, "sampling")


def check_sampling(case: ReplayedCase, sampler: Sampler, level: float) -> Finding:
    """S3: surprise, out-of-support share and tempered alternatives; `level` is shared by the three."""
    unsure = case.record.vocabulary_obstacle(redrawn=False)
    if unsure is not None:
        return unknown(SAMPLING, "vocabulary_unknown", unsure)
    drawn = plausibility.outcomes(case.verifier, sampler, case.record.vocab_size)
    surprise = plausibility.surprise(drawn)
    numbers = {"z": surprise.z, "entropy": surprise.entropy, "out": float(surprise.out), "open": float(surprise.open)}
    numbers = {k: v for k, v in numbers.items() if math.isfinite(v)}
    detail = f"surprise z {surprise.z:.2f} over {surprise.tokens} tokens, {surprise.out} outside the support"
    tempered = plausibility.tempered_log_e(drawn)
    log_e = float(tempered[-1]) if len(tempered) else None
    finding = msgspec.structs.replace(passed(SAMPLING, detail, surprise.tokens, numbers), log_e=log_e)
    failed = _sampling_failed(drawn, surprise, tempered, case.policy, level / SAMPLING_TESTS)
    if failed is not None:
        return msgspec.structs.replace(finding, outcome="fail", reason="sampling", p=failed)
    if surprise.open > OPEN_SHARE * len(case.verifier):
        detail = (
            f"at {surprise.open} of {len(case.verifier)} positions the record does not fix the claimed distribution"
        )
        return msgspec.structs.replace(finding, outcome="unknown", reason="sampler_unknown", detail=detail)
    if surprise.entropy < LEAST_ENTROPY:
        detail = f"the summed entropy is {surprise.entropy:.1f} nats, {LEAST_ENTROPY:g} are needed"
        return msgspec.structs.replace(finding, outcome="unknown", reason="low_entropy", detail=detail)
    return finding


def _sampling_failed(
    drawn: plausibility.Outcomes, surprise: plausibility.Surprise, tempered: Floats, policy: Policy, level: float
) -> float | None:
    """The p-value that rejects at this level, or None.

    z counts only where honest scores are many enough for its level: the normal null that it has in long texts is far
    too light in the tails of short ones.
    """
    calibration = policy.calibration("surprise", len(drawn.out))
    calibrated = conformal.least_two_sided_p(len(calibration)) <= level
    p_values = []
    if calibrated and surprise.entropy >= LEAST_ENTROPY and math.isfinite(surprise.z):
        p_values.append(conformal.two_sided_p(calibration, surprise.z))
    p0 = 0.0 if policy.exact is not None else conformal.upper_rate(policy.rates.out, policy.rates.tokens)
    if p0 < 1.0:
        p_values.append(evalue.ever_p(evalue.mismatch_log_e(drawn.out, p0)))
    p_values.append(evalue.ever_p(tempered))
    least = min(p_values)
    return least if least <= level else None
