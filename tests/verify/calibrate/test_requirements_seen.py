"""What honest records have in common becomes what a policy requires."""

from __future__ import annotations

import msgspec

from logproof.verify.artifact.artifact import Artifact, Seed
from logproof.verify.calibrate.requirements_seen import machines_of, requirements_of
from logproof.verify.policy import PolicyEngine
from logproof.verify.requirements import ExecutorKind, NumberFormat
from logproof.verify.stats.sampler import Sampler
from verify.builders import PLAIN, SPLITMIX, artifact, change, draw, logits, record

replace = msgspec.structs.replace


def made(sampler: Sampler = PLAIN, seed: int = 7) -> Artifact:
    z = logits(30, seed)
    return artifact(record(z, draw(z, sampler, seed), 20), sampler, seed)


def claiming(one: Artifact, **fields: object) -> Artifact:
    return change(one, claim=replace(one.claim, engine=replace(one.claim.engine, **fields), sampler_profile=None))


def test_sampling_is_required_as_it_was_seen() -> None:
    seen = requirements_of([made(), made(Sampler(0.7, 40, 0.9)), made(Sampler(0.0))], "sampled").sampling
    assert seen is not None
    assert (seen.greedy, seen.temperature, seen.top_p, seen.top_k) == (True, (0.7, 1.0), (0.9, 1.0), (40, 0))
    assert (seen.min_p, seen.repetition_penalty, seen.bending) == ((0.0, 0.0), (1.0, 1.0), ())
    greedy = requirements_of([made(Sampler(0.0))], "sampled").sampling
    assert greedy is not None
    assert (greedy.greedy, greedy.temperature) == (True, None)
    bent = change(made(), sampling=replace(made().sampling, logit_bias={"3": 1.0}, min_tokens=None))
    biased = requirements_of([made(), bent], "sampled").sampling
    assert biased is not None
    assert biased.bending == ("logit_bias",)


def test_a_seed_is_required_where_all_had_one_that_binds() -> None:
    free = change(made(), sampling=replace(made().sampling, seed=Seed(value=7, origin="executor")))
    assert requirements_of([made(), made(Sampler(0.0))], "sampled").seed == "bound"
    assert requirements_of([made(), free], "sampled").seed is None
    assert requirements_of([made(Sampler(0.0))], "sampled").seed is None


def test_executors_have_the_sampler_that_their_version_implies() -> None:
    assert requirements_of([claiming(made())], "replayed").executors == (SPLITMIX,)
    kinds = requirements_of([claiming(made(), version=None), made(), claiming(made(), spec_decode=True)], "sampled")
    assert kinds.executors[-1] == ExecutorKind(engine="vllm", runner="v1", device="cpu")
    assert len(kinds.executors) == 3


def test_number_formats_are_required_as_they_were_seen() -> None:
    one = made()
    assert one.logprobs is not None
    fixed = change(one, logprobs=replace(one.logprobs, format="fixed", denominator=1024))
    assert requirements_of([one, fixed], "sampled").numbers == (
        NumberFormat(format="fixed", denominator=1024),
        NumberFormat(format="float32"),
    )


def test_machines_are_named_once_with_the_processor_that_was_stated() -> None:
    named = PolicyEngine(name="vllm", version="0.32.0", dtype="float32", device="cpu", processor="Xeon 8581C")
    got = machines_of([made(), made(seed=8), claiming(made(), device="cuda")], named)
    assert [m.words for m in got] == ["vllm 0.32.0, float32, Xeon 8581C", "vllm 0.32.0, float32, cuda"]
