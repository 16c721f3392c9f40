"""Audits of honest, dishonest and failing providers, with a tiny engine on both sides."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.server import FakeServer, Reply
from logproof.verify.audit import audit_page
from logproof.verify.audit.audit import AuditSides, audit
from logproof.verify.audit.evidence import JudgedArtifact
from logproof.verify.policy import Policy
from logproof.verify.record.prompts import Prompt
from logproof.verify.stats.sampler import Sampler
from verify.parts import PINS, PROMPTS, TINY_POLICY, claim, run
from verify.tiny import Tiny, open_tiny, serve


async def audited(
    fake: FakeServer, other: FakeServer, rules: Policy, count: int = 6, **options: Any
) -> tuple[Any, list[JudgedArtifact]]:
    async with open_tiny(fake) as provider, open_tiny(other) as trusted:
        sides = AuditSides(provider, trusted)
        return await audit(sides, PROMPTS[:count], PINS, claim(), rules, **options)


def test_an_honest_provider(fake: FakeServer, other: FakeServer) -> None:
    serve(fake, Tiny())
    serve(other, Tiny())
    made, done = run(audited(fake, other, TINY_POLICY))
    assert (made.session.status, made.session.exit_code) == ("valid", 0)
    assert made.headline.startswith("Not shown")
    assert len(done) == len(made.session.steps) == 6
    page = audit_page.page(made, done, TINY_POLICY, {5: "<b>"})
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "<script" not in page
    assert "Since the audit" not in page
    again = audit_page.page(made, done, TINY_POLICY, {}, msgspec.structs.replace(made, finished_at="<then>"))
    assert "Since the audit of &lt;then&gt;" in again
    assert "nothing that matters" in again
    other = audit_page.page(made, done, TINY_POLICY, {}, msgspec.structs.replace(made, fingerprint="old"))
    assert "It is stale" in other
    assert "fingerprint was old, is fp-tiny" in other


@pytest.mark.parametrize("engine", [Tiny(weights=1), Tiny(writer=1)])
def test_a_dishonest_provider_is_rejected_at_once(fake: FakeServer, other: FakeServer, engine: Tiny) -> None:
    serve(fake, engine)
    serve(other, Tiny())
    seen = []
    made, done = run(audited(fake, other, TINY_POLICY, progress=lambda v, s: seen.append(v.prompt)))
    assert (made.session.status, made.session.exit_code, len(done)) == ("invalid", 1, 1)
    assert made.headline.startswith("Rejected after 1 of 1")
    assert seen == ["p0"]
    whole, every = run(audited(fake, other, TINY_POLICY, stop_early=False))
    assert len(every) == 6
    assert "rgba(220,60,40," in audit_page.page(whole, every, TINY_POLICY, {})


def test_a_provider_that_fails_is_inconclusive(fake: FakeServer, other: FakeServer) -> None:
    engine = serve(fake, Tiny())
    engine.edit = lambda body, reply: Reply(500, json={"error": "no"})
    serve(other, Tiny())
    made, done = run(audited(fake, other, TINY_POLICY))
    assert (made.session.status, done) == ("inconclusive", [])
    assert "the provider failed" in made.session.steps[0].reasons[0]
    assert made.fingerprint is None
    assert "svg" in audit_page.page(made, done, TINY_POLICY, {})


def test_a_trusted_engine_that_fails_draws_no_colours(fake: FakeServer, other: FakeServer) -> None:
    serve(fake, Tiny())
    engine = serve(other, Tiny())
    engine.edit = lambda body, reply: Reply(503, json={"error": "no"})
    made, done = run(audited(fake, other, TINY_POLICY, 2))
    assert made.session.status == "inconclusive"
    page = audit_page.page(made, done, TINY_POLICY, {})
    assert "rgba" not in page


def test_repeats_of_a_prompt_count_once(fake: FakeServer, other: FakeServer) -> None:
    serve(fake, Tiny())
    serve(other, Tiny())
    made, _ = run(audited(fake, other, TINY_POLICY))
    assert made.session.skipped == 0
    again = Prompt("p0b", PROMPTS[0].input)

    async def work() -> Any:
        async with open_tiny(fake) as provider, open_tiny(other) as trusted:
            pins = msgspec.structs.replace(PINS, nonce=None, sampler=Sampler(0.0))
            sides = AuditSides(provider, trusted)
            return await audit(sides, [PROMPTS[0], again], pins, claim(), TINY_POLICY)

    greedy, _ = run(work())
    assert (greedy.session.skipped, len(greedy.session.steps)) == (1, 1)
