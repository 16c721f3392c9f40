"""S2, S4 and what binds a seed: does the draw, repeated under the claimed seed, give the recorded tokens?

S4 repeats it on the record's own logprobs and is exact; S2 on the verifier's. Nothing that is said of a seed counts
where the executor could have chosen it.
"""

from __future__ import annotations

import msgspec

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns
from logproof.verify.artifact.request_body import read_stated
from logproof.verify.artifact.seeds import seed_is_bound
from logproof.verify.check_table import SEED, SEED_ORIGIN, SEEDS_CHOSEN, SELF_REPLAY
from logproof.verify.checks.case import RecordedCase, ReplayedCase
from logproof.verify.policy import Policy
from logproof.verify.stats import conformal, evalue, plausibility, redraw
from logproof.verify.stats.sampler import Sampler, bending
from logproof.verify.stats.sampler_profiles import Profile
from logproof.verify.verdict import Finding, failed_if, passed, unknown

FLOAT_NOISE = 2e-6
"""Rounding of float32 logprobs of one row against each other, nats."""


def seed_obstacle(artifact: Artifact, sampler: Sampler | str, profile: Profile | None) -> str | None:
    """Why the draw cannot be repeated, or None."""
    if isinstance(sampler, str):
        return sampler
    bent = bending(artifact.sampling, "raw" if artifact.logprobs is None else artifact.logprobs.mode)
    if bent and not sampler.greedy:
        return f"{bent[0]} bends the distribution that is drawn from"
    if artifact.claim.engine.spec_decode:
        return "speculative decoding uses the noise differently"
    if sampler.greedy:
        return None
    if artifact.sampling.seed is None:
        return "no seed is recorded"
    if drawn_seed(artifact) is None:
        return f"it is one of {artifact.choice.n} choices; how the claimed engine derives their seeds is not known"
    return None if profile is not None else "no sampler profile fits the claimed engine"


def drawn_seed(artifact: Artifact) -> int | None:
    """The seed that this choice was drawn with; None where there is none, or where it is not known how it follows.

    Of n choices vLLM draws the one with index i with the request's seed + i (`ParentRequest` of its V1 engine).
    """
    seed, choice = artifact.sampling.seed, artifact.choice
    if seed is None or (choice.n > 1 and artifact.claim.engine.name != "vllm"):
        return None
    return seed.value + choice.index


def choice_is_bound(artifact: Artifact) -> bool:
    """Whether the executor could not choose which of many seeds its choice has: it is the only one, or the request
    that was recorded asks for as many."""
    stated, n = read_stated(artifact), artifact.choice.n
    return n == 1 or (stated is not None and stated.n == n)


def check_seed_origin(case: RecordedCase) -> list[Finding]:
    """The check called "seed"."""
    return [seed_origin(case.artifact)]


def seed_origin(artifact: Artifact) -> Finding:
    """Passed where the executor could not have chosen the seed of this choice; needs neither ids nor logprobs."""
    seed = artifact.sampling.seed
    bound = seed_is_bound(artifact)
    if bound and choice_is_bound(artifact):
        return passed(SEED_ORIGIN, "the executor did not choose the seed")
    detail = f"the seed's origin is {'absent' if seed is None else seed.origin}"
    if not bound and seed is not None and seed.origin == "requester":
        detail = f"the recorded request does not hold the seed {seed.value}"
    elif bound:
        detail = f"it is one of {artifact.choice.n} choices, for which the recorded request does not ask"
    return unknown(SEED_ORIGIN, "seed_unbound", detail)


def check_self_replay(case: RecordedCase) -> list[Finding]:
    """S4: the draw repeated on the record's own logprobs; one violation is a contradiction."""
    obstacle = seed_obstacle(case.artifact, case.sampler, case.profile)
    if obstacle is not None or isinstance(case.sampler, str):
        return [unknown(SELF_REPLAY, "sampler_unknown", obstacle or "")]
    if case.sampler.greedy:
        return [_own_maximum(case.columns, case.step)]
    seed = drawn_seed(case.artifact)
    if seed is None or case.profile is None:
        return [unknown(SELF_REPLAY, "sampler_unknown", "no seed or profile")]
    draw = redraw.redraw(
        case.columns,
        case.sampler,
        case.profile,
        seed,
        case.prompt_tokens,
        step=case.step,
        vocab_size=case.vocab_size,
    )
    finding = _violations(draw, case.columns)
    unsure = case.vocabulary_obstacle(redrawn=True)
    if finding.outcome == "pass" and unsure is not None:
        return [unknown(SELF_REPLAY, "vocabulary_unknown", unsure, finding.n)]
    return [finding]


