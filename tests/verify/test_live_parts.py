"""Capture, replay, calibration and audit against a tiny engine of these tests' own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fakes.server import FakeServer, Reply
from logproof.errors import AuthError, BadReply, DatasetError, EngineError, TransportError, UsageError
from logproof.ir.response import Tokens, TopK
from logproof.verify import artifact as art
from logproof.verify import audit as auditing
from logproof.verify import calibrate as calibrating
from logproof.verify import calibration, files, grammar, report
from logproof.verify.artifact import Artifact
from logproof.verify.calibration import Aim, Honest
from logproof.verify.capture import Prompt, capture_one, prompts
from logproof.verify.defaults import stated
from logproof.verify.judge import judge
from logproof.verify.parallel import in_order
from logproof.verify.policy import Policy
from logproof.verify.recording import columns_of
from logproof.verify.support import Sampler
from verify.parts import NOW, PINS, PROMPTS, TINY_POLICY, captured, claim, one, replayed, run
from verify.tiny import FACTS, PLUGIN, ROUTE, TINY_EOS, TINY_VOCAB, Tiny, facts, open_tiny, serve


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no prompt"),
        (b"{", "x:1"),
        (b'{"text": "a"}\n{"prompt": "b"}', "x:2"),
        (b'{"id": "a"}', "exactly one"),
        (b'{"text": ""}', "exactly one"),
        (b'{"text": "a", "token_ids": [1]}', "exactly one"),
        (b'{"text": "a", "id": "q"}\n{"text": "b", "id": "q"}', "occurs twice"),
        (b'{"messages": [{"role": "robot", "content": "a"}]}', "x:1"),
        (b'{"text": "a", "output": {}}', "exactly one of json_schema"),
        (b'{"text": "a", "output": {"regex": "a", "choice": ["b"]}}', "exactly one of json_schema"),
        (b'{"text": "a", "output": {"json": {}}}', "exactly one of json_schema"),
        (b'{"text": "a", "output": {"regex": 3}}', "x:1: output"),
        (b"\xff", "x:1"),
    ],
)
def test_prompt_files_that_cannot_be_used(data: bytes, words: str) -> None:
    with pytest.raises((DatasetError, UsageError), match=words):
        prompts(data, "x")


def test_prompt_forms() -> None:
    found = prompts(
        '{"text": "猫"}\n\n{"token_ids": [1, 2]}\n{"messages": [{"role": "user", "content": "🦊"}]}'.encode()
    )
    assert [p.id for p in found] == ["1", "3", "4"]
    assert found[0].input.text == "猫"
    assert found[1].input.token_ids == (1, 2)
    assert found[2].input.messages is not None


def test_prompt_file_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logproof.verify.capture.MAX_PROMPTS_BYTES", 3)
    with pytest.raises(UsageError, match="limit"):
        prompts(b'{"text": "a"}')


def test_a_capture_pins_every_sampling_leaf(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake, msgspec.structs.replace(PINS, sampler=Sampler(0.7, 8, 0.9, 0.01)))
    body = fake.seen[-1].json()
    assert {k: body[k] for k in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "n", "stop")} == {
        "temperature": 0.7,
        "top_k": 8,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.0,
        "n": 1,
        "stop": [],
    }
    assert made.sampling.unresolved() == ()
    assert art.seed_is_bound(made.sampling.seed)
    assert body["seed"] == art.derive_seed("n", "p0")
    assert made.seal is not None
    assert made.seal.digest == art.digest(made)
    assert made.request.body == body
    assert len(made.tokens.completion_ids or ()) == made.end.usage.completion == 20
    assert made.provenance.fingerprint == "fp-tiny"
    assert made.claim.model.vocab_size == TINY_VOCAB


def test_top_k_off_is_sent_as_such(fake: FakeServer) -> None:
    serve(fake, Tiny())
    assert one(fake).sampling.top_k == 0
    assert fake.seen[-1].json()["top_k"] == -1
    assert one(fake, msgspec.structs.replace(PINS, nonce=None)).sampling.seed is None


def test_what_a_foreign_endpoint_cannot_pin_stays_unresolved(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake, PINS, facts(engine="openai"))
    assert "min_p" not in fake.seen[-1].json()
    assert {"top_k", "min_p", "repetition_penalty", "min_tokens"} <= set(made.sampling.unresolved())
    got = judge(made, run(replayed(fake, made)), TINY_POLICY, NOW)
    assert got.status == "inconclusive"
    assert "unresolved" in " ".join(got.reasons)
    off = {"bad_words": [], "allowed_ids": [], "stop_token_ids": [], "min_tokens": 0, "ignore_eos": True}
    told = stated({"top_k": 0, "min_p": 0, "repetition_penalty": 1, **off})
    whole = one(fake, msgspec.structs.replace(PINS, defaults=told), facts(engine="openai"))
    assert (whole.sampling.unresolved(), whole.sampling.sources["min_p"]) == ((), "operator")
    assert judge(whole, run(replayed(fake, whole)), TINY_POLICY, NOW).status == "valid"


def test_fixed_format_is_recorded_with_its_step(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake, msgspec.structs.replace(PINS, denominator=1024))
    assert made.logprobs is not None
    assert 0 < made.logprobs.step <= 0.5 / 1024
    assert judge(made, run(replayed(fake, made)), TINY_POLICY, NOW).status == "valid"


def test_a_prompt_that_fails_is_kept_apart(fake: FakeServer) -> None:
    engine = serve(fake, Tiny())
    engine.edit = lambda body, reply: Reply(500, json={"error": "no"}) if body["prompt"] == "prompt 1" else reply
    found = run(captured(fake, count=3))
    assert [c.artifact is None for c in found] == [False, True, False]
    assert found[1].error is not None
    engine.edit = lambda body, reply: Reply(401, json={"error": "no key"})
    with pytest.raises(AuthError):
        run(captured(fake))


def test_impossible_tokens_are_left_out() -> None:
    top = TopK(offsets=np.array([0, 3]), logprobs=np.array([-0.1, -np.inf, -9999.0]), ids=np.array([4, 5, 6]))
    tokens = Tokens(logprobs=np.array([-0.1]), meaning="raw", ids=np.array([4]), top=top)
    assert columns_of(tokens).ids.tolist()[0][:1] == [4]
    assert columns_of(tokens).present.sum() == 1
    bare = msgspec.structs.replace(tokens, top=None)
    assert columns_of(bare).width == 0
    for broken in (
        msgspec.structs.replace(tokens, ids=None),
        msgspec.structs.replace(tokens, top=msgspec.structs.replace(top, ids=None)),
    ):
        with pytest.raises(BadReply, match="without ids"):
            columns_of(broken)


async def pairs(fake: FakeServer, count: int = 24, **pins: object) -> calibrating.Collected:
    async with open_tiny(fake) as connection:
        chosen = [msgspec.structs.replace(PINS, **pins)]
        sides = calibrating.Sides(connection, connection)
        return await calibrating.collect(sides, PROMPTS[:count], chosen, claim(), concurrencies=(2,))


def test_calibration_of_an_exact_pair(fake: FakeServer) -> None:
    serve(fake, Tiny())
    found = run(pairs(fake, ignore_eos=False))
    made = calibration.fit(found.pairs, Aim(name="t", notes=found.failures), NOW)
    assert made.exact == calibration.EXACT_LEAST
    assert made.eos_ids == (TINY_EOS,)
    assert made.selftest is not None
    assert made.selftest.violations == 0
    assert sum(h.alarms for h in made.holdout.values()) == 0
    assert sum(h.sequences for h in made.holdout.values()) > 0
    artifact = one(fake)
    assert judge(artifact, run(replayed(fake, artifact)), made, NOW).level == "replayed"


def test_calibration_of_a_noisy_pair(fake: FakeServer) -> None:
    serve(fake, Tiny(jitter=0.02))
    found = run(pairs(fake))
    made = calibration.fit(found.pairs, Aim(name="t", level=0.2), NOW)
    assert made.exact is None
    assert made.rates.tokens > 0
    assert sum(made.rates.margins) > 0
    scored = len(made.scores["1"]["tz"])
    assert scored == sum(calibration.part_of(p.id) == "score" for p in PROMPTS)
    assert len(made.scores["0"]["margin"]) == len(made.scores["1"]["margin"]) == scored
    assert {calibration.head_length(p, b) for p in found.pairs for b in range(3)} == {4, 16, None}


def test_calibration_under_a_grammar_of_a_noisy_pair(fake: FakeServer) -> None:
    """Honest constrained pairs give a policy about constrained records, of an engine that is not exact too."""
    known = facts(plugin=PLUGIN, fields={ROUTE: (*FACTS.fields[ROUTE], "structured_outputs")})
    given = prompts(
        b"\n".join(json.dumps({"text": f"g {i}", "output": {"regex": "[a-z]+"}}).encode() for i in range(48))
    )

    async def work(tiny: Tiny, some: list[Prompt]) -> calibrating.Collected:
        serve(fake, tiny)
        async with open_tiny(fake, known) as connection:
            sides = calibrating.Sides(connection, connection)
            return await calibrating.collect(sides, some, [PINS], claim(known), concurrencies=(2,))

    found = run(work(Tiny(jitter=0.02), given))
    made = calibration.fit(found.pairs, Aim(name="t", level=0.15), NOW)
    assert (made.mode, made.method, made.exact) == ("constrained", "decode", None)
    assert made.selftest is not None
    assert made.selftest.violations == 0
    fresh = prompts(json.dumps({"text": "fresh", "output": {"regex": "[a-z]+"}}).encode())
    for tiny, status in ((Tiny(jitter=0.02), "valid"), (Tiny(weights=1), "invalid")):
        (pair,) = run(work(tiny, fresh)).pairs
        assert pair.artifact.sampling.structured_output == grammar.digest(pair.artifact.request.body)
        serve(fake, Tiny(jitter=0.02))
        got = judge(pair.artifact, run(replayed(fake, pair.artifact, known=known)), made, NOW)
        assert got.status == status, got.reasons


def test_greedy_calibration_counts_gaps(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = calibration.fit(run(pairs(fake, sampler=Sampler(0.0))).pairs, Aim(name="t"), NOW)
    assert made.rates.greedy_tokens > 0
    assert made.selftest is None


def test_the_noise_floor_is_measured_cold_and_crowded(fake: FakeServer) -> None:
    async def work(found: calibrating.Collected) -> Any:
        async with open_tiny(fake) as connection:
            return await calibrating.noise_floor(connection, found.pairs)

    serve(fake, Tiny())
    still = run(work(run(pairs(fake, 3))))
    assert (still.repeat, still.batch, still.spread) == (0.0, 0.0, 1)
    serve(fake, Tiny(jitter=0.05))
    loud = run(work(run(pairs(fake, 3))))
    assert loud.repeat > 0.01
    assert loud.batch > 0.01
    assert loud.spread > 1


def test_calibration_refuses_what_it_cannot_use(fake: FakeServer) -> None:
    engine = serve(fake, Tiny())
    found = run(pairs(fake)).pairs
    with pytest.raises(UsageError, match="no honest pairs"):
        calibration.fit([], Aim(name="t"), NOW)
    with pytest.raises(UsageError, match="too few different prompts"):
        calibration.fit(found[:1], Aim(name="t"), NOW)
    mixed = Honest("m", found[0].artifact, msgspec.structs.replace(found[0].replay, method="decode"))
    with pytest.raises(UsageError, match="several kinds"):
        calibration.fit([*found, mixed], Aim(name="t"), NOW)
    broken = art.seal(
        msgspec.structs.replace(
            found[0].artifact, end=msgspec.structs.replace(found[0].artifact.end, finish_reason="stop")
        )
    )
    with pytest.raises(UsageError, match="fails its own test S6"):
        calibration.fit([Honest("b", broken, found[0].replay), *found], Aim(name="t"), NOW)
    engine.edit = lambda body, reply: Reply(500, json={"error": "no"})
    with pytest.raises(EngineError, match="24 of 24"):
        run(pairs(fake))
    with pytest.raises(UsageError, match="nothing to calibrate"):
        run(pairs(fake, 0))


def test_replays_that_fail_are_noted(fake: FakeServer) -> None:
    engine = serve(fake, Tiny())
    third = [3 + ord(c) % 40 for c in "prompt 3"]

    def fails(body: dict[str, Any], reply: dict[str, Any]) -> Any:
        return Reply(500, json={"error": "no"}) if body["prompt"][:8] == third else reply

    engine.edit = fails
    found = run(pairs(fake, 12))
    assert len(found.pairs) == 11
    assert found.failures == ("p3: HTTP 500: no",)


def test_unsound_records_are_noted(fake: FakeServer) -> None:
    """A record that fails its own tests is no honest one, whoever made it."""
    engine = serve(fake, Tiny())

    def wrong(body: dict[str, Any], reply: dict[str, Any]) -> Any:
        if body["prompt"] == "prompt 3":
            reply["choices"][0]["finish_reason"] = "stop"
        return reply

    engine.edit = wrong
    found = run(pairs(fake, 12))
    assert len(found.failures) == 1
    assert "fails its own test S6" in found.failures[0]


def test_truncation_keeps_an_artifact_honest(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake)
    short = calibration.truncated(made, 5)
    assert len(short.tokens.completion_ids or ()) == 5
    assert judge(short, None, None, NOW).status == "inconclusive"
    assert calibration.truncated(made, 20) is made


async def audited(
    fake: FakeServer, other: FakeServer, rules: Policy, count: int = 6, **options: Any
) -> tuple[Any, list[auditing.Verified]]:
    async with open_tiny(fake) as provider, open_tiny(other) as trusted:
        sides = auditing.Sides(provider, trusted)
        return await auditing.audit(sides, PROMPTS[:count], PINS, claim(), rules, **options)


def test_an_honest_provider(fake: FakeServer, other: FakeServer) -> None:
    serve(fake, Tiny())
    serve(other, Tiny())
    made, done = run(audited(fake, other, TINY_POLICY))
    assert (made.session.status, made.session.exit_code) == ("valid", 0)
    assert made.headline.startswith("Not shown")
    assert len(done) == len(made.session.steps) == 6
    page = report.page(made, done, TINY_POLICY, {5: "<b>"})
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "<script" not in page
    assert "Since the audit" not in page
    again = report.page(made, done, TINY_POLICY, {}, msgspec.structs.replace(made, finished_at="<then>"))
    assert "Since the audit of &lt;then&gt;" in again
    assert "nothing that matters" in again
    other = report.page(made, done, TINY_POLICY, {}, msgspec.structs.replace(made, fingerprint="old"))
    assert "It is stale" in other
    assert "fingerprint was old, is fp-tiny" in other


@pytest.mark.parametrize("engine", [Tiny(weights=1), Tiny(writer=1)])
def test_a_dishonest_provider_is_rejected_at_once(fake: FakeServer, other: FakeServer, engine: Tiny) -> None:
    serve(fake, engine)
    serve(other, Tiny())
    seen = []
    made, done = run(audited(fake, other, TINY_POLICY, told=lambda v, s: seen.append(v.prompt)))
    assert (made.session.status, made.session.exit_code, len(done)) == ("invalid", 1, 1)
    assert made.headline.startswith("Rejected after 1 of 1")
    assert seen == ["p0"]
    whole, every = run(audited(fake, other, TINY_POLICY, stop_early=False))
    assert len(every) == 6
    assert "rgba(220,60,40," in report.page(whole, every, TINY_POLICY, {})


def test_a_provider_that_fails_is_inconclusive(fake: FakeServer, other: FakeServer) -> None:
    engine = serve(fake, Tiny())
    engine.edit = lambda body, reply: Reply(500, json={"error": "no"})
    serve(other, Tiny())
    made, done = run(audited(fake, other, TINY_POLICY))
    assert (made.session.status, done) == ("inconclusive", [])
    assert "the provider failed" in made.session.steps[0].reasons[0]
    assert made.fingerprint is None
    assert "svg" in report.page(made, done, TINY_POLICY, {})


def test_a_trusted_engine_that_fails_draws_no_colours(fake: FakeServer, other: FakeServer) -> None:
    serve(fake, Tiny())
    engine = serve(other, Tiny())
    engine.edit = lambda body, reply: Reply(503, json={"error": "no"})
    made, done = run(audited(fake, other, TINY_POLICY, 2))
    assert made.session.status == "inconclusive"
    page = report.page(made, done, TINY_POLICY, {})
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
            sides = auditing.Sides(provider, trusted)
            return await auditing.audit(sides, [PROMPTS[0], again], pins, claim(), TINY_POLICY)

    greedy, _ = run(work())
    assert (greedy.session.skipped, len(greedy.session.steps)) == (1, 1)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("denominator", [None, 1024])
def test_files_keep_artifacts_to_the_last_bit(
    fake: FakeServer, tmp_path: Path, suffix: str, denominator: int | None
) -> None:
    serve(fake, Tiny())
    pins = msgspec.structs.replace(PINS, denominator=denominator)
    made = [c.artifact for c in run(captured(fake, pins, 3)) if c.artifact is not None]
    bare = art.seal(msgspec.structs.replace(made[0], positions=None, logprobs=None))
    path = tmp_path / f"a{suffix}"
    assert files.write(path, [*made, bare]) == 4
    back = list(files.read(path))
    assert back == [*made, bare]
    assert [art.digest(a) for a in back] == [art.digest(a) for a in (*made, bare)]


def test_a_single_call(fake: FakeServer) -> None:
    serve(fake, Tiny())

    async def work() -> Artifact:
        async with open_tiny(fake) as connection:
            return await capture_one(connection, PROMPTS[0], PINS, claim())

    assert run(work()).tokens == one(fake).tokens


def test_in_order_keeps_order_and_cancels() -> None:
    running = []

    async def job(i: int) -> int:
        running.append(i)
        await asyncio.sleep(0.001 * (3 - i))
        if i == 9:
            raise TransportError("no")
        return i

    async def work(count: list[int]) -> list[int]:
        return await in_order([lambda i=i: job(i) for i in count], 2)

    assert run(work([0, 1, 2])) == [0, 1, 2]
    with pytest.raises(TransportError):
        run(work([9, 0, 1]))
    assert np.isfinite(running).all()
