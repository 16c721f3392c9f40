"""`audit`, as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.verify import judging
from cli.verify.judging import CLAIM, invoke, start
from fakes.server import FakeServer
from logproof.verify.artifact import artifact_files
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
