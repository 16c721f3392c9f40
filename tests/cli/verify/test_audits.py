"""`audits`, as a command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from cli.verify import judging
from cli.verify.judging import invoke
from fakes.server import FakeServer
from logproof.verify.audit.evidence import Audit, AuditSession, Step

fake, prompts, rules = judging.fake, judging.prompts, judging.rules


def recorded(prompts: Path, name: str, provider: str, log_e: float, *, decisive: bool = False) -> Path:
    """A recorded audit of three requests."""
    steps = [
        Step(prompt="p", status="valid", level="sampled", reasons=(), tokens=20, tz=0.4, log_e=e, decisive=d)
        for e, d in ((0.0, False), (0.0, False), (log_e, decisive))
    ]
    state = AuditSession(level=0.01, steps=tuple(steps))
    times = {"started_at": "2026-01-01T00:00:00+00:00", "finished_at": "2026-01-01T00:01:00+00:00"}
    made = Audit(
        schema="logproof-audit/1", provider=provider, trusted="t", model="m", policy_digest="d", fingerprint=None,
        session=state, headline="[/bold] told", **times,
    )  # fmt: skip
    path = prompts.with_name(name)
    path.write_bytes(msgspec.json.encode(made))
    return path


def test_audits_of_several_providers_share_their_errors(prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Evidence of 120 to 1 settles an audit at 1 %, and is too little for one of ten providers."""
    calm = [recorded(prompts, f"calm{i}", f"http://calm{i}", 0.0) for i in range(8)]
    strong = recorded(prompts, "strong", "http://strong", math.log(120.0))
    assert invoke("audits", *calm) == 0
    assert invoke("audits", *calm, strong, recorded(prompts, "calm8", "http://calm8", 0.0)) == 2
    text = capfd.readouterr()
    assert "0 of 10 rejected; of those, at most 5% falsely in the mean" in text.out
    assert "[/bold] told" in text.out
    assert "audit again with --all" in text.err
    caught = recorded(prompts, "caught", "http://caught", 0.0, decisive=True)
    assert invoke("audits", *calm, strong, caught, "--json") == 1
    found = json.loads(capfd.readouterr().out)
    assert found["level"] == 0.05
    assert [r["provider"] for r in found["providers"] if r["status"] == "invalid"] == ["http://strong", "http://caught"]
    assert [r["contradiction"] for r in found["providers"][-2:]] == [False, True]


def test_audits_refuse_what_they_cannot_compare(prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = recorded(prompts, "one", "http://p", 0.0)
    for args, words in (
        ((one, recorded(prompts, "two", "http://p", 1.0)), "two audits of m at http://p"),
        ((one, "--level", "1"), "between 0 and 1"),
        ((prompts,), "is no recorded audit"),
    ):
        assert invoke("audits", *args) == 3
        assert words in capfd.readouterr().err
    assert invoke("audits", prompts.with_name("none")) == 3


@pytest.mark.parametrize("level", [0, -1, 5])
def test_a_recorded_audit_states_a_level(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str], level: float
) -> None:
    path = recorded(prompts, "odd", "http://p", 0.0)
    made = json.loads(path.read_text())
    path.write_text(json.dumps({**made, "session": {**made["session"], "level": level}}))
    audit = ("audit", fake.url, "--trusted", fake.url, "--policy", rules, "--prompts", prompts, "--previous", path)
    for args in (("audits", path), audit):
        assert invoke(*args) == 3
        text = capfd.readouterr().err
        assert str(path) in text
        assert "is not between 0 and 1" in text
    assert fake.seen == []


def test_audits_show_small_levels_and_large_evidence(prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, huge = recorded(prompts, "one", "http://p", 999.0), recorded(prompts, "huge", "http://q", 1e308)
    assert invoke("audits", one, huge, "--level", "0.001") == 1
    text = capfd.readouterr().out
    assert "at most 0.1% falsely" in text
    assert "999.00" in text
    assert "1e+308" in text
    assert "0" * 20 not in text
