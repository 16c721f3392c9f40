"""What a record claims of itself never switches a test off: pre-fill records, each with one claim that would do so."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from logproof.verify.artifact import grammar
from logproof.verify.artifact.artifact import Artifact, Seed, Sent
from logproof.verify.artifact.known_request import KnownRequest
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.artifact.signing import sign
from logproof.verify.judge import judge
from logproof.verify.requirements import NumberFormat, Requirements, SamplingRanges, requirement_lines
from logproof.verify.stats.sampler import Sampler
from verify.builders import (
    PLAIN,
    WIDE,
    artifact,
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
N = 120
replace = msgspec.structs.replace


def prefill() -> tuple[Artifact, ReplayResult]:
    """Another model wrote the text, the claimed one scored it."""
    z = logits(N, 99)
    foreign = draw(noisy(z, 1, 0.15), PLAIN, 7)
    return artifact(record(z, foreign, 20)), replayed(record(z, foreign, 40))


def claiming(made: Artifact, **fields: object) -> Artifact:
    claim = made.claim
    if "sampler_profile" in fields:
        claim = replace(claim, sampler_profile=fields.pop("sampler_profile"))
    return change(made, claim=replace(claim, engine=replace(claim.engine, **fields)))


def seeded(made: Artifact, seed: Seed | None) -> Artifact:
    return change(made, sampling=replace(made.sampling, seed=seed))


CLAIMS: list[dict[str, object]] = [
    {"spec_decode": True},
    {"name": None},
    {"name": "sglang"},
    {"name": None, "sampler_profile": None},
    {"version": None, "sampler_profile": None},
    {"version": "0.29.1", "sampler_profile": None},
    {"runner": "v2", "sampler_profile": None},
    {"runner": None, "sampler_profile": None},
    {"device": "cuda", "sampler_profile": None},
    {"device": None, "sampler_profile": None},
    {"sampler_profile": "v2-gpu-murmur3"},
    {"sampler_profile": "v1-gpu-exp"},
    {"sampler_profile": "no such profile"},
]


@pytest.mark.parametrize("fields", CLAIMS, ids=str)
def test_no_claim_about_the_executor_makes_a_prefill_valid(fields: dict[str, object]) -> None:
    made, replay = prefill()
    assert judged(made, replay, policy(), NOW).status == "invalid"
    got = judged(claiming(made, **fields), replay, policy(), NOW)
    assert got.status != "valid", got.headline


@pytest.mark.parametrize("seed", [None, Seed(value=7, origin="executor"), Seed(value=7, origin="unknown")], ids=str)
def test_no_claim_about_the_seed_makes_a_prefill_valid(seed: Seed | None) -> None:
    made, replay = prefill()
    got = judged(seeded(made, seed), replay, policy(), NOW)
    assert got.status != "valid", got.headline


def honest(sampler: Sampler = PLAIN) -> tuple[Artifact, ReplayResult]:
    z = logits(N, 99)
    ids = draw(z, sampler, 7)
    return artifact(record(z, ids, 20), sampler), replayed(record(z, ids, 40))


def asking(made: Artifact, **fields: object) -> Artifact:
    """The record with these fields in the body of its request; one that is None is left out."""
    assert isinstance(made.request.body, dict)
    body = {name: value for name, value in {**made.request.body, **fields}.items() if value is not None}
    return change(made, request=replace(made.request, body=body))


def test_a_seed_that_the_request_asks_for_and_the_record_lacks_fails() -> None:
    made, replay = honest()
    asked = Sent(dialect="sglang_native", path="/generate", body={"sampling_params": {"sampling_seed": 7}})
    for one in (asking(made, seed=7), change(made, request=asked)):
        got = judged(seeded(one, None), replay, policy(), NOW)
        assert (got.status, finding(got, "policy").reason) == ("invalid", "seed_missing")
        assert any(r.startswith("the seed that was asked for is not in the record") for r in got.reasons)
    # The requester's own request counts before what the record says of it.
    silent = requested(made, seed=None)
    assert finding(judge(silent, replay, policy(), NOW), "policy").outcome == "unknown"
    known = KnownRequest(path=made.request.path, body=made.request.body, source="file")
    lied = judge(silent, replay, policy(), NOW, known=known)
    assert (finding(lied, "policy").outcome, finding(lied, "request").outcome) == ("fail", "fail")


def test_an_executor_that_was_asked_for_no_seed_is_not_accused() -> None:
    made, replay = honest()
    got = judged(requested(made, seed=None), replay, policy(), NOW)
    assert (got.status, got.level) == ("inconclusive", "none")
    assert "the policy requires one, and the request asks for none" in finding(got, "policy").detail
    free = judged(requested(made, seed=None), replay, policy(requires=requires(seed=None)), NOW)
    assert (free.status, free.level) == ("valid", "sampled")


def test_a_greedy_record_needs_no_seed() -> None:
    made, replay = honest(Sampler(0.0))
    assert judged(requested(made, seed=None), replay, policy(), NOW).status == "valid"


def test_the_sampler_of_the_policy_counts_where_the_record_names_another() -> None:
    """Honest or not: the engine that is claimed has the sampler that the policy knows."""
    made, replay = prefill()
    got = judged(claiming(made, sampler_profile="v1-gpu-exp"), replay, policy(), NOW)
    assert (got.status, finding(got, "S4").outcome, finding(got, "S2").outcome) == ("invalid", "fail", "fail")
    silent = judged(claiming(made, sampler_profile=None), replay, policy(), NOW)
    assert finding(silent, "S4").outcome == "fail"
    fair, replay = honest()
    other = judged(claiming(fair, sampler_profile="v1-gpu-exp"), replay, policy(), NOW)
    assert (other.status, finding(other, "policy").reason) == ("inconclusive", "executor_uncalibrated")
    assert finding(other, "policy").detail == "sampler v1-gpu-exp, required v1-cpu-splitmix"


def test_an_honest_executor_of_another_kind_is_not_accused() -> None:
    made, replay = honest()
    got = judged(claiming(made, runner="v2", device=None, sampler_profile=None), replay, policy(), NOW)
    assert (got.status, got.level) == ("inconclusive", "none")
    assert finding(got, "policy").detail == "runner v2, required v1; device not stated, required cpu"


SEEN = SamplingRanges(
    greedy=False,
    temperature=(0.7, 1.0),
    top_p=(1.0, 1.0),
    top_k=(40, 0),
    min_p=(0.0, 0.0),
    frequency_penalty=(0.0, 0.0),
    presence_penalty=(0.0, 0.0),
    repetition_penalty=(1.0, 1.0),
)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (Sampler(0.3), "temperature 0.3, seen 0.7 to 1"),
        (Sampler(1.0, 20), "top_k 20, seen 40 to off"),
        (Sampler(1.0, 0, 0.9), "top_p 0.9, seen 1"),
        (Sampler(1.0, 0, 1.0, 0.1), "min_p 0.1, seen 0"),
        (Sampler(0.0), "greedy, sampled ones alone were seen"),
    ],
)
def test_sampling_that_the_policy_did_not_see_is_inconclusive(sampler: Sampler, words: str) -> None:
    made, replay = honest(sampler)
    assert judged(made, replay, policy(), NOW).status == "valid"
    got = judged(made, replay, policy(requires=requires(sampling=SEEN)), NOW)
    assert (got.status, finding(got, "policy").reason) == ("inconclusive", "sampling_uncalibrated")
    assert finding(got, "policy").detail == words


@pytest.mark.parametrize("sampler", [Sampler(0.7), Sampler(1.0), Sampler(1.0, 40), Sampler(0.9, 100)])
def test_sampling_that_the_policy_saw_passes(sampler: Sampler) -> None:
    got = judged(*honest(sampler), policy(requires=requires(sampling=SEEN)), NOW)
    assert finding(got, "policy").outcome == "pass"


def test_sampling_beyond_the_cuts_is_held_against_the_policy_too() -> None:
    made, replay = honest()
    body: dict[str, object] = {"structured_outputs": {"choice": ["a", "b"]}}
    for fields, words in (
        ({"presence_penalty": 0.1}, "presence_penalty 0.1, seen 0"),
        ({"logit_bias": {"5": 1.0}}, "logit_bias, never seen"),
        ({"structured_output": grammar.digest(body)}, "structured_output, never seen"),
    ):
        bent = requested(made, **fields)
        bent = asking(bent, **body) if bent.sampling.structured_output else bent
        got = judged(bent, replay, policy(requires=requires(level="distribution")), NOW)
        assert (got.status, finding(got, "policy").detail) == ("inconclusive", words)
        wide = replace(WIDE, presence_penalty=(0.0, 1.0), bending=("logit_bias", "structured_output"))
        seen = judged(bent, replay, policy(requires=requires(level="distribution", sampling=wide)), NOW)
        assert seen.level == "distribution"


def test_another_number_format_than_required_is_not_known() -> None:
    made, replay = honest()
    fixed = (NumberFormat(format="fixed", denominator=1024),)
    got = judged(made, replay, policy(requires=requires(numbers=fixed)), NOW)
    assert (got.status, finding(got, "policy").reason) == ("inconclusive", "number_format")
    assert finding(got, "policy").detail == "float32, required fixed 1/1024"


@pytest.mark.parametrize("gone", ["sampling", "executors", "numbers"])
def test_a_policy_that_requires_too_little_says_distribution_at_most(gone: str) -> None:
    made, replay = honest()
    some = requires(**{gone: None if gone == "sampling" else ()})
    got = judged(made, replay, policy(requires=some), NOW)
    assert (got.status, got.level, finding(got, "requires").reason) == (
        "inconclusive",
        "distribution",
        "requirements_missing",
    )
    assert gone in finding(got, "requires").detail
    low = judged(made, replay, policy(requires=Requirements(level="distribution")), NOW)
    assert (low.status, low.level) == ("valid", "distribution")
    assert judged(made, replay, policy(requires=Requirements()), NOW).status == "inconclusive"


def test_one_of_the_policys_keys_must_have_signed() -> None:
    pytest.importorskip("cryptography")
    made, replay = honest()
    signed = sign(made, bytes(32))
    assert signed.seal is not None
    assert signed.seal.signature is not None
    key = signed.seal.signature.key_id
    rules = policy(requires=requires(key_ids=(key,)))
    assert judged(signed, replay, rules, NOW).status == "valid"
    for other in (made, sign(made, bytes([1] * 32))):
        got = judged(other, replay, rules, NOW)
        assert (got.status, finding(got, "S0a").reason) == ("invalid", "key")
    # A key that the command line demands replaces no key that the policy demands.
    strict = judge(signed, replay, policy(requires=requires(key_ids=("ab" * 32,))), NOW, keys=(key,))
    assert (strict.status, finding(strict, "policy").reason) == ("invalid", "key")


def test_every_thing_that_the_record_lacks_is_named() -> None:
    made, replay = honest()
    bad = claiming(seeded(made, None), spec_decode=True)
    got = judged(bad, replay, policy(requires=requires(sampling=SamplingRanges())), NOW)
    reasons = [f.reason for f in got.findings if f.test == "policy"]
    assert reasons == ["seed_missing", "executor_uncalibrated", "sampling_uncalibrated"]


def test_a_failure_of_the_distribution_names_the_machines_that_were_seen() -> None:
    """Another machine is honest and may differ as much: the first line says no more than was shown."""
    z = logits(N, 99)
    ids = draw(z, PLAIN, 7)
    made, far = artifact(record(z, ids, 20)), replayed(record(noisy(z, 3, 0.01), ids, 40))
    got = judged(made, far, policy(), NOW)
    assert finding(got, "S1").outcome == "fail"
    seen = "vllm 0.32.0, float32, cpu"
    assert got.headline == f"Shown: not the claimed model on a machine like those calibrated ({seen})."
    assert f"calibrated: {seen}; an exact pair: no other machine was seen" in finding(got, "S1").detail
    assert "calibrate --honest FILE, or audit --second URL" in finding(got, "S1").detail
    assert "(none is named)" in judged(made, far, policy(machines=()), NOW).headline


def test_requirements_in_words() -> None:
    assert requirement_lines(requires(key_ids=("ab",), sampling=SEEN, numbers=(NumberFormat(format="float32"),))) == [
        "level sampled",
        "a seed that the executor did not choose",
        "sampling: temperature 0.7 to 1, top_p 1, top_k 40 to off, min_p 0, frequency_penalty 0, presence_penalty 0,"
        " repetition_penalty 1",
        "an executor: vllm 0.32.0 v1 cpu v1-cpu-splitmix",
        "logprobs in float32",
        "a signature by ab",
    ]
    assert requirement_lines(Requirements()) == ["level sampled"]
