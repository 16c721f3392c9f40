"""From artifact and replay to verdict, with the cases that others got wrong."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest

from logproof.verify.artifact.artifact import Artifact, ChoiceRef, Seed, TokenIds, artifact_columns
from logproof.verify.artifact.columns import Columns, make_columns, to_fixed
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.checks import recorded
from logproof.verify.policy import SelfTest
from logproof.verify.stats import distance_table, gonka
from logproof.verify.stats.sampler import Sampler
from verify.builders import (
    LOOSE,
    PLAIN,
    VOCAB,
    artifact,
    bfloat,
    change,
    draw,
    finding,
    judged,
    logits,
    noisy,
    policy,
    record,
    replayed,
    requested,
    requires,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
replace = msgspec.structs.replace
N = 120


def exact(sampler: Sampler = PLAIN, seed: int = 7, n: int = N) -> tuple[Artifact, ReplayResult]:
    z = logits(n, 99)
    ids = draw(z, sampler, seed)
    return artifact(record(z, ids, 20), sampler, seed), replayed(record(z, ids, 40))


@pytest.mark.parametrize("sampler", [PLAIN, Sampler(0.8, 15), Sampler(1.0, 0, 0.9), Sampler(0.0)])
def test_an_honest_exact_artifact_is_valid_and_replayed(sampler: Sampler) -> None:
    got = judged(*exact(sampler), policy(), NOW)
    assert (got.status, got.level, got.exit_code) == ("valid", "replayed", 0), got.reasons
    assert got.context.method == "prefill"
    assert got.context.policy_digest == policy().digest


@pytest.mark.parametrize("sampler", [PLAIN, Sampler(0.0)])
def test_every_passed_test_says_what_it_cannot_see(sampler: Sampler) -> None:
    passed = [f for f in judged(*exact(sampler), policy(), NOW).findings if f.outcome == "pass"]
    assert len(passed) >= 5
    assert [f.test for f in passed if not f.blind] == []


def test_the_evidence_names_all_distances_and_adds_up() -> None:
    """Gonka's two forms stand beside ours, and sampling alone gives evidence that can be accumulated."""
    made, replay = exact()
    got = judged(made, replay, policy(), NOW)
    told = finding(got, "S1").statistic
    own = artifact_columns(made)
    near = replay.columns.narrow(20)
    assert (told["gonka_go"], told["gonka_python"]) == (gonka.go(own, near), gonka.GonkaLists(own, near).python[0])
    assert {"tz", "mae", "max_abs", "kl", "slope", "bias"} <= told.keys()
    assert finding(got, "S3").log_e is not None
    bare = distance_table.measure(
        make_columns([1], [-1.0], [[]], [[]]), make_columns([1], [-1.0], [[1]], [[-1.0]]), policy().sigma
    )[1]
    assert "gonka_go" not in bare


@pytest.mark.parametrize("at", [0, 57, N - 1])
def test_every_edited_token_is_found_at_its_position(at: int) -> None:
    made, _ = exact()
    z = logits(N, 99)
    ids = list(made.tokens.completion_ids or ())
    ids[at] = (ids[at] + 1) % VOCAB
    cheat = artifact(record(z, ids, 20))
    got = judged(cheat, None, None, NOW)
    assert (got.status, finding(got, "S4").reason) == ("invalid", "self_replay")
    assert f"token {at} " in finding(got, "S4").detail


def test_edited_logprobs_are_found_at_their_position() -> None:
    made, replay = exact()
    rows = artifact_columns(made)
    edited = rows.logprobs.copy()
    edited[40] -= 0.5
    drawn = rows.sampled_logprobs.copy()
    drawn[40] -= 0.5
    cheat = artifact(
        make_columns(
            rows.sampled_ids,
            drawn.astype(np.float32).astype(np.float64),
            rows.ids.tolist(),
            edited.astype(np.float32).astype(np.float64).tolist(),
        )
    )
    got = judged(cheat, replay, policy(), NOW)
    assert finding(got, "S1").outcome == "fail"
    assert "1 of 120 positions" in finding(got, "S1").detail
    assert "first 40" in finding(got, "S1").detail


def test_prefill_attack_with_honest_logprobs() -> None:
    """Another model writes, the claimed one scores: distance is exactly 0, the draws are not its own."""
    z = logits(N, 99)
    foreign = draw(noisy(z, 1, 1.0), PLAIN, 7)
    cheat = artifact(record(z, foreign, 20))
    got = judged(cheat, replayed(record(z, foreign, 40)), policy(), NOW)
    assert finding(got, "S1").outcome == "pass"
    assert finding(got, "S1").statistic["max_abs"] == 0.0
    assert finding(got, "S4").outcome == finding(got, "S2").outcome == "fail"
    assert got.status == "invalid"


