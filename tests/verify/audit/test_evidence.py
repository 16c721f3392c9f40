from __future__ import annotations

import math

import msgspec
import pytest

from logproof.verify.audit.evidence import (
    Audit,
    AuditSession,
    add,
    add_failure,
    changes,
    discoveries,
    headline,
    outdated,
)
from logproof.verify.verdict import Context, Finding, Reason, Verdict, decide

CONTEXT = Context(time="t", artifact_digest="a", model="m")
GOOD = [
    Finding(test=t, outcome="pass", detail="ok")
    for t in ("S0a", "S6", "policy", "S1", "request", "prompt", "requires", "S3")
]


def verdict(log_e: float = 0.0, failed: str | None = None, reason: Reason = "seed", tz: float | None = None) -> Verdict:
    found = [] if failed is None else [Finding(test=failed, outcome="fail", reason=reason, detail="far")]
    measured = [] if tz is None else [Finding(test="N1", outcome="note", detail="", statistic={"tz": tz})]
    return decide([*GOOD, *found, *measured], CONTEXT, log_e=log_e)


def grown(*verdicts: Verdict, exact: bool = False, level: float = 0.01) -> AuditSession:
    state = AuditSession(level=level)
    for i, v in enumerate(verdicts):
        state = add(state, f"p{i}", f"k{i}", v, exact=exact)
    return state


def test_evidence_adds_up_until_it_is_settled() -> None:
    state = grown(verdict(2.0), verdict(2.0))
    assert (state.settled, state.log_e) == (False, 4.0)
    state = add(state, "p2", "k2", verdict(1.0), exact=False)
    assert (state.settled, state.status, state.exit_code) == (True, "invalid", 1)
    assert headline(state).startswith("Rejected after 3 of 3 requests: the evidence added up")


def test_a_rejection_stands_whatever_follows() -> None:
    assert grown(verdict(5.0), verdict(-9.0)).settled


def test_one_statistical_rejection_does_not_settle() -> None:
    state = grown(*[verdict()] * 9, verdict(failed="S2"))
    assert (state.settled, state.status) == (False, "valid")


@pytest.mark.parametrize(("test", "exact"), [("S4", False), ("S0a", False), ("S6", False), ("S2", True), ("S1", True)])
def test_contradictions_settle(test: str, exact: bool) -> None:
    state = grown(verdict(), verdict(failed=test), exact=exact)
    assert state.status == "invalid"
    assert "Rejected after 2 of 2" in headline(state)


def test_repeats_add_nothing() -> None:
    state = add(grown(verdict(2.0)), "again", "k0", verdict(9.0), exact=False)
    assert (state.log_e, state.skipped, len(state.steps)) == (2.0, 1, 1)


def test_too_few_valid_requests_are_inconclusive() -> None:
    assert AuditSession(level=0.01).status == "inconclusive"
    state = grown(verdict(), verdict())
    for i in range(2):
        state = add_failure(state, f"f{i}", "HTTP 500")
    assert (state.status, state.exit_code) == ("inconclusive", 2)
    assert headline(state).endswith("4 requests: 2 valid, 0 invalid, 2 inconclusive.")


def audit(state: AuditSession, **fields: object) -> Audit:
    base = Audit(
        schema="logproof-audit/1",
        provider="p",
        trusted="t",
        model="m",
        started_at="s",
        finished_at="f",
        policy_digest="d",
        fingerprint="fp-1",
        session=state,
        headline=headline(state),
    )
    return msgspec.structs.replace(base, **fields)


def test_audits_compare_over_time() -> None:
    then = audit(grown(verdict(tz=0.4)))
    assert then.mean_tz == 0.4
    assert changes(then, audit(grown(verdict(tz=0.42)))) == []
    assert changes(audit(grown(verdict(tz=0.002))), audit(grown(verdict(tz=0.001)))) == []
    now = audit(grown(verdict(tz=0.9), verdict(failed="S4")), fingerprint="fp-2")
    assert changes(then, now) == [
        "fingerprint was fp-1, is fp-2",
        "the audit was valid, is invalid",
        "the mean distance was 0.400, is 0.900",
    ]
    assert audit(AuditSession(level=0.01)).mean_tz is None
    assert outdated(then, now) == ["fingerprint was fp-1, is fp-2"]
    assert outdated(then, audit(grown(verdict(tz=0.9)))) == []
    for name in ("model", "policy_digest", "trusted"):
        assert outdated(then, audit(then.session, **{name: "other"})) != []


def test_records_hold_no_infinities() -> None:
    state = grown(verdict(2.0))
    assert msgspec.json.decode(msgspec.json.encode(audit(state)), type=Audit) == audit(state)
    assert math.isfinite(state.log_e)


@pytest.mark.parametrize("level", [0.0, -0.5, 1.0, 5.0, math.nan])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ValueError, match="not between 0 and 1"):
        AuditSession(level=level)


def test_false_discoveries_are_shared_among_providers() -> None:
    """Ten providers at level 0.05: one needs 200 to 1 alone, two need 100 to 1 each, a contradiction is enough."""
    calm, strong = audit(grown(verdict(0.0))), audit(grown(verdict(math.log(120.0))))
    assert [r.status for r in discoveries([strong, *[calm] * 9], 0.05)] == ["inconclusive", *["valid"] * 9]
    assert [r.status for r in discoveries([strong, strong, *[calm] * 8], 0.05)] == ["invalid"] * 2 + ["valid"] * 8
    caught, open_ = audit(grown(verdict(failed="S4"))), audit(AuditSession(level=0.01))
    found = discoveries([calm, caught, *[open_] * 8], 0.05)
    assert [r.status for r in found] == ["valid", "invalid", *["inconclusive"] * 8]
    assert [r.contradiction for r in found[:3]] == [False, True, False]
    assert (found[1].alone, found[1].requests, found[1].log_e, found[1].headline) == (
        "invalid",
        1,
        0.0,
        caught.headline,
    )
    assert discoveries([], 0.05) == []
    with pytest.raises(ValueError, match="level"):
        discoveries([calm], 1.0)
