"""Many requests to one provider: evidence that adds up, and when it is settled. Pure.

Each request's e-value is fresh evidence (its own prompt and seed), so their product exceeds 1/level with chance at most
`level` for an honest provider, whenever one stops. A contradiction that honest records cannot have settles at once. A
statistical rejection of one request does not: of many honest ones some are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from logproof.verify.artifact.artifact import Artifact, Record
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.check_table import CHECKS
from logproof.verify.stats import evalue
from logproof.verify.verdict import EXIT_CODES, Finding, Status, Verdict

LEAST_VALID = 0.8
"""Share of requests that must be valid for a session to be."""


class Step(Record, frozen=True, kw_only=True):
    """One request of a session. log_e: evidence against the claim up to and including it."""

    prompt: str
    status: Status
    level: str
    reasons: tuple[str, ...]
    tokens: int
    tz: float | None
    log_e: float
    artifact_digest: str | None = None
    decisive: bool = False


class AuditSession(Record, frozen=True, kw_only=True):
    """The state of an audit. status and headline: what is settled so far. skipped: repeats of a prompt and seed.

    level: share of honest providers that may be rejected. planned: requests of the budget, None where it is not
    recorded. Raises ValueError unless it is between 0 and 1.
    """

    level: float
    steps: tuple[Step, ...] = ()
    skipped: int = 0
    seen: tuple[str, ...] = ()
    planned: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level {self.level} is not between 0 and 1")

    @property
    def log_e(self) -> float:
        """Accumulated log e-value; above -log(level) the claim is rejected."""
        return self.steps[-1].log_e if self.steps else 0.0

    @property
    def settled(self) -> bool:
        """Whether the claim is rejected, and more requests would not change it."""
        return any(s.decisive or s.log_e >= -math.log(self.level) for s in self.steps)

    @property
    def status(self) -> Status:
        """invalid when settled; valid when at least LEAST_VALID of the requests are; else inconclusive."""
        if self.settled:
            return "invalid"
        good = sum(s.status == "valid" for s in self.steps)
        return "valid" if self.steps and good >= LEAST_VALID * len(self.steps) else "inconclusive"

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 inconclusive."""
        return EXIT_CODES[self.status]


def add(session: AuditSession, prompt: str, key: str, verdict: Verdict, *, exact: bool) -> AuditSession:
    """The session with one more verdict. key: prompt and seed; a key seen before adds nothing.

    exact: the policy is of an exact pair, so any failed test is a contradiction.
    """
    if key in session.seen:
        return msgspec.structs.replace(session, skipped=session.skipped + 1)
    step = Step(
        prompt=prompt,
        status=verdict.status,
        level=verdict.level,
        reasons=verdict.reasons,
        tokens=max((f.n for f in verdict.findings), default=0),
        tz=next((f.statistic["tz"] for f in verdict.findings if "tz" in f.statistic), None),
        log_e=session.log_e + verdict.log_e,
        artifact_digest=verdict.context.artifact_digest,
        decisive=any(_decides(f, exact) for f in verdict.findings),
    )
    return msgspec.structs.replace(session, steps=(*session.steps, step), seen=(*session.seen, key))


def add_failure(session: AuditSession, prompt: str, reason: str) -> AuditSession:
    """The session with one request that gave no artifact: it counts as inconclusive."""
    step = Step(
        prompt=prompt, status="inconclusive", level="none", reasons=(reason,), tokens=0, tz=None, log_e=session.log_e
    )
    return msgspec.structs.replace(session, steps=(*session.steps, step))


def _decides(finding: Finding, exact: bool) -> bool:
    return finding.outcome == "fail" and (exact or CHECKS[finding.test].exact)


class Audit(Record, frozen=True, kw_only=True):
    """A finished audit, comparable over time. schema names its version; times are RFC 3339 in UTC."""

    schema: Literal["logproof-audit/1"]
    provider: str
    trusted: str
    model: str
    started_at: str
    finished_at: str
    policy_digest: str
    fingerprint: str | None
    session: AuditSession
    headline: str

    @property
    def mean_tz(self) -> float | None:
        """Mean distance over requests, None where none was measured."""
        values = [s.tz for s in self.session.steps if s.tz is not None]
        return sum(values) / len(values) if values else None