def test_low_ranks_under_a_greedy_claim() -> None:
    z = logits(40, 99)
    order = np.argsort(-z, axis=1)
    deep = [int(t) for t in order[:, 30]]
    greedy = Sampler(0.0)
    got = judged(artifact(record(z, deep, 20), greedy), replayed(record(z, deep, 20)), policy(), NOW)
    assert got.status == "invalid"
    assert finding(got, "S2g").outcome == finding(got, "S4").outcome == "fail"
    tied = bfloat(z, 8.0)
    ids = [int(np.flatnonzero(row == row.max())[-1]) for row in tied]
    fair = judged(artifact(record(tied, ids, 20), greedy), replayed(record(tied, ids, 20)), policy(), NOW)
    assert fair.status == "valid", fair.reasons


def test_tokens_outside_top_k() -> None:
    z = logits(40, 99)
    ids = draw(z, PLAIN, 7)
    told = Sampler(1.0, 3)
    got = judged(artifact(record(z, ids, 20), told), replayed(record(z, ids, 40)), policy(), NOW)
    assert "cannot be drawn" in finding(got, "S4").detail
    assert finding(got, "S3").outcome == "fail"


def test_unlike_modes_are_inconclusive() -> None:
    """A processed record at T = 0.7 against a raw replay is no mismatch of models."""
    z = logits(N, 99)
    hot = Sampler(0.7)
    ids = draw(z, hot, 7)
    made = artifact(record(z / 0.7, ids, 20), hot)
    assert made.logprobs is not None
    told = change(made, logprobs=replace(made.logprobs, mode="processed"))
    got = judged(told, replayed(record(z, ids, 40)), policy(mode="processed"), NOW)
    assert (got.status, finding(got, "align").reason) == ("inconclusive", "modes_differ")
    silent = change(made, logprobs=replace(made.logprobs, mode="unknown"))
    got = judged(silent, replayed(record(z, ids, 40)), policy(), NOW)
    assert (got.status, finding(got, "align").reason) == ("inconclusive", "mode_unknown")


def test_a_replay_that_enforced_nothing_gives_no_distance() -> None:
    made, _ = exact()
    other = draw(logits(N, 99), PLAIN, 8)
    got = judged(made, replayed(record(logits(N, 99), other, 40)), policy(), NOW)
    assert (got.status, finding(got, "align").reason) == ("inconclusive", "replay_not_enforced")
    assert not any(f.test == "S1" for f in got.findings)


@pytest.mark.parametrize("reason", ["engine_error", "engine_cannot_replay", "replay_not_enforced"])
def test_a_failing_engine_is_never_the_artifacts_guilt_nor_a_pass(reason: str) -> None:
    made, _ = exact()
    failure = msgspec.convert({"reason": reason, "detail": "HTTP 400"}, ReplayFailure)
    got = judged(made, failure, policy(), NOW)
    assert (got.status, got.exit_code, finding(got, "S1").reason) == ("inconclusive", 2, reason)


def test_malformed_ids_are_invalid_before_any_engine() -> None:
    made, replay = exact()
    cheat = change(made, tokens=replace(made.tokens, completion_ids=(VOCAB, *(made.tokens.completion_ids or ())[1:])))
    for answer in (None, replay, ReplayFailure(reason="engine_cannot_replay", detail="HTTP 400")):
        got = judged(cheat, answer, policy(), NOW)
        assert (got.status, got.findings[0].reason) == ("invalid", "token_out_of_range")
    assert not recorded.check(cheat).replayable


def test_texts_only_are_inconclusive_not_fraud() -> None:
    made, _ = exact()
    bare = change(made, tokens=TokenIds(prompt_ids=None, completion_ids=None), positions=None, logprobs=None)
    got = judged(bare, None, policy(), NOW)
    assert got.status == "inconclusive"
    assert any(f.reason == "no_token_ids" for f in got.findings)
    quiet = change(made, positions=None, logprobs=None)
    assert any(f.reason == "no_logprobs" for f in judged(quiet, None, policy(), NOW).findings)


def test_without_replay_or_policy_nothing_is_valid() -> None:
    made, replay = exact()
    assert finding(judged(made, None, policy(), NOW), "S1").reason == "not_replayed"
    got = judged(made, replay, None, NOW)
    assert (got.status, finding(got, "S1").reason) == ("inconclusive", "profile_uncalibrated")


def test_an_expired_policy_is_stale() -> None:
    got = judged(*exact(), policy(), datetime(2027, 6, 1, tzinfo=UTC))
    assert (got.status, finding(got, "policy").reason) == ("inconclusive", "stale")


