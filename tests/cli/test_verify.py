from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.cli.main import run
from logproof.verify import artifact as art
from logproof.verify import files
from logproof.verify import policy as policies
from logproof.verify.session import Audit, Session, Step
from verify.builders import policy
from verify.tiny import ROUTE, TINY_VOCAB, Tiny, serve

FIELDS = ("min_p", "repetition_penalty", "ignore_eos", "min_tokens", "stop_token_ids", "top_k")


def start(fake: FakeServer, engine: Tiny) -> Tiny:
    """A tiny engine with the routes that the probe asks."""
    serve(fake, engine)
    fake.on("/version", {"version": "0.32.0"})
    fake.on("/v1/models", {"object": "list", "data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": 4096}]})
    schema = {"properties": {name: {} for name in FIELDS}}
    fake.on(
        "/openapi.json",
        {
            "paths": {
                ROUTE: {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}},
                "/tokenize": {},
                "/detokenize": {},
            }
        },
    )
    fake.on("/detokenize", lambda seen: {"prompt": "<" + "".join(map(str, seen.json()["tokens"])) + ">"})

    def limits(seen: Seen) -> Reply | dict[str, Any]:
        body = seen.json()
        if body.get("logprobs") == 1_000_000:
            return Reply(400, json={"error": {"message": "max allowed: 40"}})
        if body.get("logit_bias"):
            return Reply(400, json={"error": {"message": f"Vocabulary size: {TINY_VOCAB}"}})
        return engine.answer(seen)

    fake.on(ROUTE, limits)
    return engine


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        start(server, Tiny())
        yield server


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": f"prompt {i}"}) + "\n" for i in range(14)))
    return path


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_bytes(policies.dump(policy(k=10)))
    return path


CLAIM = ("--dtype", "float32", "--runner", "v1", "--device", "cpu")
SHORT = ("--max-tokens", "20", *CLAIM)


def invoke(*args: object) -> int:
    return run([str(a) for a in args])


def captured(fake: FakeServer, prompts: Path, name: str = "a.jsonl") -> Path:
    path = prompts.with_name(name)
    assert invoke("capture", prompts, "-m", fake.url, "-o", path, "-k", 10, "--eos-id", 0, "--nonce", "n", *SHORT) == 0
    return path


def test_capture_then_verify(
    fake: FakeServer, prompts: Path, rules: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts)
    assert len(list(files.read(path))) == 14
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
    made = policies.load(out.read_bytes())
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
    alone = policies.load(rules.read_bytes())
    with FakeServer() as machine:
        start(machine, Tiny(jitter=0.02))
        captured(machine, prompts, "o.jsonl")
    assert invoke(*args, "--honest", other) == 0
    made = policies.load(rules.read_bytes())
    assert (alone.exact is None, made.exact is None) == (False, True)
    assert made.rates.tokens > alone.rates.tokens
    bare = [
        art.seal(
            msgspec.structs.replace(
                a, tokens=art.TokenIds(prompt_ids=None, completion_ids=None), positions=None, logprobs=None
            )
        )
        for a in files.read(other)
    ]
    files.write(other, bare)
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
        single = policies.load(rules.read_bytes())
        capfd.readouterr()
        assert invoke(*args, "--honest", other) == 0
        assert "14 of 28 honest records are repeats" in capfd.readouterr().err
        double = policies.load(rules.read_bytes())
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
    assert len(list(files.read(kept))) == 14
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
    state = Session(level=0.01, steps=tuple(steps))
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
    (first, *_) = files.read(path)
    model = msgspec.structs.replace(first.claim.model, id="x[/b]\x1b[2J")
    files.write(
        path, [art.seal(msgspec.structs.replace(first, claim=msgspec.structs.replace(first.claim, model=model)))]
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
        model = next(iter(files.read(other))).claim.model
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
    assert [r["artifact"] for r in rows] == [a.artifact_id for a in files.read(path)]
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
