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
from logproof.verify.artifact.artifact import Artifact, Signature, seal
from logproof.verify.artifact.signing import read_key, sign
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


def with_broken_rows(path: Path) -> int:
    """Put rows that are no artifacts among those of a Parquet file; returns how many rows it has."""
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    table = parquet.read_table(path)
    rows = table.to_pylist()
    broken = [{**rows[0], "record": "{"}, {**rows[0], "completion_ids": [1, None]}]
    parquet.write_table(arrow.Table.from_pylist([rows[0], *broken, *rows[1:]], schema=table.schema), path)
    return len(rows) + len(broken)


def test_a_broken_line_is_one_verdict_and_hides_no_other(
    fake: FakeServer, prompts: Path, rules: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts)
    lines = path.read_bytes().splitlines()
    other = json.loads(lines[1])
    bad = [
        b"no json",
        json.dumps({**other, "schema": "logproof-artifact/9"}).encode(),
        b"[]",
        b"\xff\xfe",
        b" " * 200_000,
    ]
    wrong_type = json.dumps({**other, "tokens": {**other["tokens"], "prompt_ids": ["a"]}}).encode()
    monkeypatch.setattr("logproof.verify.artifact.artifact.MAX_BYTES", 100_000)
    monkeypatch.setattr("logproof.verify.artifact.artifact_files.MAX_BYTES", 100_000)
    bad[-1] += b"x"
    path.write_bytes(b"\n".join([lines[0], b"", *bad, wrong_type, *lines[1:]]) + b"\n")
    capfd.readouterr()
    for where in (("--engine", fake.url, "--policy", rules), ("--offline",)):
        assert invoke("verify", path, *where, "--json") == 1
        verdicts = json.loads(capfd.readouterr().out)
        assert [v["status"] for v in verdicts[1:7]] == ["invalid"] * 6
        for number, verdict in enumerate(verdicts[1:7], start=3):
            assert f"{path}:{number}: artifact" in verdict["reasons"][0]
            assert (verdict["findings"][0]["test"], verdict["findings"][0]["reason"]) == ("S0a", "unreadable")
        good = {v["status"] for v in (verdicts[0], *verdicts[7:])}
        assert (len(verdicts), good) == (20, {"valid" if "--policy" in where else "inconclusive"})
    assert invoke("verify", path, "--offline") == 1
    assert "it is no artifact" in capfd.readouterr().out
    assert invoke("replay", path, "--engine", fake.url) == 3
    assert f"{path}:3: artifact is malformed" in capfd.readouterr().err


def test_a_broken_row_is_one_verdict_and_hides_no_other(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts, "a.parquet")
    count = with_broken_rows(path)
    capfd.readouterr()
    assert invoke("verify", path, "--engine", fake.url, "--policy", rules, "--json") == 1
    verdicts = json.loads(capfd.readouterr().out)
    assert [v["status"] for v in verdicts] == ["valid", "invalid", "invalid", *["valid"] * (count - 3)]
    assert f"{path} row 2: artifact is malformed" in verdicts[1]["reasons"][0]
    assert f"{path} row 3: its columns do not fit" in verdicts[2]["reasons"][0]
    assert invoke("replay", path, "--engine", fake.url) == 3
    assert f"{path} row 2: " in capfd.readouterr().err


def test_a_required_key_is_not_stripped_swapped_or_foreign(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, own, foreign = (prompts.with_name(name) for name in ("a.jsonl", "own.key", "foreign.key"))
    own.write_bytes(bytes(range(32)))
    first = next(iter(artifact_files.read(captured(fake, prompts))))
    mine, theirs = sign(first, read_key(own)), sign(first, bytes(32))
    assert mine.seal is not None
    assert theirs.seal is not None
    assert mine.seal.signature is not None
    key = mine.seal.signature.key_id
    swapped = msgspec.structs.replace(
        mine, seal=msgspec.structs.replace(theirs.seal, signature=replace_key(theirs, key))
    )
    artifact_files.write(path, [mine, first, theirs, swapped, seal(msgspec.structs.replace(mine, artifact_id="b"))])
    where = ("--engine", fake.url, "--policy", rules)
    capfd.readouterr()
    assert invoke("verify", path, *where, "--require-key", key, "--json") == 1
    verdicts = json.loads(capfd.readouterr().out)
    assert [v["status"] for v in verdicts] == ["valid", *["invalid"] * 4]
    assert [v["findings"][0]["reason"] for v in verdicts] == [None, "key", "key", "hash_mismatch", "key"]
    assert "is not there, and a signature is required" in verdicts[1]["reasons"][0]
    assert "which is no key that is required" in verdicts[2]["reasons"][0]
    artifact_files.write(path, [mine])
    for form in (bytes.fromhex(key), key.encode() + b"\n", key.upper().encode()):
        foreign.write_bytes(form)
        assert invoke("verify", path, *where, "--require-key", "ab" * 32, "--require-key", foreign) == 0
    assert invoke("verify", path, "--offline", "--require-key", "ab" * 32) == 1
    foreign.write_bytes(b"no key")
    for bad in ("ab", foreign, prompts.with_name("none")):
        assert invoke("verify", path, "--offline", "--require-key", bad) == 3


def replace_key(made: Artifact, key: str) -> Signature:
    assert made.seal is not None
    assert made.seal.signature is not None
    return msgspec.structs.replace(made.seal.signature, key_id=key)


def test_a_signature_that_cannot_be_checked_hides_no_verdict(
    fake: FakeServer, prompts: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without `cryptography` nobody is told that a record is signed, and a required key is a fault of the caller's."""
    path = captured(fake, prompts)
    first = next(iter(artifact_files.read(path)))
    artifact_files.write(path, [sign(first, bytes(32)), first])

    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("logproof.verify.artifact.signing.importlib.import_module", refuse)
    capfd.readouterr()
    assert invoke("verify", path, "--offline") == 2
    assert "its signature is not checked" in " ".join(capfd.readouterr().out.split())
    assert invoke("verify", path, "--offline", "--require-key", "ab" * 32) == 3
    assert "needs the package `cryptography`" in capfd.readouterr().err


def test_a_default_and_another_name_count_as_the_verifier_states_them(
    fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts)
    (first, *_) = artifact_files.read(path)
    assert isinstance(first.request.body, dict)
    body = {k: v for k, v in first.request.body.items() if k != "top_p"} | {"model": "served"}
    sampling = msgspec.structs.replace(first.sampling, sources={**first.sampling.sources, "top_p": "engine"})
    request = msgspec.structs.replace(first.request, body=body)
    artifact_files.write(path, [seal(msgspec.structs.replace(first, request=request, sampling=sampling))])

    def outcome(*options: str) -> str:
        capfd.readouterr()
        assert invoke("verify", path, "--offline", "--json", *options) == 2
        (verdict,) = json.loads(capfd.readouterr().out)
        return next(str(f["outcome"]) for f in verdict["findings"] if f["test"] == "request")

    assert outcome() == outcome("--served-as", "served") == outcome("--default", "top_p=1") == "unknown"
    assert outcome("--served-as", "served", "--default", "top_p=0.9") == "unknown"
    assert outcome("--served-as", "served", "--default", "top_p=1") == "pass"
    assert outcome("--served-as", "served", "--generation-config", "vllm") == "pass"
    assert invoke("verify", path, "--offline", "--default", "top=1") == 3