def headline(session: AuditSession) -> str:
    """The audit in one line; what was not shown comes first where nothing was found."""
    n = len(session.steps)
    if session.status == "invalid":
        first = next(i for i, s in enumerate(session.steps, 1) if s.decisive or s.log_e >= -math.log(session.level))
        reason = next((s.reasons[0] for s in session.steps if s.status == "invalid"), "the evidence added up")
        budget = f"{n}" if session.planned is None else f"{session.planned} planned"
        return f"Rejected after {first} of {budget} requests: {reason}"
    counts = {k: sum(s.status == k for s in session.steps) for k in ("valid", "invalid", "inconclusive")}
    words = ", ".join(f"{v} {k}" for k, v in counts.items())
    return f"Not shown: anything about requests outside this sample. {n} requests: {words}."


class ReasonGroup(Record, frozen=True, kw_only=True):
    """A reason that verdicts other than valid give. requests: how many give it. first: prompt of the first, in whose
    words `detail` is."""

    reason: str
    requests: int
    first: str
    detail: str


def reason_groups(session: AuditSession) -> list[ReasonGroup]:
    """Each reason of the verdicts that are not valid, once, the most frequent first."""
    groups: dict[str, ReasonGroup] = {}
    for step in session.steps:
        for text in step.reasons if step.status != "valid" else ():
            reason, _, detail = text.partition(": ")
            known = groups.get(reason, ReasonGroup(reason=reason, requests=0, first=step.prompt, detail=detail))
            groups[reason] = msgspec.structs.replace(known, requests=known.requests + 1)
    return sorted(groups.values(), key=lambda group: -group.requests)


def outdated(then: Audit, now: Audit) -> list[str]:
    """What the earlier audit rested on and is no more, in words; with any of it that audit is stale."""
    pairs = ((n, getattr(then, n), getattr(now, n)) for n in ("model", "fingerprint", "policy_digest", "trusted"))
    return [f"{name} was {old}, is {new}" for name, old, new in pairs if old != new]


class Ruling(Record, frozen=True, kw_only=True):
    """What several audits together say of one provider.

    status: invalid where the claim is rejected among all of them, valid where its own audit is, else inconclusive.
    alone: status of its own audit. log_e: evidence against the claim that this audit accumulated. contradiction: it
    holds something that honest records cannot have, which no amount of other audits outweighs.
    """

    provider: str
    model: str
    status: Status
    alone: Status
    requests: int
    log_e: float
    contradiction: bool
    headline: str


def discoveries(audits: Sequence[Audit], level: float) -> list[Ruling]:
    """A ruling on each of several audits; of the claims rejected, in the mean at most a share of `level` falsely.

    The e-BH procedure on what each audit has accumulated, whenever each was stopped and however they depend on each
    other; a contradiction is infinite evidence. Raises ValueError unless level is between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level {level} is not between 0 and 1")
    certain = [any(s.decisive for s in a.session.steps) for a in audits]
    evidence = [math.inf if sure else a.session.log_e for a, sure in zip(audits, certain, strict=True)]
    rejected = evalue.e_bh(evidence, level)
    return [_ruling(a, sure, gone) for a, sure, gone in zip(audits, certain, rejected, strict=True)]


def _ruling(audit: Audit, contradiction: bool, rejected: bool) -> Ruling:
    alone = audit.session.status
    return Ruling(
        provider=audit.provider,
        model=audit.model,
        status="invalid" if rejected else "valid" if alone == "valid" else "inconclusive",
        alone=alone,
        requests=len(audit.session.steps),
        log_e=audit.session.log_e,
        contradiction=contradiction,
        headline=audit.headline,
    )


LEAST_CHANGE = 0.05
"""Change of the mean distance below which nothing is said: honest noise is near 0.4, exact engines near 0."""


def changes(then: Audit, now: Audit) -> list[str]:
    """What differs between two audits of one provider, in words; empty where nothing that matters does."""
    lines = outdated(then, now)
    if then.session.status != now.session.status:
        lines.append(f"the audit was {then.session.status}, is {now.session.status}")
    a, b = then.mean_tz, now.mean_tz
    if a is not None and b is not None and abs(a - b) > max(LEAST_CHANGE, 0.25 * max(a, b)):
        lines.append(f"the mean distance was {a:.3f}, is {b:.3f}")
    return lines


class JudgedArtifact(msgspec.Struct, frozen=True, eq=False):
    """One artifact with its replay and verdict; what the report draws."""

    prompt: str
    artifact: Artifact
    replay: ReplayResult | ReplayFailure | None
    verdict: Verdict
