"""Calibration against a tiny engine of these tests' own: exact and noisy pairs, floors, what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fakes.server import FakeServer, Reply
from logproof.errors import EngineError, UsageError
from logproof.verify.artifact import grammar
from logproof.verify.artifact.artifact import Artifact, seal
from logproof.verify.calibrate import fit
from logproof.verify.calibrate.collect import CalibrationSides, HonestPairs, collect, distinct, noise_floor
from logproof.verify.calibrate.fit import Aim, HonestPair
from logproof.verify.record.prompts import Prompt, prompts
from logproof.verify.stats.sampler import Sampler
from verify.builders import judged
from verify.parts import NOW, PINS, PROMPTS, claim, one, replayed, run
from verify.tiny import FACTS, PLUGIN, ROUTE, TINY_EOS, Tiny, facts, open_tiny, serve


async def pairs(fake: FakeServer, count: int = 24, **pins: object) -> HonestPairs:
    async with open_tiny(fake) as connection:
        chosen = [msgspec.structs.replace(PINS, **pins)]
        sides = CalibrationSides(connection, connection)
        return await collect(sides, PROMPTS[:count], chosen, claim(), concurrencies=(2,))


def test_calibration_of_an_exact_pair(fake: FakeServer) -> None:
    serve(fake, Tiny())
    found = run(pairs(fake, ignore_eos=False))
    made = fit.fit(found.pairs, Aim(name="t", notes=found.failures), NOW)
    assert made.exact == fit.EXACT_LEAST
    assert made.eos_ids == (TINY_EOS,)
    assert made.selftest is not None
    assert made.selftest.violations == 0
    assert sum(h.alarms for h in made.holdout.values()) == 0
    assert sum(h.sequences for h in made.holdout.values()) > 0
    artifact = one(fake)
    assert judged(artifact, run(replayed(fake, artifact)), made, NOW).level == "replayed"


def test_the_level_that_honest_records_reach_is_required(fake: FakeServer) -> None:
    """Enough tokens show the sampler; then a record whose draws cannot be repeated is not valid at a lower level."""
    serve(fake, Tiny())
    long, short = run(pairs(fake, max_tokens=50)), run(pairs(fake))
    assert fit.fit(long.pairs, Aim(name="t"), NOW).requires.level == "replayed"
    assert fit.fit(short.pairs, Aim(name="t"), NOW).requires.level == "sampled"
    assert fit.fit(long.pairs, Aim(name="t", require="sampled"), NOW).requires.level == "sampled"
    free = run(pairs(fake, max_tokens=50, nonce=None))
    assert fit.fit(free.pairs, Aim(name="t"), NOW).requires.level == "sampled"


def test_the_rounding_of_the_format_is_no_difference_of_the_engines(fake: FakeServer) -> None:
    serve(fake, Tiny())
    fixed = fit.fit(run(pairs(fake, denominator=1024)).pairs, Aim(name="t"), NOW)
    assert fixed.exact == fit.EXACT_LEAST


def test_calibration_of_a_noisy_pair(fake: FakeServer) -> None:
    serve(fake, Tiny(jitter=0.02))
    found = run(pairs(fake))
    made = fit.fit(found.pairs, Aim(name="t", level=0.2), NOW)
    assert made.exact is None
    assert made.rates.tokens > 0
    assert sum(made.rates.margins) > 0
    scored = len(made.scores["1"]["tz"])
    assert scored == sum(fit.part_of(p.id) == "score" for p in PROMPTS)
    assert len(made.scores["0"]["margin"]) == len(made.scores["1"]["margin"]) == scored
    assert {fit.head_length(p, b) for p in found.pairs for b in range(3)} == {4, 16, None}


def test_calibration_under_a_grammar_of_a_noisy_pair(fake: FakeServer) -> None:
    """Honest constrained pairs give a policy about constrained records, of an engine that is not exact too."""
    known = facts(plugin=PLUGIN, fields={ROUTE: (*FACTS.fields[ROUTE], "structured_outputs")})
    given = prompts(
        b"\n".join(json.dumps({"text": f"g {i}", "output": {"regex": "[a-z]+"}}).encode() for i in range(48))
    )

    async def work(tiny: Tiny, some: list[Prompt]) -> HonestPairs:
        serve(fake, tiny)
        async with open_tiny(fake, known) as connection:
            sides = CalibrationSides(connection, connection)
            return await collect(sides, some, [PINS], claim(known), concurrencies=(2,))

    found = run(work(Tiny(jitter=0.02), given))
    made = fit.fit(found.pairs, Aim(name="t", level=0.15), NOW)
    assert (made.mode, made.method, made.exact) == ("constrained", "decode", None)
    assert made.selftest is not None
    assert made.selftest.violations == 0
    fresh = prompts(json.dumps({"text": "fresh", "output": {"regex": "[a-z]+"}}).encode())
    for tiny, status in ((Tiny(jitter=0.02), "valid"), (Tiny(weights=1), "invalid")):
        (pair,) = run(work(tiny, fresh)).pairs
        assert pair.artifact.sampling.structured_output == grammar.digest(pair.artifact.request.body)
        serve(fake, Tiny(jitter=0.02))
        got = judged(pair.artifact, run(replayed(fake, pair.artifact, known=known)), made, NOW)
        assert got.status == status, got.reasons


def test_greedy_calibration_counts_gaps(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = fit.fit(run(pairs(fake, sampler=Sampler(0.0))).pairs, Aim(name="t"), NOW)
    assert made.rates.greedy_tokens > 0
    assert made.selftest is None


def test_the_noise_floor_is_measured_cold_and_crowded(fake: FakeServer) -> None:
    async def work(found: HonestPairs) -> Any:
        async with open_tiny(fake) as connection:
            return await noise_floor(connection, found.pairs)

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
        fit.fit([], Aim(name="t"), NOW)
    with pytest.raises(UsageError, match="too few different prompts"):
        fit.fit(found[:1], Aim(name="t"), NOW)
    mixed = HonestPair("m", found[0].artifact, msgspec.structs.replace(found[0].replay, method="decode"))
    with pytest.raises(UsageError, match="several kinds"):
        fit.fit([*found, mixed], Aim(name="t"), NOW)
    broken = seal(
        msgspec.structs.replace(
            found[0].artifact, end=msgspec.structs.replace(found[0].artifact.end, finish_reason="stop")
        )
    )
    with pytest.raises(UsageError, match="fails its own test S6"):
        fit.fit([HonestPair("b", broken, found[0].replay), *found], Aim(name="t"), NOW)
    engine.edit = lambda body, reply: Reply(500, json={"error": "no"})
    with pytest.raises(EngineError, match="24 of 24"):
        run(pairs(fake))
    with pytest.raises(UsageError, match="nothing to calibrate"):
        run(pairs(fake, 0))


@pytest.mark.parametrize("name", ["weights_digest", "tokenizer_digest"])
def test_pairs_of_two_models_are_not_mixed(fake: FakeServer, name: str) -> None:
    """Two digests are two models; a record that states none may be of either."""

    def stating(pair: HonestPair, digest: str | None) -> HonestPair:
        model = msgspec.structs.replace(pair.artifact.claim.model, **{name: digest})
        made = msgspec.structs.replace(pair.artifact, claim=msgspec.structs.replace(pair.artifact.claim, model=model))
        return HonestPair(pair.prompt, seal(made), pair.replay)

    serve(fake, Tiny())
    first, second, *rest = run(pairs(fake)).pairs
    one_model = [stating(first, "a" * 64), stating(second, None), *rest]
    assert getattr(fit.fit(one_model, Aim(name="t"), NOW), name) == "a" * 64
    with pytest.raises(UsageError, match=f"{name} {'a' * 64} and {'b' * 64}"):
        fit.fit([stating(first, "a" * 64), stating(second, "b" * 64), *rest], Aim(name="t"), NOW)


def test_repeated_records_count_once(fake: FakeServer) -> None:
    serve(fake, Tiny())
    first, second = (p.artifact for p in run(pairs(fake, 2)).pairs)
    copy = msgspec.json.decode(msgspec.json.encode(first), type=Artifact)
    assert distinct([first, second, copy, second]) == [first, second]
    assert distinct([]) == []


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
    short = fit.truncated(made, 5)
    assert len(short.tokens.completion_ids or ()) == 5
    assert judged(short, None, None, NOW).status == "inconclusive"
    assert fit.truncated(made, 20) is made
