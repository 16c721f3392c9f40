"""Audit: capture a budgeted set of prompts from a provider, verify each on a trusted engine, stop when settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from logproof.client.connect import Connection
from logproof.errors import EndpointError, SpoiledTopList
from logproof.verify.artifact.artifact import Artifact, Claim
from logproof.verify.audit.audit_page import MAX_TOKENS
from logproof.verify.audit.evidence import Audit, AuditSession, JudgedArtifact, add, add_failure, headline
from logproof.verify.audit.second_engine import with_second
from logproof.verify.audit.verify import verify
from logproof.verify.policy import Policy
from logproof.verify.record.capture import Pins, capture
from logproof.verify.record.prompts import Prompt
from logproof.verify.record.stated_claim import StatedClaim, claim_of
from logproof.verify.replay.replay_plan import MethodChoice


class AuditSides(msgspec.Struct, frozen=True):
    """Provider under audit and trusted engine, open connections. second: asked before the first alone rejects."""

    provider: Connection
    trusted: Connection
    second: Connection | None = None

    @property
    def trusted_names(self) -> str:
        """The endpoints that are trusted."""
        names = [self.trusted.endpoint.display, *([] if self.second is None else [self.second.endpoint.display])]
        return " and ".join(names)


class AuditResult(msgspec.Struct, frozen=True, eq=False):
    """An audit with what its page draws. texts: sampled id -> its text, as far as the trusted engine detokenises."""

    audit: Audit
    judged: list[JudgedArtifact]
    texts: dict[int, str]


async def audit_provider(
    provider: Connection,
    trusted: Connection,
    second: Connection | None = None,
    *,
    prompts: Sequence[Prompt],
    pins: Pins,
    stated: StatedClaim,
    policy: Policy,
    method: MethodChoice = "auto",
    concurrency: int = 4,
    stop_early: bool = True,
    texts: bool = False,
    progress: Callable[[JudgedArtifact, AuditSession], None] = lambda judged, session: None,
) -> AuditResult:
    """Audit a provider under what its operator states. second: another trusted engine, which must reject too.
    texts: ask the trusted engine for the tokens' texts too.

    Other options and errors are those of `audit`.
    """
    finished, judged = await audit(
        AuditSides(provider, trusted, second),
        prompts,
        pins,
        claim_of(provider.facts, provider.model, stated),
        policy,
        method=method,
        concurrency=concurrency,
        stop_early=stop_early,
        progress=progress,
    )
    return AuditResult(finished, judged, await sampled_texts(trusted, judged) if texts else {})


async def sampled_texts(trusted: Connection, judged: Sequence[JudgedArtifact]) -> dict[int, str]:
    """Texts of the sampled ids that a page draws, as far as the trusted engine detokenises."""
    if trusted.tokenizer is None:
        return {}
    ids = {t for one in judged for t in (one.artifact.tokens.completion_ids or ())[:MAX_TOKENS]}
    return {t: await trusted.tokenizer.text(t) for t in sorted(ids)}


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
    progress: Callable[[JudgedArtifact, AuditSession], None] = lambda judged, session: None,
) -> tuple[Audit, list[JudgedArtifact]]:
    """Audit a provider. Raises what Client.call raises on either side.

    stop_early: end once the claim is rejected. progress: called after each request.
    """
    started = datetime.now(UTC)
    session, done = AuditSession(level=policy.level, planned=len(prompts)), list[JudgedArtifact]()
    async for one in capture(sides.provider, prompts, pins, claim, concurrency=concurrency):
        if one.artifact is None:
            session = add_failure(session, one.prompt.id, _failure(one.error))
            continue
        answer, verdict = await verify(sides.trusted, one.artifact, policy, method, known=one.known)
        if sides.second is not None:
            verdict = await with_second(sides.second, one.artifact, verdict, policy, method, known=one.known)
        done.append(JudgedArtifact(one.prompt.id, one.artifact, answer, verdict))
        key = evidence_key(one.artifact)
        session = add(session, one.prompt.id, key, verdict, exact=policy.exact is not None)
        progress(done[-1], session)
        if stop_early and session.settled:
            break
    return _audit(sides, claim, policy, session, done, started), done


def _failure(error: EndpointError | None) -> str:
    """Why a request gave no artifact. Spoiled lists are another tenant's doing, and say nothing of the claim."""
    if isinstance(error, SpoiledTopList):
        return f"another request at the provider spoiled the lists of tokens, twice: {error}"
    return f"the provider failed: {error}"


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
        trusted=sides.trusted_names,
        model=claim.model.id,
        started_at=started.isoformat(timespec="seconds"),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        policy_digest=policy.digest,
        fingerprint=done[-1].artifact.provenance.fingerprint if done else None,
        session=session,
        headline=headline(session),
    )
