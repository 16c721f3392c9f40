"""Files on disk that earlier code wrote are read as they were: tests/formats/README.md says how each was made."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.calling import Cli
from client import served
from eval.toy import ToyTokenizer
from fakes.server import FakeServer
from logproof.proxy.captured_exchange import CapturedExchange
from logproof.proxy.sink import wire_line
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact, artifact_digest, encode_artifact
from logproof.verify.artifact.signing import check_signature
from logproof.verify.verdict import Verdict
from logproof.verify.verdict import encode as encode_verdict

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text())
LINES = list(EXPECTED["artifacts"])
EVAL = ("hellaswag_ppl", "mmlu_clp", "gsm8k_gen", "--limit", "3", "--shots", "1", "--max-tokens", "12", "-c", "2")
MODEL_ROOT = "/root/.cache/logproof/models/smollm2"
BUILD = "vllm-0.32.0-64793b13"
LATER_CHECKS = ("prompt",)
SIGNER = "3ee2a8a7283cb2fd728943daa127ef09e483071a8b4bc699ba4522f09b14cfde"
RESCORED = "53d13d72ff17901a0c3746296c8a022521a97d4cc1cd55a1b28ddc79101734a9"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The stored run, in a directory that may be written."""
    return Path(shutil.copytree(FILES / "run", tmp_path / "run"))


def stored(name: str) -> Any:
    return json.loads((FILES / name).read_text())


