"""What the accused claims makes no verdict easier: every field of a record has its row, and no assignment of claims
makes the record of a deviating execution valid. `bench/attacks/claims.py` tries far more of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

import msgspec
import pytest

from fakes.server import FakeServer
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.checks import recorded
from logproof.verify.checks.case import trusted_facts
from logproof.verify.field_table import FIELDS, field_types
from logproof.verify.policy import PolicyEngine
from verify.builders import PLAIN, artifact, bfloat, draw, logits, policy, record
from verify.cheats import CHEATS, SAMPLINGS, Court, Records, court, court_records
from verify.claim_domains import ABSENT, CLAIMS, Change, dangerous, domain, joint, plain_record, readable, stated
from verify.tiny import Tiny

SEED = 20
"""Of every random choice here."""
ONE_WORD = ("schema", "sampling.seed.derivation.alg")
"""Fields that may hold one word alone."""
EACH, PAIRS, JOINT = 2, 500, 600
"""Records on which every value of every claim is tried, and how many pairs and joint assignments are."""


class Trial:
    """A court in session with its records."""

    def __init__(self, runner: asyncio.Runner, one: Court, records: Records) -> None:
        self.runner, self.court, self.records = runner, one, records
        self.plain = {name: plain_record(a) for name, a in records.cheats.items()}

    def levels(self, artifact: Artifact, changes: Sequence[Change], *, record: object = None) -> list[tuple[str, str]]:
        """Status and level of the record with these claims: where the requester's own request is at hand, and where it
        is looked up by what the record says."""
        made = stated(plain_record(artifact) if record is None else record, changes)
        verdicts = self.runner.run(self.court.verdicts(made, artifact, self.records.requests))
        return [(v.status, v.level) for v in verdicts]

    def lifted(self, name: str, changes: Sequence[Change]) -> bool:
        """Whether these claims make a cheat's record valid."""
        levels = self.levels(self.records.cheats[name], changes, record=self.plain[name])
        return any(status == "valid" for status, _ in levels)


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    with FakeServer() as fake, asyncio.Runner() as runner:
        records = runner.run(court_records(fake))
        session = court(fake, Tiny(), records.policy)
        one = runner.run(session.__aenter__())
        yield Trial(runner, one, records)
        runner.run(session.__aexit__(None, None, None))


def test_every_field_of_the_schema_has_its_row() -> None:
    assert list(FIELDS) == [path for path, _ in field_types()]


def test_rows_name_the_checks_that_a_field_is_held_against() -> None:
    for field in FIELDS.values():
        assert bool(field.held_against) == (field.effect != "none"), field.path
    assert {f.path for f in FIELDS.values() if f.kind == "evidence"} == {
        "tokens.completion_ids",
        "positions",
        "positions.sampled",
        "positions.ids",
        "positions.logprobs",
    }


@pytest.mark.parametrize("name", SAMPLINGS)
def test_honest_records_are_valid(trial: Trial, name: str) -> None:
    assert trial.levels(trial.records.honest[name], []) == [("valid", "replayed")] * 2


@pytest.mark.parametrize("name", SAMPLINGS)
def test_honest_records_of_others_are_valid(trial: Trial, name: str) -> None:
    """With the requester's file of requests, where no word of the record is the verifier's own."""
    honest = trial.records.honest[name]
    (known,) = [k for k in trial.records.requests.values() if k.body == honest.request.body]
    assert known.source == "file"
    verdict = trial.runner.run(trial.court.verdict(honest, known))
    assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.reasons


@pytest.mark.parametrize("name", SAMPLINGS)
def test_records_of_unknown_requests_show_no_sampling(trial: Trial, name: str) -> None:
    verdict = trial.runner.run(trial.court.verdict(trial.records.honest[name], None))
    assert (verdict.status, verdict.level) == ("inconclusive", "distribution")


@pytest.mark.parametrize("name", SAMPLINGS)
def test_honest_records_need_only_what_evidence_holds(trial: Trial, name: str) -> None:
    """A claim without evidence changes nothing, and one that can only be stricter may be left out."""
    honest = trial.records.honest[name]
    plain, random = plain_record(honest), Random(SEED)
    for field in FIELDS.values():
        values = readable(plain, field.path)
        if field.effect == "stricter":
            values = [v for v in values if v is None or v is ABSENT]
        elif field.effect == "needed":
            continue
        for value in random.sample(values, min(3, len(values))):
            assert trial.levels(honest, [(field.path, value)], record=plain) == [("valid", "replayed")] * 2, field.path


