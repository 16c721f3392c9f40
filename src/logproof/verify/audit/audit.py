"""Audit: capture a budgeted set of prompts from a provider, verify each on a trusted engine, stop when settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from logproof.client.connect import Connection
from logproof.verify.artifact.artifact import Artifact, Claim
from logproof.verify.audit.evidence import Audit, AuditSession, JudgedArtifact, add, add_failure, headline
from logproof.verify.audit.verify import verify
from logproof.verify.policy import Policy
from logproof.verify.record.capture import Pins, Prompt, capture
from logproof.verify.replay.replay_plan import MethodChoice


class AuditSides(msgspec.Struct, frozen=True):
    """Provider under audit and trusted engine, open connections."""

    provider: Connection
    trusted: Connection


async def audit(
    sides: AuditSides,
    prompts: Sequence[Prompt],
    pins: Pins,
    claim: Claim,
    policy: Policy,
    *,
    method: MethodChoice = "auto",
    concurrency: int = 4,
    stop_early: bool = True,
    told: Callable[[JudgedArtifact, AuditSession], None] = lambda verified, session: None,
) -> tuple[Audit, list[JudgedArtifact]]:
    """Audit a provider. Raises what Client.call raises on either side.

    stop_early: end once the claim is rejected. told: called after each request.
    """
    started = datetime.now(UTC)
    session, done = AuditSession(level=policy.level), list[JudgedArtifact]()
    async for one in capture(sides.provider, prompts, pins, claim, concurrency=concurrency):
        if one.artifact is None:
            session = add_failure(session, one.prompt.id, f"the provider failed: {one.error}")
            continue
        answer, verdict = await verify(sides.trusted, one.artifact, policy, method)
        done.append(JudgedArtifact(one.prompt.id, one.artifact, answer, verdict))
        key = evidence_key(one.artifact)
        session = add(session, one.prompt.id, key, verdict, exact=policy.exact is not None)
        told(done[-1], session)
        if stop_early and session.settled:
            break
    return _audit(sides, claim, policy, session, done, started), done


def evidence_key(artifact: Artifact) -> str:
    """What makes evidence fresh: prompt and seed. Greedy or unseeded answers to one prompt count once."""
    seed = artifact.sampling.seed
    return msgspec.json.encode((artifact.tokens.prompt_ids, None if seed is None else seed.value)).decode()


def _audit(
    sides: AuditSides,
    claim: Claim,
    policy: Policy,
    session: AuditSession,
    done: Sequence[JudgedArtifact],
    started: datetime,
) -> Audit:
    return Audit(
        schema="logproof-audit/1",
        provider=sides.provider.endpoint.display,
        trusted=sides.trusted.endpoint.display,
        model=claim.model.id,
        started_at=started.isoformat(timespec="seconds"),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        policy_digest=policy.digest,
        fingerprint=done[-1].artifact.provenance.fingerprint if done else None,
        session=session,
        headline=headline(session),
    )
