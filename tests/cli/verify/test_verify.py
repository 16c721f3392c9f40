from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cli.verify import judging
from cli.verify.judging import SHORT, captured, invoke, requests_of, start
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
    out, asked = tmp_path / "v.jsonl", requests_of(path)
    assert invoke("verify", path, "--engine", fake.url, "--policy", rules, "-o", out, "--requests", asked) == 0
    text = capfd.readouterr().out
    assert "valid" in text
    assert "Not shown: on what hardware" in text
    assert [json.loads(line)["status"] for line in out.read_text().splitlines()] == ["valid"] * 14


def told(capfd: pytest.CaptureFixture[str]) -> set[tuple[str, str, str]]:
    """(status, level, first line) of the verdicts that were printed as JSON."""
    return {(v["status"], v["level"], v["headline"]) for v in json.loads(capfd.readouterr().out)}


def test_a_record_alone_is_not_believed_about_its_request(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The body is what the executor says was requested; without the requester's own nothing is above distribution."""
    path = captured(fake, prompts)
    verify = ("verify", path, "--engine", fake.url, "--policy", rules, "--json")
    assert invoke(*verify) == 2
    first = "Not shown: that anybody requested this; the request is only the record's word."
    ((status, level, line),) = told(capfd)
    assert (status, level) == ("inconclusive", "distribution")
    assert line.startswith(first)
    assert invoke(*verify, "--requests", requests_of(path)) == 0
    assert {one[:2] for one in told(capfd)} == {("valid", "replayed")}


def test_a_record_of_another_text_than_was_requested(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The executor ran another prompt than was sent, writes that one into the record's body, and seals it."""
    path, asked = captured(fake, prompts), requests_of(prompts.with_name("a.jsonl"))
    made = list(artifact_files.read(path))
    bodies = [{**one.request.body, "prompt": "another text"} for one in made if isinstance(one.request.body, dict)]
    cheats = [
        seal(msgspec.structs.replace(one, request=msgspec.structs.replace(one.request, body=body)))
        for one, body in zip(made, bodies, strict=True)
    ]
    artifact_files.write(path, cheats)
    verify = ("verify", path, "--engine", fake.url, "--policy", rules, "--json")
    for requests in ((), ("--requests", asked)):
        assert invoke(*verify, *requests) == 1
        assert told(capfd) == {("invalid", "none", "Shown: the recorded prompt is not the one that was requested.")}
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "another text"}]}
    request = msgspec.structs.replace(made[0].request, path="/v1/chat/completions", body=chat)
    artifact_files.write(path, [seal(msgspec.structs.replace(made[0], request=request))])
    assert invoke(*verify, "--requests", asked) == 1


def test_requests_count_as_signed_by_the_requesters_key(
    fake: FakeServer, prompts: Path, rules: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key, other = (Ed25519PrivateKey.generate() for _ in range(2))
    secret, public = tmp_path / "key", tmp_path / "key.pub"
    secret.write_bytes(key.private_bytes_raw())
    public.write_text(key.public_key().public_bytes_raw().hex() + "\n")
    path, asked = captured(fake, prompts), tmp_path / "signed.requests"
    sign = ("--sign-key", secret, "--requests", asked, "-k", 10, "--eos-id", 0, "--nonce", "n", *SHORT)
    assert invoke("capture", prompts, "-m", fake.url, "-o", path, "--replace", *sign) == 0
    verify = ("verify", path, "--engine", fake.url, "--policy", rules, "--requests", asked, "--json")
    for name in (public, public.read_text().strip()):
        assert invoke(*verify, "--requester-key", name) == 0
    capfd.readouterr()
    assert invoke(*verify, "--requester-key", other.public_key().public_bytes_raw().hex()) == 2
    assert {level for _, level, _ in told(capfd)} == {"distribution"}
    edited = asked.read_text().replace("prompt 3", "prompt 4")
    asked.write_text(edited)
    assert invoke(*verify, "--requester-key", public) == 2
    assert invoke("verify", path, "--offline", "--requester-key", public) == 3
    assert invoke(*verify, "--requester-key", "abc") == 3
    asked.write_text(edited + "{}\n")
    capfd.readouterr()
    assert invoke(*verify) == 3
    assert f"{asked}:15: no request" in capfd.readouterr().err


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
    asked = requests_of(other)
    tokenizer.write_bytes(b"{}")
    told = ("--identity", "revision=main", "--identity", f"tokenizer_digest={tokenizer}")
    base = (*told, "-k", 10, "--eos-id", 0, *SHORT)
    made = ("calibrate", prompts, "--engine", fake.url, "-o", rules, "--concurrencies", 2, "--nonce", "c", *base)
    assert invoke(*made, "--identity", f"weights_digest={'a' * 64}") == 0
    for digest, code in (("a" * 64, 0), ("b" * 64, 2)):
        captured_ = ("capture", prompts, "-m", fake.url, "-o", other, "--replace", "--nonce", "n", *base)
        captured_ = (*captured_, "--requests", asked)
        assert invoke(*captured_, "--identity", f"weights_digest={digest}") == 0
        model = next(iter(artifact_files.read(other))).claim.model
        assert (model.revision, model.weights_digest) == ("main", digest)
        assert model.tokenizer_digest == hashlib.sha256(b"{}").hexdigest()
        assert invoke("verify", other, "--engine", fake.url, "--policy", rules, "--requests", asked) == code
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
    asked = ("--requests", requests_of(path))
    for where in (("--engine", fake.url, "--policy", rules, *asked), ("--offline",)):
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
    asked = ("--requests", requests_of(path))
    capfd.readouterr()
    assert invoke("verify", path, "--engine", fake.url, "--policy", rules, *asked, "--json") == 1
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
    where = ("--engine", fake.url, "--policy", rules, "--requests", requests_of(path))
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