def test_model_identity() -> None:
    made, replay = exact()
    got = judged(made, replay, policy(model_id="other"), NOW)
    assert (got.status, finding(got, "policy").reason) == ("inconclusive", "model_identity")
    assert judged(made, replay, policy(model_id="other", pin_model=True), NOW).status == "invalid"
    model = replace(made.claim.model, weights_digest="aa")
    claimed = change(made, claim=replace(made.claim, model=model))
    assert judged(claimed, replay, policy(weights_digest="bb"), NOW).status == "inconclusive"
    assert judged(claimed, replay, policy(weights_digest="aa"), NOW).status == "valid"


@pytest.mark.parametrize("fields", [{"method": "decode"}, {"mode": "processed"}, {"k": 5}])
def test_a_policy_for_another_case_does_not_speak(fields: dict[str, object]) -> None:
    got = judged(*exact(), policy(**fields), NOW)
    assert (got.status, finding(got, "policy").reason) == ("inconclusive", "profile_uncalibrated")


def test_an_executor_chosen_seed_gives_no_credit() -> None:
    made, replay = exact()
    free = requested(made, seed=Seed(value=7, origin="executor"))
    got = judged(free, replay, policy(requires=requires(seed=None)), NOW)
    assert (got.status, got.level) == ("valid", "sampled")
    assert finding(got, "seed").reason == "seed_unbound"
    strict = judged(free, replay, policy(requires=requires(seed=None, level="replayed")), NOW)
    assert strict.status == "inconclusive"
    assert "may have chosen the seed" in strict.reasons[0]
    lie = requested(made, seed=Seed(value=8, origin="executor"))
    assert judged(lie, replay, policy(), NOW).status == "invalid"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda a: requested(a, presence_penalty=1.0), "presence_penalty bends"),
        (lambda a: requested(a, top_p=None), "unresolved"),
        (lambda a: requested(a, seed=None), "no seed is recorded"),
        (lambda a: requested(engine(a, name="sglang"), n=2), "one of 2 choices"),
        (lambda a: engine(a, spec_decode=True), "speculative"),
        (lambda a: change(a, claim=replace(a.claim, sampler_profile="v1-gpu-exp")), "no sampler profile"),
        (lambda a: change(a, claim=replace(a.claim, sampler_profile="made-up")), "no sampler profile"),
    ],
)
def test_draws_that_cannot_be_repeated_say_why(edit: object, words: str) -> None:
    made, replay = exact()
    assert callable(edit)
    got = judged(edit(made), replay, policy(requires=LOOSE), NOW)
    assert got.status in ("valid", "inconclusive")
    assert got.level != "replayed"
    assert words in finding(got, "S4").detail


def test_choices_of_vllm_are_drawn_with_following_seeds() -> None:
    """Choice i of a request with seed s is the draw of s + i; as any other choice it is a contradiction."""
    made, replay = exact()
    assert made.sampling.seed is not None
    four = requested(made, n=4, seed=Seed(value=made.sampling.seed.value - 2, origin="requester"))
    third = change(four, choice=ChoiceRef(n=4, index=2))
    got = judged(third, replay, policy(), NOW)
    assert (got.status, got.level) == ("valid", "replayed"), got.reasons
    once = change(third, request=requested(four, seed=four.sampling.seed).request)
    unasked = judged(once, replay, policy(requires=requires(seed=None)), NOW)
    assert (unasked.status, finding(unasked, "request").outcome) == ("invalid", "fail")
    assert "for which the recorded request does not ask" in finding(unasked, "seed").detail
    second = judged(change(third, choice=ChoiceRef(n=4, index=1)), replay, policy(), NOW)
    assert {f.test for f in second.findings if f.outcome == "fail"} == {"S4", "S2"}


def test_a_temperature_that_vllm_lifts_is_replayed_as_lifted() -> None:
    """Between 0 and 0.01 vLLM takes 0.01; another engine may not."""
    z = logits(N, 31, spread=0.2)
    cold = Sampler(0.01)
    own = record(z, draw(z, cold, 7), 20)
    told = artifact(own, Sampler(0.001), 7)
    assert finding(judged(told, replayed(own), policy(), NOW), "S4").outcome == "pass"
    assert finding(judged(artifact(own, Sampler(0.005), 7), replayed(own), policy(), NOW), "S4").outcome == "pass"
    assert finding(judged(artifact(own, Sampler(0.02), 7), replayed(own), policy(), NOW), "S4").outcome == "fail"


def test_processed_logprobs_of_an_engine_that_reports_them_before_its_cuts_do_not_give_the_draw() -> None:
    """SGLang's sum to 1 over all tokens, whatever top-k and top-p then leave out."""
    z = logits(N, 32)
    cut = Sampler(0.8, 5)
    own = record(z / 0.8, draw(z, cut, 7), 5)
    made = artifact(own, cut, 7, k=5)
    made = change(made, logprobs=replace(made.logprobs, mode="processed"))
    as_vllm = judged(made, None, None, NOW)
    assert finding(as_vllm, "S0c").outcome == "fail"
    sglang = judged(engine(made, name="sglang"), None, None, NOW)
    assert all(f.outcome != "fail" for f in sglang.findings)
    assert "before" in finding(sglang, "S4").detail or "after its cuts" in finding(sglang, "S4").detail


