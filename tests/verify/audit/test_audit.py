"""Audits of honest, dishonest and failing providers, with a tiny engine on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fakes.server import FakeServer, Reply
from logproof.ir.request import Input
from logproof.verify.artifact.replay_result import ReplayFailure
from logproof.verify.audit import audit_page
from logproof.verify.audit.audit import AuditSides, audit
from logproof.verify.audit.evidence import JudgedArtifact, reason_groups
from logproof.verify.policy import Policy
from logproof.verify.record.prompts import Prompt
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import WORDS
from verify.parts import PINS, PROMPTS, TINY_POLICY, claim, run
from verify.tiny import PLUGIN, ROUTE, Tiny, facts, open_tiny, serve


async def audited(
    fake: FakeServer,
    other: FakeServer,
    rules: Policy,
    count: int = 6,
    prompts: Sequence[Prompt] = PROMPTS,
    **options: Any,
) -> tuple[Any, list[JudgedArtifact]]:
    async with open_tiny(fake) as provider, open_tiny(other) as trusted:
        sides = AuditSides(provider, trusted)
        return await audit(sides, prompts[:count], PINS, claim(), rules, **options)


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
    assert made.headline.startswith("Rejected after 1 of 6 planned requests: ")
    assert seen == ["p0"]
    whole, every = run(audited(fake, other, TINY_POLICY, stop_early=False))
    assert len(every) == 6
    assert "rgba(220,60,40," in audit_page.page(whole, every, TINY_POLICY, {})


TEXTS = [Prompt(f"t{i}", Input(text=f"What is the answer number {i}?")) for i in range(6)]


@pytest.mark.parametrize("provider", [Tiny(lead="Be brief. "), Tiny(keep=8)], ids=["lead", "keep"])
def test_a_provider_that_changes_the_prompt_and_says_so_is_rejected(
    fake: FakeServer, other: FakeServer, provider: Tiny
) -> None:
    """It reports truthfully the ids that it ran; they are not those of the requester's text."""
    serve(fake, provider)
    serve(other, Tiny())
    made, done = run(audited(fake, other, TINY_POLICY, prompts=TEXTS))
    assert (made.session.status, len(done)) == ("invalid", 1)
    assert done[0].verdict.headline == "Shown: the recorded prompt is not the one that was requested."
    assert [f.outcome for f in done[0].verdict.findings if f.test == "prompt"] == ["fail"]
    assert sum(seen.path == ROUTE for seen in other.seen) == 0


def test_an_honest_provider_of_text_prompts(fake: FakeServer, other: FakeServer) -> None:
    serve(fake, Tiny())
    serve(other, Tiny())
    made, done = run(audited(fake, other, TINY_POLICY, prompts=TEXTS))
    assert made.session.status == "valid"
    assert {one.verdict.level for one in done} == {"replayed"}


def test_without_a_tokenizer_on_the_trusted_engine_nothing_is_above_distribution(
    fake: FakeServer, other: FakeServer
) -> None:
    serve(fake, Tiny())
    serve(other, Tiny())
    other.on("/tokenize", Reply(404, json={"error": {"message": "no"}}))
    made, done = run(audited(fake, other, TINY_POLICY, prompts=TEXTS))
    assert made.session.status == "inconclusive"
    assert {one.verdict.level for one in done} == {"distribution"}
    first = "Not shown: that the requested prompt was run; its ids could not be made."
    assert all(one.verdict.headline.startswith(first) for one in done)


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


def spoil(times: int) -> Any:
    """An edit of replies as vLLM 0.32 makes it beside a request for label scores: lists of {own, id 0: -9999}."""
    left = [times]

    def edit(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        lists = reply["choices"][0].get("logprobs")
        if lists and left[0] > 0 and body.get("max_tokens", 0) > 1:
            left[0] -= 1
            pairs = zip(lists["tokens"], lists["token_logprobs"], strict=True)
            lists["top_logprobs"] = [{token: value, "token_id:0": -9999.0} for token, value in pairs]
        return reply

    return edit


@pytest.mark.parametrize(("times", "status"), [(0, "valid"), (1, "valid"), (2, "inconclusive"), (99, "inconclusive")])
def test_lists_that_another_tenant_spoiled_are_asked_again_once(
    fake: FakeServer, other: FakeServer, times: int, status: str
) -> None:
    engine = serve(fake, Tiny())
    engine.edit = spoil(times)
    serve(other, Tiny())
    made, _ = run(audited(fake, other, TINY_POLICY, 1, concurrency=1))
    assert made.session.status == status
    if status == "inconclusive":
        assert made.session.steps[0].reasons[0].startswith("another request at the provider spoiled the lists")
        assert reason_groups(made.session)[0].requests == 1
    assert engine.calls == (1 if times == 0 else 2)


@pytest.mark.parametrize(("times", "status"), [(1, "valid"), (99, "inconclusive")])
def test_a_replay_whose_lists_were_spoiled_is_made_again_once(
    fake: FakeServer, other: FakeServer, times: int, status: str
) -> None:
    serve(fake, Tiny())
    engine = serve(other, Tiny())
    engine.edit = spoil(times)

    async def work() -> Any:
        known = facts(plugin=PLUGIN)
        async with open_tiny(fake) as provider, open_tiny(other, known) as trusted:
            sides = AuditSides(provider, trusted)
            rules = msgspec.structs.replace(TINY_POLICY, method="decode")
            return await audit(sides, PROMPTS[:1], PINS, claim(), rules, method="decode")

    made, done = run(work())
    assert made.session.status == status, made.session.steps
    if status == "inconclusive":
        assert isinstance(done[0].replay, ReplayFailure)
        assert done[0].replay.reason == "top_list_spoiled"
        assert any("spoiled the lists of tokens" in r for r in made.session.steps[0].reasons)


def test_each_reason_is_given_once(fake: FakeServer, other: FakeServer) -> None:
    engine = serve(fake, Tiny())
    engine.edit = lambda body, reply: (
        Reply(500, json={"error": "no"}) if body["prompt"] in ("prompt 1", "prompt 3") else reply
    )
    serve(other, Tiny(weights=1))
    made, done = run(audited(fake, other, TINY_POLICY, 5, stop_early=False))
    groups = reason_groups(made.session)
    failed = next(g for g in groups if g.reason == "the provider failed")
    assert (failed.requests, failed.first) == (2, "p1")
    wrong = next(g for g in groups if g.reason == WORDS["distribution"])
    assert (wrong.requests, wrong.first) == (3, "p0")
    assert "positions differ" in wrong.detail
    page = audit_page.page(made, done, TINY_POLICY, {})
    assert page.count("<td>the provider failed</td><td>2</td><td>p1</td>") == 1
    assert made.headline.startswith("Rejected after 1 of 5 planned requests: ")
