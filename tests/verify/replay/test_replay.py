"""Replay against a tiny engine of these tests' own: methods, modes, grammars, failures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.errors import AuthError
from logproof.ir.facts import Facts
from logproof.verify.artifact.artifact import Artifact, artifact_columns, seal
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.audit.verify import verify
from logproof.verify.policy import NoiseFloor
from logproof.verify.record import defaults, observed
from logproof.verify.replay.by_prefill import MAX_FILLS, missing
from logproof.verify.replay.replay import replay
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Verdict
from verify.builders import judged, own_request
from verify.parts import NOW, PINS, TINY_POLICY, claim, one, replayed, run
from verify.tiny import FACTS, PLUGIN, ROUTE, TINY_VOCAB, Tiny, facts, open_tiny, serve


@pytest.mark.parametrize("sampler", [Sampler(1.0), Sampler(0.8, 10, 0.9), Sampler(0.0)])
@pytest.mark.parametrize("asked", ["prefill", "decode"])
def test_honest_artifacts_replay_exactly_both_ways(fake: FakeServer, sampler: Sampler, asked: MethodChoice) -> None:
    serve(fake, Tiny())
    made = one(fake, msgspec.structs.replace(PINS, sampler=sampler))
    answer = run(replayed(fake, made, asked, facts(plugin=PLUGIN), repeats=2))
    assert isinstance(answer, ReplayResult)
    assert (answer.method, answer.mode, answer.noise_floor) == (asked, "raw", 0.0)
    got = judged(made, answer, msgspec.structs.replace(TINY_POLICY, method=asked), NOW)
    assert (got.status, got.level) == ("valid", "replayed"), got.reasons


def test_every_edited_token_is_found(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake)
    ids = list(made.tokens.completion_ids or ())
    for at in (0, 7, 19):
        edited = [*ids[:at], (ids[at] + 1) % TINY_VOCAB, *ids[at + 1 :]]
        assert made.positions is not None
        drawn = tuple(None if i == at else v for i, v in enumerate(made.positions.sampled))
        cheat = seal(
            msgspec.structs.replace(
                made,
                tokens=msgspec.structs.replace(made.tokens, completion_ids=tuple(edited)),
                positions=msgspec.structs.replace(made.positions, sampled=drawn),
            )
        )
        got = judged(cheat, run(replayed(fake, cheat)), TINY_POLICY, NOW)
        assert got.status == "invalid"
        s1 = next(f for f in got.findings if f.test == "S1")
        assert s1.outcome == ("fail" if at < 19 else "pass")
        if at < 19:
            assert f"first {at + 1}" in s1.detail
        assert next(f for f in got.findings if f.test == "S2").outcome == "fail"


def test_processed_logprobs_need_the_plugin(fake: FakeServer) -> None:
    serve(fake, Tiny())
    sampler = Sampler(0.7, 8)
    made = one(fake, msgspec.structs.replace(PINS, sampler=sampler, k=8), facts(plugin=PLUGIN))
    processed = seal(
        msgspec.structs.replace(made, logprobs=msgspec.structs.replace(made.logprobs, mode="processed", k=8))
    )
    for asked, known in (("prefill", facts(plugin=PLUGIN)), ("auto", FACTS)):
        failure = run(replayed(fake, processed, asked, known))
        assert isinstance(failure, ReplayFailure)
        assert failure.reason == "engine_cannot_replay"
    plain = msgspec.structs.replace(PLUGIN, logprobs_mode=False)
    assert isinstance(run(replayed(fake, processed, "auto", facts(plugin=plain))), ReplayFailure)
    answer = run(replayed(fake, processed, "auto", facts(plugin=PLUGIN)))
    assert isinstance(answer, ReplayResult)
    assert (answer.method, answer.mode) == ("decode", "processed")
    body = fake.seen[-1].json()
    assert body["enforced_token_ids"] == list(made.tokens.completion_ids or ())
    assert (body["temperature"], body["top_k"], body["logprobs_mode"]) == (0.7, 8, "processed_logprobs")
    assert (body["ignore_eos"], body["min_tokens"], body["stop"]) == (True, 0, [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": None}, "temperature, which is unresolved"),
        ({"min_tokens": 3}, "min_tokens, which a replay does not repeat"),
        ({"bad_words": ("x",)}, "bad_words"),
        ({"structured_output": "00"}, "structured_output"),
        ({"logit_bias": {"7": 2.5}}, ""),
    ],
)
def test_processed_logprobs_are_replayed_under_the_same_sampling_or_not_at_all(
    fake: FakeServer, change: dict[str, object], words: str
) -> None:
    serve(fake, Tiny())
    made = one(fake)
    other = msgspec.structs.replace(
        made,
        logprobs=msgspec.structs.replace(made.logprobs, mode="processed"),
        sampling=msgspec.structs.replace(made.sampling, sources={}, **change),
    )
    answer = run(replayed(fake, seal(other), "auto", facts(plugin=PLUGIN)))
    assert isinstance(answer, ReplayFailure) is bool(words)
    if isinstance(answer, ReplayFailure):
        assert words in answer.detail
    else:
        assert fake.seen[-1].json()["logit_bias"] == {"7": 2.5}


GRAMMAR = {"structured_outputs": {"json_object": True}}


def under_grammar(fake: FakeServer, sampler: Sampler) -> Artifact:
    """An honest record of a constrained completion, as the proxy makes it."""
    serve(fake, Tiny())
    body = {"model": "tiny", "prompt": "猫", "max_tokens": 20, "seed": 7, "temperature": sampler.temperature, **GRAMMAR}
    asked = {**body, "logprobs": 10, "return_token_ids": True, "return_tokens_as_token_ids": True, "ignore_eos": True}
    sent = json.dumps(asked).encode()
    seen = Seen("POST", ROUTE, {}, sent)
    reply = json.dumps(Tiny().answer(seen)).encode()
    call = observed.ObservedExchange(
        path=ROUTE, body=sent, reply=reply, streamed=False, width=10, when=NOW, request_sha256="0", reply_sha256="0"
    )
    (made,) = observed.artifacts_of(call, FACTS, claim(), "http://e", defaults.neutral())
    return made


@pytest.mark.parametrize("sampler", [Sampler(1.0), Sampler(0.0)])
def test_a_constrained_completion_is_replayed_under_its_grammar(fake: FakeServer, sampler: Sampler) -> None:
    made = under_grammar(fake, sampler)
    assert made.logprobs is not None
    assert (made.logprobs.mode, made.sampling.unresolved()) == ("constrained", ())
    answer = run(replayed(fake, made, "auto", facts(plugin=PLUGIN)))
    assert isinstance(answer, ReplayResult), answer
    assert (answer.method, answer.mode) == ("decode", "constrained")
    body = fake.seen[-1].json()
    assert (body["structured_outputs"], body["logprobs_mode"]) == (GRAMMAR["structured_outputs"], "raw_logprobs")
    rules = msgspec.structs.replace(TINY_POLICY, method="decode")
    got = judged(made, answer, rules, NOW)
    assert (got.status, got.level) == ("valid", "replayed"), got.findings
    noisy = msgspec.structs.replace(rules, exact=None)
    told = judged(made, answer, noisy, NOW)
    assert told.status == "inconclusive"
    assert "calibrate with prompts whose completions a grammar constrains" in " ".join(told.reasons)
    other = judged(made, msgspec.structs.replace(answer, mode="raw"), rules, NOW)
    assert "modes_differ" in [f.reason for f in other.findings]


def test_a_constrained_completion_without_the_means_is_inconclusive(fake: FakeServer) -> None:
    made = under_grammar(fake, Sampler(1.0))
    for asked, known, words in (
        ("prefill", facts(plugin=PLUGIN), "the artifact's are constrained"),
        ("auto", FACTS, "no working replay plugin"),
    ):
        failure = run(replayed(fake, made, asked, known))
        assert isinstance(failure, ReplayFailure)
        assert words in failure.detail
        assert judged(made, failure, TINY_POLICY, NOW).status == "inconclusive"
    lost = seal(msgspec.structs.replace(made, request=msgspec.structs.replace(made.request, body={"a": 1})))
    failure = run(replayed(fake, lost, "auto", facts(plugin=PLUGIN)))
    assert isinstance(failure, ReplayFailure)
    assert "grammar" in failure.detail


def test_auto_takes_the_policy_s_method_and_says_so(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake)

    async def work(known: Facts) -> Verdict:
        rules = msgspec.structs.replace(TINY_POLICY, method="decode")
        async with open_tiny(fake, known) as connection:
            return (await verify(connection, made, rules, repeats=2, known=own_request(made)))[1]

    got = run(work(facts(plugin=PLUGIN)))
    assert (got.status, got.context.method, got.context.noise_floor) == ("valid", "decode", 0.0)
    assert got.context.method_reason == "the policy was calibrated for it"
    bare = run(work(FACTS))
    assert (bare.status, bare.context.method) == ("inconclusive", "prefill")
    assert "calibrated for method decode" in " ".join(bare.reasons)


def test_the_noise_floor_of_the_policy_stands_in_for_one_replay(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake)
    rules = msgspec.structs.replace(TINY_POLICY, floor=NoiseFloor(repeat=3e-5))
    assert judged(made, run(replayed(fake, made)), rules, NOW).context.noise_floor == 3e-5
    assert judged(made, run(replayed(fake, made)), None, NOW).context.noise_floor is None


def test_missing_tokens_are_asked_by_name(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake)

    async def work(known: Facts, most: int = MAX_FILLS) -> ReplayResult:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("logproof.verify.replay.by_prefill.MAX_FILLS", most)
            async with open_tiny(fake, known) as connection:
                answer = await replay(connection, made, "prefill", fill=True)
        assert isinstance(answer, ReplayResult)
        return answer

    own = artifact_columns(made)
    wide = run(work(FACTS))
    assert wide.scored is None
    narrow = facts(max_logprobs=4)
    filled = run(work(narrow))
    assert missing(own, filled.columns)
    assert filled.scored is not None
    assert missing(own, filled.scored) == {}
    s1 = next(f for f in judged(made, filled, TINY_POLICY, NOW).findings if f.test == "S1")
    assert s1.statistic["max_abs"] < 1e-5
    assert run(work(narrow, 3)).scored is None
    assert run(work(facts(max_logprobs=4, fields={ROUTE: ()}))).scored is None
    assert run(work(facts(max_logprobs=4, logprobs_mode="processed"))).scored is None


def test_long_decodes_go_in_windows(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logproof.verify.replay.by_decode.WINDOW", 8)
    serve(fake, Tiny())
    made = one(fake)
    before = len(fake.seen)
    answer = run(replayed(fake, made, "decode", facts(plugin=PLUGIN)))
    assert isinstance(answer, ReplayResult)
    assert len(fake.seen) - before == 3
    assert answer.columns.sampled_ids.tolist() == list(made.tokens.completion_ids or ())
    assert judged(made, answer, msgspec.structs.replace(TINY_POLICY, method="decode"), NOW).status == "valid"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(400, json={"error": {"message": "no"}}), "engine_cannot_replay"),
        (Reply(422, json={"error": {"message": "no"}}), "engine_cannot_replay"),
        (Reply(429, json={"error": {"message": "busy"}}), "engine_error"),
        (Reply(503, json={"error": {"message": "down"}}), "engine_error"),
        (Reply(drop=True), "engine_error"),
        ({"choices": []}, "engine_error"),
    ],
)
def test_engine_failures_are_inconclusive(fake: FakeServer, reply: Any, reason: str) -> None:
    engine = serve(fake, Tiny())
    made = one(fake)
    engine.edit = lambda body, good: reply
    failure = run(replayed(fake, made))
    assert isinstance(failure, ReplayFailure)
    assert failure.reason == reason
    got = judged(made, failure, TINY_POLICY, NOW)
    assert (got.status, got.exit_code) == ("inconclusive", 2)


def test_a_refused_key_is_the_callers_matter(fake: FakeServer) -> None:
    engine = serve(fake, Tiny())
    made = one(fake)
    engine.edit = lambda body, good: Reply(401, json={"error": {"message": "no"}})
    with pytest.raises(AuthError):
        run(replayed(fake, made))


def test_a_server_that_enforces_nothing_gives_no_distance(fake: FakeServer) -> None:
    """A stock server ignores enforced ids with a 200."""
    serve(fake, Tiny())
    made = one(fake)
    engine = Tiny()

    def deaf(seen: Seen) -> Any:
        body = {k: v for k, v in seen.json().items() if k != "enforced_token_ids"}
        return engine.answer(replace(seen, body=json.dumps(body).encode()))

    fake.on(ROUTE, deaf)
    answer = run(replayed(fake, made, "decode", facts(plugin=PLUGIN)))
    got = judged(made, answer, msgspec.structs.replace(TINY_POLICY, method="decode"), NOW)
    assert got.status == "inconclusive"
    assert [f.reason for f in got.findings if f.test == "S1"] == ["replay_not_enforced"]


def test_verify_sends_nothing_for_a_malformed_artifact(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake)
    bad = seal(
        msgspec.structs.replace(made, tokens=msgspec.structs.replace(made.tokens, completion_ids=(TINY_VOCAB,) * 20))
    )
    before = len(fake.seen)

    async def work() -> Verdict:
        async with open_tiny(fake) as connection:
            return (await verify(connection, bad, TINY_POLICY))[1]

    got = run(work())
    assert (got.status, len(fake.seen)) == ("invalid", before)
