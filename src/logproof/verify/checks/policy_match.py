"""Does the policy speak about this record, and does the record have what the policy requires? Pure.

What the record's claims would switch off is not left to them: another executor, sampler profile, sampling or number
format than the policy requires is never valid, and a seed that was asked for must be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from logproof.errors import ArtifactError
from logproof.verify.artifact.artifact import Artifact, Mode, Sent
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.artifact.request_body import stated_request
from logproof.verify.check_table import POLICY, REQUIREMENTS
from logproof.verify.policy import Policy, other_model
from logproof.verify.requirements import other_numbers
from logproof.verify.stats.sampler import GREEDY_BELOW
from logproof.verify.verdict import Finding, Reason, passed, unknown


def check_requirements(policy: Policy) -> Finding:
    """The check called "requires": passed where the policy says what a record must have."""
    missing = policy.requires.missing()
    if not missing:
        return passed(REQUIREMENTS, "the policy says what a record must have")
    detail = f"it says nothing about {', '.join(missing)}: a record could switch tests off by what it claims"
    return unknown(REQUIREMENTS, "requirements_missing", detail)


def check_match(
    artifact: Artifact, policy: Policy, scope: Finding | None, *, request: Sent, seed_bound: bool
) -> list[Finding]:
    """The check called "policy": what the record lacks or claims otherwise, each a finding; one that passed if nothing.

    scope: why the policy does not speak about it, None where it does. request: as it is known. seed_bound:
    whether the executor could not have chosen the seed.
    """
    wrong = [] if scope is None else [scope]
    wrong += [*_seed(artifact, policy, request, seed_bound), *_executor(artifact, policy), *_sampling(artifact, policy)]
    wrong += [*_numbers(artifact, policy), *_key(artifact, policy)]
    return wrong or [passed(POLICY, "the record has what the policy requires")]


def _failed(reason: Reason, detail: str) -> Finding:
    return Finding(test=POLICY.id, outcome="fail", reason=reason, detail=detail)


def _seed(artifact: Artifact, policy: Policy, request: Sent, bound: bool) -> Iterator[Finding]:
    """A seed that is asked for, by the policy or by the request, and is not recorded as one that binds.

    Where the request asks for none, an executor that drew without one did what it was asked.
    """
    heat = artifact.sampling.temperature
    if bound or (heat is not None and heat < GREEDY_BELOW):
        return
    state = "no seed is recorded" if artifact.sampling.seed is None else "the recorded seed binds nobody"
    if asks_for_seed(request):
        yield _failed("seed_missing", f"{state}, but the request asks for one")
    elif policy.requires.seed == "bound":
        yield unknown(POLICY, "seed_missing", f"{state}; the policy requires one, and the request asks for none")


def asks_for_seed(request: Sent) -> bool:
    """Whether a request names a seed; one that cannot be read is for the check of requests."""
    try:
        return stated_request(request).sampling.seed is not None
    except ArtifactError:
        return False


def _executor(artifact: Artifact, policy: Policy) -> Iterator[Finding]:
    """The claimed executor is none that the policy requires, or names another sampler profile than it has."""
    claim, kinds = artifact.claim, policy.requires.executors
    kind = policy.requires.kind_of(claim)
    if kind is not None:
        other = kind.other_profile(claim)
        if other is not None:
            yield unknown(POLICY, "executor_uncalibrated", other)
    elif kinds:
        nearest = min((kind.differences(claim) for kind in kinds), key=len)
        yield unknown(POLICY, "executor_uncalibrated", "; ".join(nearest))


def _sampling(artifact: Artifact, policy: Policy) -> Iterator[Finding]:
    if policy.requires.sampling is not None:
        mode = "raw" if artifact.logprobs is None else artifact.logprobs.mode
        outside = policy.requires.sampling.outside(artifact.sampling, mode)
        if outside:
            yield unknown(POLICY, "sampling_uncalibrated", "; ".join(outside))


def _numbers(artifact: Artifact, policy: Policy) -> Iterator[Finding]:
    """Another number format than was calibrated. Rounding beyond the format's own is for the structure's check."""
    spec = artifact.logprobs
    other = None if spec is None else other_numbers(spec, policy.requires.numbers)
    if other is not None:
        yield unknown(POLICY, "number_format", other)


def _key(artifact: Artifact, policy: Policy) -> Iterator[Finding]:
    """The record is signed by none of the policy's keys; that the signature holds is for the structure's check."""
    keys = policy.requires.key_ids
    signature = None if artifact.seal is None else artifact.seal.signature
    if keys and (signature is None or signature.key_id not in keys):
        state = "it is not signed" if signature is None else f"key {signature.key_id[:16]} signed it"
        yield _failed("key", f"{state}; the policy requires {' or '.join(k[:16] for k in keys)}")


def check_scope(artifact: Artifact, replay: ReplayResult, policy: Policy, now: datetime) -> Finding | None:
    """Why this policy does not speak about this artifact and replay; None where it does."""
    if policy.expired(now):
        return unknown(POLICY, "stale", f"it expired on {policy.expires_at}")
    other = other_model(artifact.claim.model, policy)
    if other is not None:
        outcome: Literal["fail", "unknown"] = "fail" if policy.pin_model else "unknown"
        return Finding(test=POLICY.id, outcome=outcome, reason="model_identity", detail=other)
    spec = artifact.logprobs
    pairs = (
        ("method", policy.method, replay.method),
        ("mode", policy.mode, policy.mode if spec is None or _speaks_of(policy, spec.mode) else spec.mode),
        ("width", policy.k, spec.k if spec is not None else policy.k),
    )
    differs = [f"{name} {then}, here {here}" for name, then, here in pairs if then != here]
    if differs:
        detail = f"the policy was calibrated for {'; '.join(differs)}"
        if spec is not None and spec.mode == "constrained" and policy.mode != "constrained":
            detail += "; calibrate with prompts whose completions a grammar constrains"
        return unknown(POLICY, "profile_uncalibrated", detail)
    return None


def _speaks_of(policy: Policy, mode: Mode) -> bool:
    """Whether the policy's noise is that of logprobs of this mode. An exact pair is equal under a grammar too."""
    return mode in (policy.mode, "unknown") or (
        mode == "constrained" and policy.mode == "raw" and policy.exact is not None
    )
