"""A second trusted engine is asked before one alone rejects a provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fakes.server import FakeServer, Reply
from logproof.verify.audit.audit import AuditSides, audit
from logproof.verify.audit.second_engine import of_both
from logproof.verify.verdict import Context, Finding, Verdict, decide
from verify.parts import PINS, PROMPTS, TINY_POLICY, claim, run
from verify.tiny import Tiny, open_tiny, serve


async def audited(provider: FakeServer, first: FakeServer, second: FakeServer, **options: Any) -> Any:
    async with open_tiny(provider) as p, open_tiny(first) as t, open_tiny(second) as s:
        return (await audit(AuditSides(p, t, s), PROMPTS[:4], PINS, claim(), TINY_POLICY, **options))[0]


@pytest.fixture
def third() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def test_one_engine_alone_rejects_nobody(fake: FakeServer, other: FakeServer, third: FakeServer) -> None:
    """The provider runs on a machine like the second engine; the first differs as another machine would."""
    serve(fake, Tiny())
    serve(other, Tiny(weights=1))
    second = serve(third, Tiny())
    made = run(audited(fake, other, third))
    assert made.session.status == "inconclusive"
    assert second.calls == 4
    step = made.session.steps[0]
    assert not step.decisive
    assert any(r.startswith("one trusted engine rejects the record, the second does not: ") for r in step.reasons)
    assert any(f"on {third.url} the record is " in r for r in step.reasons)
    assert made.trusted == f"{other.url} and {third.url}"


def test_both_engines_reject_another_model(fake: FakeServer, other: FakeServer, third: FakeServer) -> None:
    serve(fake, Tiny(weights=1))
    serve(other, Tiny())
    serve(third, Tiny())
    assert run(audited(fake, other, third)).session.status == "invalid"


def test_a_second_engine_that_fails_confirms_nothing(fake: FakeServer, other: FakeServer, third: FakeServer) -> None:
    serve(fake, Tiny(weights=1))
    serve(other, Tiny())
    serve(third, Tiny()).edit = lambda body, reply: Reply(503, json={"error": "no"})
    assert run(audited(fake, other, third)).session.status == "inconclusive"


def test_failures_of_the_record_alone_cost_no_second_replay(
    fake: FakeServer, other: FakeServer, third: FakeServer
) -> None:
    serve(fake, Tiny(writer=1))
    serve(other, Tiny())
    second = serve(third, Tiny())
    assert run(audited(fake, other, third)).session.status == "invalid"
    assert second.calls == 0


CONTEXT = Context(time="t", artifact_digest="a", model="m")
GOOD = [Finding(test=t, outcome="pass", detail="ok") for t in ("S0a", "S6", "policy", "S1", "requires", "S3")]
FAILED = Finding(test="S2", outcome="fail", reason="seed", detail="far")


def verdict(*more: Finding, log_e: float = 0.0) -> Verdict:
    return decide([*GOOD, *more], CONTEXT, log_e=log_e)


@pytest.mark.parametrize(("first", "second", "least"), [(2.0, 1.0, 1.0), (2.0, -1.0, -1.0), (1.0, 5.0, 1.0)])
def test_the_lesser_evidence_of_both_counts(first: float, second: float, least: float) -> None:
    both = of_both(verdict(log_e=first), verdict(log_e=second), "http://b")
    assert (both.status, both.log_e) == (verdict().status, least)
    rejected = of_both(verdict(FAILED, log_e=first), verdict(FAILED, log_e=second), "http://b")
    assert (rejected.status, rejected.log_e) == ("invalid", least)
    doubted = of_both(verdict(FAILED, log_e=first), verdict(log_e=second), "http://b")
    assert (doubted.status, doubted.log_e) == ("inconclusive", least)
