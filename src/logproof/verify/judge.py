"""From an artifact, a replay and a policy to a verdict. Pure: the one place where all tests meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from logproof.verify.artifact.artifact import Artifact, Mode, UnreadableRecord, artifact_digest
from logproof.verify.artifact.known_request import KnownRequest, MadePrompt
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.check_table import DISTRIBUTION, POLICY, STRUCTURE
from logproof.verify.checks import recorded, replayed
from logproof.verify.checks.case import RecordedCase, ReplayedCase, trusted_facts
from logproof.verify.policy import Policy, other_model
from logproof.verify.stats import evalue
from logproof.verify.verdict import Context, Finding, Verdict, decide, failed_if, passed, unknown


def judge(
    artifact: Artifact,
    replay: ReplayResult | ReplayFailure | None,
    policy: Policy | None,
    now: datetime,
    *,
    known: KnownRequest | None = None,
    prompt: MadePrompt | None = None,
    vocab_size: int | None = None,
) -> Verdict:
    """The verdict. replay None: only the checks of the record were wanted. now: with time zone.

    known: the requester's own request, None where only the record says what was asked. prompt: the ids that the
    verifier made, of `known` where it is there, else of the record's request; None where nothing was made.
    vocab_size: of the model that the trusted engine runs, where no replay tells it.
    """
    if isinstance(replay, ReplayResult) and replay.vocab_size is not None:
        vocab_size = replay.vocab_size
    checked = recorded.check(artifact, trusted_facts(artifact, policy, vocab_size))
    findings = list(checked.findings)
    if checked.case is not None:
        findings += _replayed(checked.case, replay, policy, now)
    context = _context(artifact, replay, policy, now)
    return decide(findings, context, policy.require if policy is not None else "sampled", request_log_e(findings))


def judge_unreadable(record: UnreadableRecord, policy: Policy | None, now: datetime) -> Verdict:
    """The verdict on a line or row that is no artifact: invalid, by the rules of structure."""
    finding = failed_if(True, passed(STRUCTURE, f"{record.where}: {record.detail}", 1), "unreadable")
    time = now.astimezone(UTC).isoformat(timespec="seconds")
    policy_digest = policy.digest if policy is not None else None
    return decide([finding], Context(time=time, artifact_digest=record.digest, model="", policy_digest=policy_digest))


def _replayed(
    record: RecordedCase, replay: ReplayResult | ReplayFailure | None, policy: Policy | None, now: datetime
) -> list[Finding]:
    """The findings of the replay, or the one that says why there are none."""
    if replay is None:
        return [unknown(DISTRIBUTION, "not_replayed", "only the artifact was looked at")]
    if isinstance(replay, ReplayFailure):
        return [unknown(DISTRIBUTION, replay.reason, replay.detail)]
    if policy is None:
        detail = "no policy says how far honest engines differ; run logproof calibrate"
        return [unknown(DISTRIBUTION, "profile_uncalibrated", detail)]
    obstacle = _obstacle(record.artifact, replay, policy, now)
    if obstacle is not None:
        return [obstacle]
    rows = replay.columns
    return replayed.check(
        ReplayedCase(record, rows, rows if replay.scored is None else replay.scored, replay.mode, policy)
    )


def _obstacle(artifact: Artifact, replay: ReplayResult, policy: Policy, now: datetime) -> Finding | None:
    """Why this policy does not speak about this artifact and replay."""
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


def request_log_e(findings: Sequence[Finding]) -> float:
    """One request's log e-value: the mean over its tests, valid under any dependence between them; 0 without any."""
    values = [f.log_e for f in findings if f.log_e is not None and math.isfinite(f.log_e)]
    return evalue.average(values) if values else 0.0


def _noise_floor(result: ReplayResult | None, policy: Policy | None) -> float | None:
    """As measured with this replay, else as calibration measured it on the same engine."""
    if result is None or result.noise_floor is not None or policy is None:
        return None if result is None else result.noise_floor
    return policy.floor.repeat


def _context(
    artifact: Artifact, replay: ReplayResult | ReplayFailure | None, policy: Policy | None, now: datetime
) -> Context:
    result = replay if isinstance(replay, ReplayResult) else None
    holdouts = list(policy.holdout.values()) if policy is not None else []
    return Context(
        time=now.astimezone(UTC).isoformat(timespec="seconds"),
        artifact_digest=artifact_digest(artifact),
        model=artifact.claim.model.id,
        policy_digest=policy.digest if policy is not None else None,
        endpoint=result.endpoint if result else None,
        engine=result.engine if result else None,
        version=result.version if result else None,
        fingerprint=result.fingerprint if result else None,
        artifact_fingerprint=artifact.provenance.fingerprint,
        mode=artifact.logprobs.mode if artifact.logprobs is not None else None,
        method=result.method if result else None,
        method_reason=result.method_reason if result else None,
        noise_floor=_noise_floor(result, policy),
        false_positive_target=policy.level if policy is not None else None,
        false_positive_measured=(sum(h.alarms for h in holdouts), sum(h.sequences for h in holdouts))
        if holdouts
        else None,
    )
