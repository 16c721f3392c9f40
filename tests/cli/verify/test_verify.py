from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from cli.verify import judging
from cli.verify.judging import SHORT, captured, invoke, start
from fakes.server import FakeServer
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import seal
from verify.tiny import Tiny

fake, prompts, rules = judging.fake, judging.prompts, judging.rules


def test_capture_then_verify(
    fake: FakeServer, prompts: Path, rules: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts)
    assert len(list(artifact_files.read(path))) == 14
    out = tmp_path / "v.jsonl"
    assert invoke("verify", path, "--engine", fake.url, "--policy", rules, "-o", out) == 0
    text = capfd.readouterr().out
    assert "valid" in text
    assert "Not shown: on what hardware" in text
    assert [json.loads(line)["status"] for line in out.read_text().splitlines()] == ["valid"] * 14


def test_verify_exit_codes(fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = captured(fake, prompts)
    assert invoke("verify", path, "--offline") == 2
    assert invoke("verify", path, "--engine", fake.url) == 2
    with FakeServer() as other:
        start(other, Tiny(weights=1))
        capfd.readouterr()
        assert invoke("verify", path, "--engine", other.url, "--policy", rules, "--json") == 1
    found = json.loads(capfd.readouterr().out)
    assert {v["status"] for v in found} == {"invalid"}
    assert invoke("verify", path, "--policy", path) == 3
    assert invoke("verify", path.with_name("none.jsonl")) == 3
    path.write_text("\n")
    assert invoke("verify", path, "--offline") == 3
    assert "there is no artifact" in capfd.readouterr().err


def test_foreign_words_are_shown_not_obeyed(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A record's own words reach the table: here a model named like a closing tag, with a terminal's escape."""
    path = captured(fake, prompts)
    (first, *_) = artifact_files.read(path)
    model = msgspec.structs.replace(first.claim.model, id="x[/b]\x1b[2J")
    artifact_files.write(
        path, [seal(msgspec.structs.replace(first, claim=msgspec.structs.replace(first.claim, model=model)))]
    )
    assert invoke("verify", path, "--engine", fake.url, "--policy", rules) == 2
    text = capfd.readouterr().out
    assert "x[/b]\\x1b[2J is claimed" in text
    assert "\x1b" not in text


def test_identity_is_claimed_and_held_against_the_policy(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A digest is given as such or taken of a file; a policy of other weights does not speak about the record."""
    tokenizer, rules, other = (prompts.with_name(n) for n in ("tokenizer.json", "p.json", "o.jsonl"))
    tokenizer.write_bytes(b"{}")
    told = ("--identity", "revision=main", "--identity", f"tokenizer_digest={tokenizer}")
    base = (*told, "-k", 10, "--eos-id", 0, *SHORT)
    made = ("calibrate", prompts, "--engine", fake.url, "-o", rules, "--concurrencies", 2, "--nonce", "c", *base)
    assert invoke(*made, "--identity", f"weights_digest={'a' * 64}") == 0
    for digest, code in (("a" * 64, 0), ("b" * 64, 2)):
        captured_ = ("capture", prompts, "-m", fake.url, "-o", other, "--replace", "--nonce", "n", *base)
        assert invoke(*captured_, "--identity", f"weights_digest={digest}") == 0
        model = next(iter(artifact_files.read(other))).claim.model
        assert (model.revision, model.weights_digest) == ("main", digest)
        assert model.tokenizer_digest == hashlib.sha256(b"{}").hexdigest()
        assert invoke("verify", other, "--engine", fake.url, "--policy", rules) == code
    assert "weights digest bbb" in capfd.readouterr().out
    assert invoke(*made, "--identity", f"weights_digest={'a' * 64}", "--pin-model") == 0
    assert invoke("verify", other, "--engine", fake.url, "--policy", rules) == 1
    for bad, code in (("name=x", 3), ("revision", 3), (f"weights_digest={tokenizer}.none", 3)):
        assert invoke("capture", prompts, "-m", fake.url, "-o", other, "--identity", bad, *SHORT) == code
