"""Runs the checks of a replay: alignment, distribution, and seed and sampling, or greedy. replay.py made the calls.

One artifact may be rejected by three statistical checks, among which policy.SHARES splits the policy's level. A check
without calibration for this length is unknown, never passed.
"""

from __future__ import annotations

from collections.abc import Callable

from logproof.verify.check_table import SAMPLING, SEED
from logproof.verify.checks.alignment import check_alignment
from logproof.verify.checks.case import ReplayedCase
from logproof.verify.checks.distribution import check_distribution
from logproof.verify.checks.sampling import check_greedy, check_sampling
from logproof.verify.checks.seed import check_seed
from logproof.verify.verdict import Finding, unknown


def check_draws(case: ReplayedCase) -> list[Finding]:
    """S2g for a greedy claim, else S2 and S3. Where no seed can be replayed, S3 has the share of S2's level too."""
    sampler, policy = case.record.sampler, case.policy
    if isinstance(sampler, str):
        detail = "the claimed sampling is not fully known, or cannot be repeated on these logprobs"
        return [unknown(SAMPLING, "sampler_unknown", detail)]
    if sampler.greedy:
        return [check_greedy(case.verifier, policy)]
    seed = check_seed(case, sampler)
    unused = policy.level_of(SEED) if seed.outcome == "unknown" else 0.0
    return [seed, check_sampling(case, sampler, policy.level_of(SAMPLING) + unused)]


REPLAY_CHECKS: tuple[Callable[[ReplayedCase], list[Finding]], ...] = (check_distribution, check_draws)
"""The checks of a replay that may be compared with its artifact, in the order of their findings."""


def check(case: ReplayedCase) -> list[Finding]:
    """All findings of one replay; where it cannot be compared with the artifact, the one that says so."""
    unlike = check_alignment(case)
    return [unlike] if unlike is not None else [finding for run in REPLAY_CHECKS for finding in run(case)]
