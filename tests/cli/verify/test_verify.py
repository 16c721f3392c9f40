from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.verify import judging
from cli.verify.judging import SHORT, captured, invoke, start
from fakes.server import FakeServer, Reply
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import seal
from verify.tiny import ROUTE, Tiny

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


def test_artifacts_that_are_there_are_not_replaced_unasked(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts)
    before, asked = path.read_bytes(), len(fake.seen)
    capfd.readouterr()
    assert invoke("capture", prompts, "-m", fake.url, "-o", path, *SHORT) == 3
    assert "add --replace" in capfd.readouterr().err
    audit = ("audit", fake.url, "--prompts", prompts, "--trusted", fake.url, "--policy", rules, "--keep", path)
    assert invoke(*audit) == 3
    assert (path.read_bytes(), len(fake.seen)) == (before, asked)
    assert invoke("capture", prompts, "-m", fake.url, "-o", path, "--replace", "--nonce", "other", *SHORT) == 0
    assert path.read_bytes() != before


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


def test_replay_shows_differences(fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = captured(fake, prompts, "a.parquet")
    capfd.readouterr()
    assert invoke("replay", path, "--engine", fake.url, "--repeats", 2) == 0
    assert "repeats within 0.00e+00 nat" in capfd.readouterr().out
    assert invoke("replay", path, "--engine", fake.url, "--json") == 0
    rows = json.loads(capfd.readouterr().out)
    assert {r["method"] for r in rows} == {"prefill"}
    assert all(r["ids_equal"] and r["largest_difference"] < 1e-5 for r in rows)
    assert invoke("replay", path, "--engine", fake.url, "--method", "decode") == 2
    assert "not replayed: engine_cannot_replay" in capfd.readouterr().out
    assert invoke("replay", path, "--engine", fake.url, "--method", "guess") == 3


def test_replay_of_what_cannot_be_replayed(fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = captured(fake, prompts)
    lines = path.read_text().splitlines()
    broken = json.loads(lines[0])
    broken["seal"] = {"digest": "00"}
    path.write_text(json.dumps(broken) + "\n")
    assert invoke("replay", path, "--engine", fake.url) == 2
    assert "not replayed: seal.digest" in capfd.readouterr().out


def test_a_capture_that_partly_fails(fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine = start(fake, Tiny())

    def short(body: dict[str, Any], reply: dict[str, Any]) -> Any:
        if body["prompt"] == "prompt 3":
            reply["choices"][0]["token_ids"] = []
        return reply

    engine.edit = short
    out = prompts.with_name("a.jsonl")
    assert invoke("capture", prompts, "-m", fake.url, "-o", out, *SHORT) == 1
    text = capfd.readouterr().err
    assert "4: bad reply" in text
    assert "13 of 14 prompts recorded" in text


def test_a_capture_that_is_refused_half_way_keeps_what_it_has(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine, out = start(fake, Tiny()), prompts.with_name("a.jsonl")
    engine.edit = lambda body, reply: Reply(401, json={}) if body["prompt"] == "prompt 5" else reply
    assert invoke("capture", prompts, "-m", fake.url, "-o", out, "--concurrency", 1, *SHORT) == 4
    text = capfd.readouterr().err
    assert "5 of 14 prompts recorded" in text
    assert "key" in text
    assert len(list(artifact_files.read(out))) == 5


def test_a_prompt_that_cannot_be_sent_stops_a_capture_before_it_starts(
    fake: FakeServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "bad.jsonl", tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b", "output": {"regex": "(((("}}\n')
    assert invoke("capture", file, "-m", fake.url, "-o", out, *SHORT) == 3
    assert f"{file}:2: " in capfd.readouterr().err
    assert not any(seen.path == ROUTE and "seed" in seen.json() and seen.json()["seed"] for seen in fake.seen)
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("revision=a", "revision=a"), "gives revision twice"),
        ((f"weights_digest={'a' * 64}", f"weights_digest={'b' * 64}"), "gives weights_digest twice"),
        (("revision=",), "revision= is empty"),
        (("weights_digest=",), "weights_digest= is empty"),
    ],
)
def test_an_identity_that_says_nothing_clear_is_refused(
    prompts: Path, capfd: pytest.CaptureFixture[str], given: tuple[str, ...], words: str
) -> None:
    told = [part for one in given for part in ("--identity", one)]
    assert invoke("capture", prompts, "-m", "http://127.0.0.1:9", "-o", prompts.with_name("a"), *told, *SHORT) == 3
    assert words in capfd.readouterr().err


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


def test_replays_side_by_side_and_by_name(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts)
    capfd.readouterr()
    assert invoke("verify", path, "--engine", fake.url, "--policy", rules, "--concurrency", 4, "--repeats", 2) == 0
    capfd.readouterr()
    assert invoke("replay", path, "--engine", fake.url, "--concurrency", 4, "--json") == 0
    rows = json.loads(capfd.readouterr().out)
    assert [r["artifact"] for r in rows] == [a.artifact_id for a in artifact_files.read(path)]
    assert {r["missing"] for r in rows} == {0}
    assert invoke("replay", path, "--engine", fake.url, "--score-missing") == 0
    assert invoke("verify", path, "--engine", fake.url, "--score-missing", "--concurrency", 2) == 3
    assert "goes one by one" in capfd.readouterr().err


def test_signed_captures_name_their_key(fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key, out = prompts.with_name("key"), prompts.with_name("a.jsonl")
    args = ("capture", prompts, "-m", fake.url, "-o", out, "--replace", "--sign-key", key, *SHORT)
    for data in (bytes(range(32)), bytes(range(32)).hex().encode() + b"\n"):
        key.write_bytes(data)
        assert invoke(*args) == 0
        capfd.readouterr()
        assert invoke("verify", out, "--offline") == 2
        assert "signed by 03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8" in capfd.readouterr().out
    for data in (b"", b"zz", bytes(31), b"ab" * 31):
        key.write_bytes(data)
        assert invoke(*args) == 3
        assert "no ed25519 private key" in capfd.readouterr().err