def outcomes(verdicts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a verdict says in figures; its words may be put better, and checks that were not there then are left out."""
    return [
        {
            "status": verdict["status"],
            "level": verdict["level"],
            "findings": {
                f["test"]: [f[key] for key in ("outcome", "reason", "n", "statistic")]
                for f in verdict["findings"]
                if f["test"] not in LATER_CHECKS
            },
        }
        for verdict in verdicts
    ]


def verify_offline(cli: Cli, name: str) -> list[dict[str, Any]]:
    assert cli("verify", FILES / name, "--offline", "--json") == 2
    return outcomes(json.loads(cli.out))


def without_digest(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key != "digest"} for entry in entries]


@pytest.mark.parametrize("name", LINES)
def test_artifacts_keep_their_bytes_and_digests(name: str) -> None:
    artifacts = list(artifact_files.read(FILES / name))
    assert [artifact_digest(a) for a in artifacts] == [entry["digest"] for entry in EXPECTED["artifacts"][name]]
    assert b"".join(encode_artifact(a) + b"\n" for a in artifacts) == (FILES / name).read_bytes()


@pytest.mark.parametrize("name", LINES)
def test_artifacts_get_the_outcome_that_they_got(cli: Cli, name: str) -> None:
    """Checks that came later stand beside those that there were, and none of them calls these records false."""
    entries, got = without_digest(EXPECTED["artifacts"][name]), verify_offline(cli, name)
    for then, now in zip(entries, got, strict=True):
        later = now["findings"].keys() - then["findings"].keys()
        assert {now["findings"].pop(test)[0] for test in later} <= {"pass", "note", "unknown"}
    assert got == entries


def test_the_artifacts_are_of_every_kind() -> None:
    def read(name: str) -> list[Artifact]:
        return list(artifact_files.read(FILES / name))

    assert {(a.logprobs.mode, a.logprobs.format) for a in read("sampled.jsonl")} == {("raw", "float32")}
    assert {(a.logprobs.format, a.sampling.temperature) for a in read("greedy_fixed.jsonl")} == {("fixed", 0.0)}
    assert {a.logprobs.mode for a in read("grammar.jsonl")} == {"constrained"}
    assert [(a.choice.n, a.choice.index) for a in read("two_choices.jsonl")] == [(2, 0), (2, 1), (1, 0)]
    assert {check_signature(a) for a in read("signed.jsonl")} == {SIGNER}


def test_a_file_of_packed_rows_is_refused_in_one_line(cli: Cli) -> None:
    """Parquet rows held their positions packed in one binary column, a form that is no longer read."""
    pytest.importorskip("pyarrow")
    line = cli.fails(3, "verify", FILES / "packed.parquet", "--offline")
    assert "packed.parquet holds its columns packed, a form that is no longer read" in line
    assert "hint: " in line


def test_a_policy_without_requirements_is_told_in_one_line(cli: Cli) -> None:
    assert cli("verify", FILES / "sampled.jsonl", "--policy", FILES / "policy.json", "--offline") == 3
    line, hint = cli.err.splitlines()
    assert line.endswith("policy.json: the policy is of an older format")
    assert hint.strip() == "hint: run logproof calibrate again"


def test_verdicts_keep_their_bytes() -> None:
    lines = (FILES / "verdicts.jsonl").read_bytes().splitlines()
    verdicts = [msgspec.json.decode(line, type=Verdict) for line in lines]
    assert [encode_verdict(v) for v in verdicts] == lines
    assert {v.status for v in verdicts} == {"valid", "inconclusive"}


def test_audits_are_judged_together_as_they_were(cli: Cli) -> None:
    assert cli("audits", FILES / "audit_honest.json", FILES / "audit_dishonest.json", "--json") == 1
    assert json.loads(cli.out) == stored("audits.json")


@pytest.mark.parametrize(
    ("name", "scorer"), [("report.json", ()), ("report_first_number.json", ("--scorer", "first_number"))]
)
def test_a_run_reports_the_same_figures(cli: Cli, run: Path, name: str, scorer: tuple[str, ...]) -> None:
    cli("report", run, *scorer, "--json")
    assert json.loads(cli.out) == stored(name)


def test_a_run_is_exported_as_it_was(cli: Cli, run: Path, tmp_path: Path) -> None:
    def exported(*options: str) -> bytes:
        assert cli("export", run, tmp_path / "out.jsonl", "--replace", *options) == 0, cli.err
        return (tmp_path / "out.jsonl").read_bytes()

    assert exported() == (FILES / "samples.jsonl").read_bytes()
    assert exported("--table", "calls") == (FILES / "calls.jsonl").read_bytes()
    wide, scores = exported("--table", "calls", "--columns"), exported("--scorer", RESCORED)
    assert hashlib.sha256(wide).hexdigest() == EXPECTED["calls_wide_sha256"]
    assert hashlib.sha256(scores).hexdigest() == EXPECTED["scores_sha256"]


def test_a_run_is_resumed_as_complete(cli: Cli, run: Path, fake: FakeServer) -> None:
    """The endpoint is another, its model the same: nothing is sent, and the figures are those of the store."""
    serve_the_model_of_the_run(fake)
    assert cli("eval", *EVAL, "--model", fake.url, "--out", run, "--resume", "--json") == 2, cli.err
    assert "0 samples run, 9 stored before" in cli.err
    assert json.loads(cli.out)["tasks"] == stored("report.json")["tasks"]
    assert served.sent(fake) == []


def serve_the_model_of_the_run(fake: FakeServer) -> None:
    """What the probe reads is what the run's engine said; words are tokens."""
    served.vllm(fake)
    entry = {"id": "smollm2", "object": "model", "root": MODEL_ROOT, "max_model_len": 2048}
    fake.on("/v1/models", {"object": "list", "data": [entry]})
    fake.on(
        served.ROUTE,
        lambda seen: replace(reply := served.answer(seen), json=reply.json | {"system_fingerprint": BUILD}),
    )
    words = ToyTokenizer()
    fake.on("/tokenize", lambda seen: {"tokens": [words.of(piece) for piece in words.pieces(seen.json()["prompt"])]})
    fake.on("/detokenize", lambda seen: {"prompt": "".join(words.words[i] for i in seen.json()["tokens"])})


def test_a_line_of_a_wire_log_is_written_as_it_was() -> None:
    lines = (FILES / "wire.jsonl").read_bytes().splitlines()
    assert len(lines) == 2
    for line in lines:
        told = json.loads(line)
        assert list(json.loads(wire_line(exchange(told)))) == list(told)
        assert wire_line(exchange(told)) == line


def exchange(line: dict[str, Any]) -> CapturedExchange:
    """The exchange that a wire line tells of."""
    forwarded = msgspec.json.encode(line["request"])
    reply = line["response_text"].encode() if "response_text" in line else msgspec.json.encode(line["response"])
    return CapturedExchange(
        path=line["path"],
        started_at=line["started_at"],
        sent=forwarded if line["sent"] is None else msgspec.json.encode(line["sent"]),
        forwarded=forwarded,
        sent_sha256="",
        forwarded_sha256=line["request_sha256"],
        status=line["status"],
        content_type=line["headers"]["content-type"],
        reply=reply,
        reply_sha256=line["response_sha256"],
        served_sha256=line["served_sha256"],
        streamed="response_text" in line,
        complete=line["complete"],
        added=tuple(line["asked"]),
        width=None,
        seconds=line["seconds"],
        first_byte_seconds=0.0,
    )
