"""`capture`, as a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.verify import judging
from cli.verify.judging import SHORT, captured, invoke, start
from fakes.server import FakeServer, Reply
from logproof.verify.artifact import artifact_files
from verify.tiny import ROUTE, Tiny

fake, prompts, rules = judging.fake, judging.prompts, judging.rules


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
