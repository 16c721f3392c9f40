"""`calibrate`, `audit` and `audits`, as commands."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import pytest

from cli.verify import judging
from cli.verify.judging import CLAIM, SHORT, captured, invoke, start
from fakes.server import FakeServer
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import TokenIds, seal
from logproof.verify.audit.evidence import Audit, AuditSession, Step
from logproof.verify.policy import load
from verify.tiny import Tiny

fake, prompts, rules = judging.fake, judging.prompts, judging.rules


def test_calibrate_writes_a_policy(
    fake: FakeServer, prompts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.json"
    args = (
        "calibrate",
        prompts,
        "--engine",
        fake.url,
        "-o",
        out,
        "-k",
        10,
        "--nonce",
        "c",
        "--concurrencies",
        "2",
        *SHORT,
    )
    assert invoke(*args) == 0
    text = capfd.readouterr().out
    assert "an exact pair" in text
    assert "held-out sequences" in text
    made = load(out.read_bytes())
    assert made.floor.repeat == 0.0
    assert made.model_id == "tiny"
    path = captured(fake, prompts)
    assert invoke("verify", path, "--engine", fake.url, "--policy", out) == 0
    assert invoke(*args[: -len(SHORT) - 1], "1,none", *SHORT) == 3


def test_calibrate_takes_honest_artifacts_of_other_machines(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Records that differ a little from the trusted engine make a policy that is not exact, and are counted."""
    rules, other = prompts.with_name("p.json"), prompts.with_name("o.jsonl")
    args = ("calibrate", prompts, "--engine", fake.url, "-o", rules, "-k", 10, "--nonce", "c", "--concurrencies", 2,
            "--no-greedy", "--eos-id", 0, *SHORT)  # fmt: skip
    assert invoke(*args) == 0
    alone = load(rules.read_bytes())
    with FakeServer() as machine:
        start(machine, Tiny(jitter=0.02))
        captured(machine, prompts, "o.jsonl")
    assert invoke(*args, "--honest", other) == 0
    made = load(rules.read_bytes())
    assert (alone.exact is None, made.exact is None) == (False, True)
    assert made.rates.tokens > alone.rates.tokens
    bare = [
        seal(
            msgspec.structs.replace(
                a, tokens=TokenIds(prompt_ids=None, completion_ids=None), positions=None, logprobs=None
            )
        )
        for a in artifact_files.read(other)
    ]
    artifact_files.write(other, bare)
    assert invoke(*args, "--honest", other) == 4
    assert "the record holds no ids or no logprobs" in capfd.readouterr().err


def test_calibrate_counts_an_honest_record_once_and_mixes_no_models(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules, other, second = (prompts.with_name(n) for n in ("p.json", "o.jsonl", "q.jsonl"))
    base = ("-k", 10, "--eos-id", 0, *SHORT)
    args = ("calibrate", prompts, "--engine", fake.url, "-o", rules, "--nonce", "c", "--concurrencies", 2, *base,
            "--identity", f"weights_digest={'a' * 64}", "--honest", other)  # fmt: skip
    with FakeServer() as machine:
        start(machine, Tiny(jitter=0.02))
        captured(machine, prompts, "o.jsonl")
        assert invoke(*args) == 0
        single = load(rules.read_bytes())
        capfd.readouterr()
        assert invoke(*args, "--honest", other) == 0
        assert "14 of 28 honest records are repeats" in capfd.readouterr().err
        double = load(rules.read_bytes())
        assert (double.scores, double.rates.tokens) == (single.scores, single.rates.tokens)
        told = ("--identity", f"weights_digest={'b' * 64}")
        assert invoke("capture", prompts, "-m", machine.url, "-o", second, "--nonce", "n", *base, *told) == 0
    assert invoke(*args, "--honest", second) == 3
    assert f"weights_digest {'a' * 64} and {'b' * 64}" in capfd.readouterr().err


def test_calibrate_says_when_there_are_too_few_scores(
    prompts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as noisy:
        start(noisy, Tiny(jitter=0.05))
        code = invoke(
            "calibrate", prompts, "--engine", noisy.url, "-o", tmp_path / "p.json", "-k", 10, "--no-greedy",
            "--nonce", "c", "--concurrencies", "1", *SHORT,
        )  # fmt: skip
    assert code == 0
    assert "add prompts" in capfd.readouterr().err


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
    assert (told["changes"], told["previous_is_stale"]) == ([], False)
    record.write_text(json.dumps({**json.loads(record.read_text()), "fingerprint": "another"}))
    assert invoke(*base, *CLAIM, "--previous", record, "--nonce", "n") == 0
    assert "the earlier audit is stale" in capfd.readouterr().out
    assert invoke(*base, "--previous", prompts) == 3
    with FakeServer() as fraud:
        start(fraud, Tiny(writer=2))
        assert invoke("audit", fraud.url, *base[2:], *CLAIM, "--previous", record, "--nonce", "n") == 1
    assert "changed: the audit was valid, is invalid" in capfd.readouterr().out


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
