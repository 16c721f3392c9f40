"""`audit`, as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.verify import judging
from cli.verify.judging import CLAIM, SHORT, invoke, start
from fakes.server import FakeServer
from logproof.verify.artifact import artifact_files
from logproof.verify.policy import dump
from logproof.verify.requirements import SamplingRanges
from verify.builders import policy, requires
from verify.tiny import Tiny

fake, prompts, rules = judging.fake, judging.prompts, judging.rules


def test_audit_reports(
    fake: FakeServer, prompts: Path, rules: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page, record, kept = tmp_path / "r.html", tmp_path / "r.json", tmp_path / "k.jsonl"
    base = ("audit", fake.url, "--trusted", fake.url, "--policy", rules, "--prompts", prompts, "--max-tokens", 20)
    assert invoke(*base, *CLAIM, "-o", page, "--record", record, "--keep", kept, "--nonce", "n") == 0
    assert "valid" in capfd.readouterr().out
    assert "&lt;" in page.read_text()
    assert len(list(artifact_files.read(kept))) == 14
    assert invoke(*base, *CLAIM, "--previous", record, "--json", "--nonce", "n") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["reasons"], told["changes"], told["previous_is_stale"]) == ([], [], False)
    record.write_text(json.dumps({**json.loads(record.read_text()), "fingerprint": "another"}))
    assert invoke(*base, *CLAIM, "--previous", record, "--nonce", "n") == 0
    assert "the earlier audit is stale" in capfd.readouterr().out
    assert invoke(*base, "--previous", prompts) == 3
    with FakeServer() as fraud:
        start(fraud, Tiny(writer=2))
        assert invoke("audit", fraud.url, *base[2:], *CLAIM, "--previous", record, "--nonce", "n") == 1
    text = capfd.readouterr().out
    assert "changed: the audit was valid, is invalid" in text
    assert "Rejected after 1 of 14 planned requests: " in text
    assert "requests" in text
    assert "first" in text


def test_sampling_that_the_policy_did_not_see_is_refused_before_the_budget_is_spent(
    fake: FakeServer, prompts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    narrow = tmp_path / "narrow.json"
    narrow.write_bytes(dump(policy(k=10, requires=requires(sampling=SamplingRanges(temperature=(1.0, 1.0))))))
    base = ("audit", fake.url, "--trusted", fake.url, "--policy", narrow, "--prompts", prompts, *SHORT)
    before = len(fake.seen)
    assert invoke(*base, "--temperature", "0.2") == 3
    assert "the policy says nothing about this sampling: temperature 0.2, seen 1;" in capfd.readouterr().err
    assert len(fake.seen) == before


def test_a_second_engine_must_reject_too(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as far:
        start(far, Tiny(weights=1))
        base = (
            "audit",
            fake.url,
            "--trusted",
            far.url,
            "--policy",
            rules,
            "--prompts",
            prompts,
            "--nonce",
            "n",
            *SHORT,
        )
        assert invoke(*base) == 1
        assert "not the claimed model on a machine like those calibrated" in capfd.readouterr().out
        assert invoke(*base, "--second", fake.url) == 2
        assert "one trusted engine rejects the record, the second does not" in capfd.readouterr().out
