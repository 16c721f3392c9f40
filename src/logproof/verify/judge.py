"""From an artifact, a replay and a policy to a verdict. Pure: the one place where all tests meet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from logproof.verify.artifact.artifact import Artifact, UnreadableRecord, artifact_digest
from logproof.verify.artifact.completion_text import CompletionText
from logproof.verify.artifact.known_request import KnownRequest, MadePrompt
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.check_table import DISTRIBUTION, SEED_ORIGIN, STRUCTURE
from logproof.verify.checks import policy_match, recorded, replayed
from logproof.verify.checks.case import NOTHING_STATED, RecordedCase, ReplayedCase, ServerStatement, trusted_facts
from logproof.verify.checks.prompt_match import check_prompt
from logproof.verify.policy import Policy
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
    keys: tuple[str, ...] = (),
    server: ServerStatement = NOTHING_STATED,
    text: CompletionText | None = None,
) -> Verdict:
    """The verdict. replay None: only the checks of the record were wanted. now: with time zone.

    known: the requester's own request, None where only the record says what was asked. prompt: the ids that the
    verifier made, of `known` where it is there, else of the record's request; None where nothing was made.
    vocab_size: of the model that the trusted engine runs, where no replay tells it. keys: public keys, hex, of which
    one must have signed the record, where there are any. server: what the verifier states of the executor's server.
    text: of the completion, as the trusted engine decodes it.
    """
    if isinstance(replay, ReplayResult) and replay.vocab_size is not None:
        vocab_size = replay.vocab_size
    facts = trusted_facts(artifact, policy, vocab_size, keys, known=known, server=server, text=text)
    checked = recorded.check(artifact, facts)
    findings = list(checked.findings)
    scope = None
    if checked.sound:
        findings.append(check_prompt(artifact, known, prompt))
    if policy is not None and checked.sound:
        if checked.replayable and isinstance(replay, ReplayResult):
            scope = policy_match.check_scope(artifact, replay, policy, now)
        request = artifact.request
        if known is not None:
            request = msgspec.structs.replace(request, path=known.path, body=known.body)
        bound = any(f.test == SEED_ORIGIN.id and f.outcome == "pass" for f in findings)
        findings += policy_match.check_match(artifact, policy, scope, request=request, seed_bound=bound)
        findings.append(policy_match.check_requirements(policy))
    if checked.case is not None and scope is None:
        findings += _replayed(checked.case, replay, policy)
    context = _context(artifact, replay, policy, now)
    level = policy.requires.level if policy is not None else "sampled"
    machines = policy.machine_words if policy is not None else ""
    return decide(findings, context, level, request_log_e(findings), machines)


def judge_unreadable(record: UnreadableRecord, policy: Policy | None, now: datetime) -> Verdict:
    """The verdict on a line or row that is no artifact: invalid, by the rules of structure."""
    finding = failed_if(True, passed(STRUCTURE, f"{record.where}: {record.detail}", 1), "unreadable")
    time = now.astimezone(UTC).isoformat(timespec="seconds")
    policy_digest = policy.digest if policy is not None else None
    return decide([finding], Context(time=time, artifact_digest=record.digest, model="", policy_digest=policy_digest))


def _replayed(
    record: RecordedCase, replay: ReplayResult | ReplayFailure | None, policy: Policy | None
) -> list[Finding]:
    """The findings of the replay, or the one that says why there are none."""
    if replay is None:
        return [unknown(DISTRIBUTION, "not_replayed", "only the artifact was looked at")]
    if isinstance(replay, ReplayFailure):
        return [unknown(DISTRIBUTION, replay.reason, replay.detail)]
    if policy is None:
        detail = "no policy says how far honest engines differ; run logproof calibrate"
        return [unknown(DISTRIBUTION, "profile_uncalibrated", detail)]
    rows = replay.columns
    return replayed.check(
        ReplayedCase(record, rows, rows if replay.scored is None else replay.scored, replay.mode, policy)
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