def engine(made: Artifact, **fields: object) -> Artifact:
    claim = replace(made.claim, engine=replace(made.claim.engine, **fields))
    return change(made, claim=claim)


def test_the_profile_follows_from_the_engine_or_a_selftest() -> None:
    made, replay = exact()
    unnamed = change(made, claim=replace(made.claim, sampler_profile=None))
    assert judged(unnamed, replay, policy(), NOW).level == "replayed"
    nameless = engine(unnamed, version=None)
    assert judged(nameless, replay, policy(requires=LOOSE), NOW).level == "sampled"
    murmur = change(made, claim=replace(made.claim, sampler_profile="v2-gpu-murmur3"))
    assert "no sampler profile" in finding(judged(murmur, replay, policy(requires=LOOSE), NOW), "S4").detail
    shown = policy(requires=LOOSE, selftest=SelfTest(profile="v2-gpu-murmur3", tokens=2000, violations=0))
    assert finding(judged(murmur, replay, shown, NOW), "S4").outcome == "fail"


def silent(columns: Columns) -> Columns:
    """One entry a row that is not the sampled token, whose logprob is not reported."""
    others = [[int(t == 0)] for t in columns.sampled_ids]
    return make_columns(columns.sampled_ids, [None] * N, others, [[-0.5]] * N)


def test_unreported_sampled_logprobs() -> None:
    one = policy(k=1)
    for sampler, test in ((Sampler(0.0), "S2g"), (PLAIN, "S2")):
        made, replay = exact(sampler)
        lost = artifact(silent(replay.columns), sampler, k=1)
        assert finding(judged(lost, replay, one, NOW), "S4").reason == "no_logprobs"
        got = judged(lost, replayed(silent(replay.columns)), one, NOW)
        assert finding(got, test).reason == "no_logprobs"
        assert got.status == "inconclusive"
        assert made.positions is not None
        listed = change(made, positions=replace(made.positions, sampled=(None,) * N))
        assert finding(judged(listed, replay, policy(), NOW), "S4").outcome == "pass"


def test_a_wrong_end_is_invalid() -> None:
    made, replay = exact()
    assert judged(change(made, end=replace(made.end, finish_reason="stop")), replay, policy(), NOW).status == "invalid"
    got = judged(change(made, end=replace(made.end, finish_reason=None)), replay, policy(), NOW)
    assert (got.status, finding(got, "S6").reason) == ("inconclusive", "end_unknown")


def test_certain_texts_say_nothing_about_the_sampler() -> None:
    z = logits(N, 99, spread=600.0)
    ids = draw(z, PLAIN, 7)
    got = judged(artifact(record(z, ids, 20)), replayed(record(z, ids, 40)), policy(), NOW)
    assert finding(got, "S3").reason == "low_entropy"
    assert got.status == "inconclusive"


def test_open_distributions_say_nothing_about_the_sampler() -> None:
    hot = Sampler(2.0)
    z = logits(N, 99)
    ids = draw(z, hot, 7)
    got = judged(artifact(record(z, ids, 3), hot, k=3), replayed(record(z, ids, 3)), policy(k=3), NOW)
    assert finding(got, "S3").reason == "sampler_unknown"


def test_the_lattice_is_noted_and_rejects_float32() -> None:
    z = bfloat(logits(N, 99, spread=4.0))
    ids = draw(z, PLAIN, 7)
    c = record(z, ids, 20)
    lying = judged(artifact(c, dtype="float32"), None, None, NOW)
    assert (finding(lying, "S0b").outcome, finding(lying, "S0b").reason) == ("fail", "lattice")
    assert finding(judged(artifact(c, dtype="bfloat16"), None, None, NOW), "S0b").reason is None
    other = artifact(record(logits(N, 99), draw(logits(N, 99), PLAIN, 7), 20), dtype="bfloat16")
    assert finding(judged(other, None, None, NOW), "S0b").reason == "lattice"
    hot = artifact(record(z / 0.7, ids, 20), dtype="bfloat16")
    look = finding(judged(hot, None, None, NOW), "S0b").detail
    assert "they look like bfloat16, processed at temperature 0.7" in look
    for dtype in (None, "int4"):
        assert not any(f.test == "S0b" for f in judged(artifact(c, dtype=dtype), None, None, NOW).findings)
    coarse = artifact(to_fixed(c), dtype="bfloat16")
    assert coarse.logprobs is not None
    rough = change(coarse, logprobs=replace(coarse.logprobs, format="fixed", denominator=1024, step=0.5 / 1024))
    assert not any(f.test == "S0b" for f in judged(rough, None, None, NOW).findings)