@pytest.mark.parametrize("name", CHEATS)
def test_deviating_records_are_not_valid(trial: Trial, name: str) -> None:
    assert not trial.lifted(name, [])


def test_no_single_claim_lifts_a_deviating_record(trial: Trial) -> None:
    random, lifting = Random(SEED), []
    for path in CLAIMS:
        for value in domain(path, trial.plain["pre-filled"]):
            names = random.sample(list(CHEATS), EACH)
            lifting += [(n, path, value) for n in names if trial.lifted(n, [(path, value)])]
    assert lifting == []


def test_no_pair_of_claims_lifts_a_deviating_record(trial: Trial) -> None:
    random, lifting = Random(SEED), []
    pairs = list(combinations(CLAIMS, 2))
    for paths in random.sample(pairs, PAIRS):
        name = random.choice(list(CHEATS))
        changes = [(p, random.choice(dangerous(p, trial.plain[name]))) for p in paths]
        lifting += [(name, changes)] if trial.lifted(name, changes) else []
    assert lifting == []


def test_no_joint_assignment_of_claims_lifts_a_deviating_record(trial: Trial) -> None:
    random, lifting = Random(SEED), []
    for _ in range(JOINT):
        name = random.choice(list(CHEATS))
        values = {path: dangerous(path, trial.plain[name]) for path in CLAIMS}
        changes = joint(values, random)
        lifting += [(name, changes)] if trial.lifted(name, changes) else []
    assert lifting == []


def test_the_domains_hold_what_matters(trial: Trial) -> None:
    """Of every claim, values that a verifier can read and values that it cannot; else the tests above try nothing."""
    plain = trial.plain["pre-filled"]
    for path in CLAIMS:
        values = domain(path, plain)
        assert len(values) >= 8, path
        assert path in ONE_WORD or readable(plain, path), path


def test_claims_are_read_as_a_verifier_reads_them(trial: Trial) -> None:
    """The records of these tests are whole: what is stated is what is judged, under a seal that fits."""
    honest = trial.records.honest["plain"]
    assert stated(plain_record(honest), []) == honest
    other = stated(plain_record(honest), [("sampling.temperature", 0.7)])
    assert isinstance(other, Artifact)
    assert other.sampling == msgspec.structs.replace(honest.sampling, temperature=0.7)
    assert trial.levels(honest, [("seal.digest", "0" * 64)]) == [("invalid", "none")] * 2


@pytest.mark.parametrize("dtype", [None, "bfloat16", "x"])
def test_a_claim_of_another_format_hides_no_rounded_logits(dtype: str | None) -> None:
    """Where all honest machines had float32, rounded logits fail, whatever the record claims of them."""
    z = bfloat(logits(20, 3))
    made = artifact(record(z, draw(z, PLAIN, 7), 20), dtype=dtype)
    machine = PolicyEngine(name="vllm", dtype="float32")
    rules = policy(executor=PolicyEngine(), machines=(machine,))
    findings = recorded.check(made, trusted_facts(made, rules)).findings
    assert [f.reason for f in findings if f.outcome == "fail"] == ["lattice"]
    either = policy(executor=PolicyEngine(), machines=(machine, PolicyEngine(name="vllm", dtype="bfloat16")))
    assert not [f for f in recorded.check(made, trusted_facts(made, either)).findings if f.outcome == "fail"]


@pytest.mark.parametrize("leaf", ["logit_bias", "bad_words", "allowed_ids", "structured_output"])
def test_leaving_out_what_the_request_settles_switches_no_test_off(trial: Trial, leaf: str) -> None:
    """Neither the request nor the engine's protocol has any, so a record that does not say is one that has none."""
    edited, honest = trial.records.cheats["tokens edited"], trial.records.honest["plain"]
    sources = {name: source for name, source in honest.sampling.sources.items() if name != leaf}
    changes = [(f"sampling.{leaf}", None), ("sampling.sources", sources)]
    assert trial.levels(honest, changes) == [("valid", "replayed")] * 2
    made = stated(plain_record(edited), changes)
    assert isinstance(made, Artifact)
    (own, _) = trial.runner.run(trial.court.verdicts(made, edited, trial.records.requests))
    assert [f.test for f in own.findings if f.outcome == "fail"] == ["S4", "S2"]
