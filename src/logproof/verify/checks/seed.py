"""S2, S4 and what binds a seed: does the draw, repeated under the claimed seed, give the recorded tokens?

S4 repeats it on the record's own logprobs and is exact; S2 on the verifier's. Nothing that is said of a seed counts
where the executor could have chosen it."""

from __future__ import annotations

import math

import msgspec

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.columns import Columns
from logproof.verify.artifact.seeds import seed_is_bound
from logproof.verify.check_table import SEED, SEED_ORIGIN, SEEDS_CHOSEN, SELF_REPLAY
from logproof.verify.checks.case import Offline
from logproof.verify.policy import Policy
from logproof.verify.stats import conformal, evalue, plausibility, redraw
from logproof.verify.stats.sampler_profiles import Profile
from logproof.verify.stats.support import Sampler, bending
from logproof.verify.verdict import Finding, failed_if

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
    body, n = artifact.request.body, artifact.choice.n
    return n == 1 or (isinstance(body, dict) and body.get("n") == n)


def check_seed_origin(artifact: Artifact, bound: bool) -> Finding:
    seed = artifact.sampling.seed
    if bound:
        return Finding(
            test=SEED_ORIGIN.id, outcome="pass", detail="the executor did not choose the seed", blind=SEED_ORIGIN.blind
        )
    detail = f"the seed's origin is {'absent' if seed is None else seed.origin}"
    if seed_is_bound(seed):
        detail = f"it is one of {artifact.choice.n} choices, for which the recorded request does not ask"
    return Finding(test=SEED_ORIGIN.id, outcome="unknown", reason="seed_unbound", detail=detail)


def check_self_replay(
    artifact: Artifact, columns: Columns, sampler: Sampler | str, profile: Profile | None, step: float
) -> Finding:
    obstacle = seed_obstacle(artifact, sampler, profile)
    if obstacle is not None or isinstance(sampler, str):
        return Finding(test=SELF_REPLAY.id, outcome="unknown", reason="sampler_unknown", detail=obstacle or "")
    if sampler.greedy:
        return _own_maximum(columns, step)
    seed = drawn_seed(artifact)
    if seed is None or profile is None:
        return Finding(test=SELF_REPLAY.id, outcome="unknown", reason="sampler_unknown", detail="no seed or profile")
    prompt = len(artifact.tokens.prompt_ids or ())
    draw = redraw.redraw(columns, sampler, profile, seed, prompt, step=step, vocab_size=artifact.claim.model.vocab_size)
    return _violations(draw, columns)


def _violations(draw: redraw.Redraw, columns: Columns) -> Finding:
    blind = f"{SELF_REPLAY.blind}; {SEEDS_CHOSEN}"
    judged = int(draw.known.sum())
    if judged == 0:
        return Finding(
            test=SELF_REPLAY.id, outcome="unknown", reason="no_logprobs", detail="no sampled logprob is recorded"
        )
    share = float((draw.mismatch & draw.known).sum()) / judged
    at = redraw.first_violation(draw)
    numbers = {"mismatch_share": share}
    if at is None:
        detail = f"{judged} recorded tokens are the draws from their own logprobs"
        return Finding(test=SELF_REPLAY.id, outcome="pass", detail=detail, n=judged, statistic=numbers, blind=blind)
    what = "cannot be drawn" if draw.out[at] else f"loses to {draw.rivals[at]} by {draw.margin[at]:.4f}"
    detail = f"token {at} ({columns.sampled_ids[at]}) {what}"
    return Finding(
        test=SELF_REPLAY.id,
        outcome="fail",
        reason="self_replay",
        detail=detail,
        n=judged,
        statistic=numbers,
        blind=blind,
    )


def _own_maximum(columns: Columns, step: float) -> Finding:
    """Greedy: each sampled token is the best of its own row, up to the recorded rounding."""
    gaps = plausibility.greedy_gaps(columns)
    judged = int((gaps == gaps).sum())
    if judged == 0:
        return Finding(
            test=SELF_REPLAY.id, outcome="unknown", reason="no_logprobs", detail="no sampled logprob is recorded"
        )
    bad = (gaps > 2.0 * step + FLOAT_NOISE).nonzero()[0]
    if len(bad):
        at = int(bad[0])
        detail = f"greedy is claimed, but token {at} lies {gaps[at]:.4f} nat below its own row's best"
        return Finding(test=SELF_REPLAY.id, outcome="fail", reason="self_replay", detail=detail, n=judged)
    detail = f"{judged} tokens are the best of their own rows"
    return Finding(test=SELF_REPLAY.id, outcome="pass", detail=detail, n=judged, blind=SELF_REPLAY.blind)


def check_seed(artifact: Artifact, offline: Offline, verifier: Columns, policy: Policy) -> Finding:
    """S2: the draw repeated on the verifier's logprobs, margins bet against honest ones."""
    obstacle = seed_obstacle(artifact, offline.sampler or "the sampling is unknown", offline.profile)
    seed = drawn_seed(artifact)
    if obstacle is not None or offline.profile is None or seed is None or offline.sampler is None:
        return Finding(test=SEED.id, outcome="unknown", reason="sampler_unknown", detail=obstacle or "no seed")
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
        return Finding(test=SEED.id, outcome="unknown", reason="no_logprobs", detail="no sampled logprob came back")
    missed = int((draw.mismatch & draw.known).sum())
    numbers = {"mismatch_share": missed / judged, "capped_margin": draw.capped(), "out": float(draw.out.sum())}
    detail = f"{missed} of {judged} tokens are not the draws of the claimed seed"
    finding = Finding(test=SEED.id, outcome="pass", detail=detail, n=judged, statistic=numbers, blind=SEED.blind)
    if policy.exact is not None:
        return failed_if(missed > 0, finding, "seed")
    if len(policy.rates.margins) != redraw.BINS or sum(policy.rates.margins) == 0:
        detail = "no honest margins were measured"
        return msgspec.structs.replace(finding, outcome="unknown", reason="profile_uncalibrated", detail=detail)
    log_e = evalue.bins_log_e(redraw.margin_bins(draw), evalue.null_shares(policy.rates.margins))
    level, p = policy.level_of(SEED), math.exp(-max(0.0, float(log_e.max())))
    calibration = policy.calibration("margin", len(draw.margin))
    if 1.5 * conformal.least_p(len(calibration)) <= level:
        p = min(1.0, 3.0 * p, 1.5 * conformal.p_value(calibration, draw.capped()))
    finding = msgspec.structs.replace(finding, detail=f"{detail}, p = {p:.4f}", log_e=float(log_e[-1]), p=p)
    return failed_if(p <= level, finding, "seed")