def _violations(draw: redraw.Redraw, columns: Columns) -> Finding:
    judged = int(draw.known.sum())
    if judged == 0:
        return unknown(SELF_REPLAY, "no_logprobs", "no sampled logprob is recorded")
    at = redraw.first_violation(draw)
    if at is None:
        detail = f"{judged} recorded tokens are the draws from their own logprobs"
    else:
        what = "cannot be drawn" if draw.out[at] else f"loses to {draw.rivals[at]} by {draw.margin[at]:.4f}"
        detail = f"token {at} ({columns.sampled_ids[at]}) {what}"
    numbers = {"mismatch_share": float((draw.mismatch & draw.known).sum()) / judged}
    finding = passed(SELF_REPLAY, detail, judged, numbers)
    finding = msgspec.structs.replace(finding, blind=f"{SELF_REPLAY.blind}; {SEEDS_CHOSEN}")
    return failed_if(at is not None, finding, "self_replay")


def _own_maximum(columns: Columns, step: float) -> Finding:
    """Greedy: each sampled token is the best of its own row, up to the recorded rounding."""
    gaps = plausibility.greedy_gaps(columns)
    judged = int((gaps == gaps).sum())
    if judged == 0:
        return unknown(SELF_REPLAY, "no_logprobs", "no sampled logprob is recorded")
    # Both the best and the sampled logprob may be off by a step.
    bad = (gaps > 2.0 * step + FLOAT_NOISE).nonzero()[0]
    if len(bad):
        at = int(bad[0])
        detail = f"greedy is claimed, but token {at} lies {gaps[at]:.4f} nat below its own row's best"
        return Finding(test=SELF_REPLAY.id, outcome="fail", reason="self_replay", detail=detail, n=judged)
    return passed(SELF_REPLAY, f"{judged} tokens are the best of their own rows", judged)


def check_seed(case: ReplayedCase, sampler: Sampler) -> Finding:
    """S2: the draw repeated on the verifier's logprobs, margins bet against honest ones."""
    record, policy = case.record, case.policy
    obstacle = seed_obstacle(record.artifact, sampler, record.profile)
    seed = drawn_seed(record.artifact)
    if obstacle is not None or record.profile is None or seed is None:
        return unknown(SEED, "sampler_unknown", obstacle or "no seed")
    unsure = record.vocabulary_obstacle(redrawn=True)
    if unsure is not None:
        return unknown(SEED, "vocabulary_unknown", unsure)
    draw = redraw.redraw(
        case.verifier,
        sampler,
        record.profile,
        seed,
        record.prompt_tokens,
        step=policy.exact or 0.0,
        slack=policy.cut_slack(sampler),
        vocab_size=record.vocab_size,
    )
    return seed_finding(draw, policy)


MARGIN_FACTOR, BET_FACTOR = 1.5, 3.0
"""Weighted Bonferroni: by what the p-values of the mean margin and of the bet are multiplied, the inverse of the shares
that they have of S2's level: two thirds and one third."""


def seed_finding(draw: redraw.Redraw, policy: Policy) -> Finding:
    """The finding of a redraw: exact pairs allow no mismatch, others as much as honest margins explain.

    Of S2's level two thirds go to the mean margin among those of honest records of this length, one third to the bet on
    its size token by token; all of it to the bet where too few records are known.
    """
    judged = int(draw.known.sum())
    if judged == 0:
        return unknown(SEED, "no_logprobs", "no sampled logprob came back")
    missed = int((draw.mismatch & draw.known).sum())
    numbers = {"mismatch_share": missed / judged, "capped_margin": draw.capped(), "out": float(draw.out.sum())}
    detail = f"{missed} of {judged} tokens are not the draws of the claimed seed"
    finding = passed(SEED, detail, judged, numbers)
    if policy.exact is not None:
        return failed_if(missed > 0, finding, "seed")
    if len(policy.rates.margins) != redraw.BINS or sum(policy.rates.margins) == 0:
        detail = "no honest margins were measured"
        return msgspec.structs.replace(finding, outcome="unknown", reason="profile_uncalibrated", detail=detail)
    log_e = evalue.bins_log_e(redraw.margin_bins(draw), evalue.null_shares(policy.rates.margins))
    level, p = policy.level_of(SEED), evalue.ever_p(log_e)
    calibration = policy.calibration("margin", len(draw.margin))
    if MARGIN_FACTOR * conformal.least_p(len(calibration)) <= level:
        p = min(1.0, BET_FACTOR * p, MARGIN_FACTOR * conformal.p_value(calibration, draw.capped()))
    finding = msgspec.structs.replace(finding, detail=f"{detail}, p = {p:.4f}", log_e=float(log_e[-1]), p=p)
    return failed_if(p <= level, finding, "seed")
