from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from logproof.cli.evaluate import runs as commands
from logproof.errors import StoreError, UsageError
from logproof.store.records import Scorer
from logproof.store.run_store import RunStore
from store.making import call, key_of, provenance, sample

app = typer.Typer()
for command in (commands.runs, commands.show, commands.export):
    app.command()(command)


def invoke(*args: object) -> Result:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path / "out" / "[one]", provenance(planned={"arc": 26, "mmlu": 3})) as store:
        for number in range(2):
            store.put_call(call(number))
            store.put_sample(sample(number))
        store.put_call(call(2, status="failed", error_type="ServerFault", error="HTTP 503: [busy]", columns={}))
        for number in range(2, 26):
            store.put_sample(sample(number, status="failed", reason="HTTP 503: [busy]", scores={}))
        store.put_scorer(Scorer(digest="d" * 64, name="flexible"))
    return tmp_path / "out" / "[one]"


def test_runs_lists_what_is_there(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run.parent / "bad").mkdir()
    (run.parent / "bad" / "run.sqlite").write_text("x")
    text = invoke("runs", run.parent).output + capfd.readouterr().out
    assert "[one]" in text
    assert "2 of 29" in text
    assert "unreadable" in text
    assert "partial" in text


def test_runs_says_when_there_are_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = invoke("runs", tmp_path)
    assert "no runs in" in result.output + capfd.readouterr().err


def test_runs_as_json(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (info,) = json.loads(invoke("runs", run.parent, "--json").output + capfd.readouterr().out)
    assert info["state"] == "partial"
    assert info["summary"]["calls_failed"] == 1


def test_show_prints_provenance_counts_and_failures(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = invoke("show", run).output + capfd.readouterr().out
    for piece in (
        "smollm2",
        '"limit":50',
        "http://one:8000/v1",
        "fp-a (3 calls)",
        "2 ok, 1 failed",
        "flexible",
        "mmlu",
    ):
        assert piece in text
    assert text.count("HTTP 503: [busy]") == 20


def test_show_as_json(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    view = json.loads(invoke("show", run, "--json").output + capfd.readouterr().out)
    assert view["provenance"]["model"]["name"] == "smollm2"
    assert len(view["failures"]) == 24


def test_show_one_sample_by_the_beginning_of_its_key(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = invoke("show", run, "--sample", key_of(0)[:10]).output + capfd.readouterr().out
    for piece in (key_of(0), "id-0", "acc_norm", "option 0", "question 0", "columns ids, logprobs, texts"):
        assert piece in text
    text = invoke("show", run, "--sample", key_of(2)).output + capfd.readouterr().out
    assert "failed ServerFault: HTTP 503: [busy]" in text
    view = json.loads(invoke("show", run, "--sample", key_of(0), "--json").output + capfd.readouterr().out)
    assert view["calls"][0]["columns"]["logprobs"][:2] == [None, "-inf"]


def test_a_key_that_names_no_single_sample_is_refused(run: Path) -> None:
    for prefix, count in (("zzz", 0), ("", 26)):
        with pytest.raises(UsageError, match=f"{count} samples"):
            invoke("show", run, "--sample", prefix)


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for command in (("show", tmp_path / "x"), ("export", tmp_path / "x", "-")):
        with pytest.raises(StoreError, match="no run in"):
            invoke(*command)


def test_export_writes_a_file_or_standard_output(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = invoke("export", run, tmp_path / "s.jsonl", "--task", "arc")
    assert "26 samples written" in result.output + capfd.readouterr().err
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 26
    lines = invoke("export", run, "-", "--table", "calls", "--columns").output.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["ok", "ok", "failed"]
    with pytest.raises(StoreError, match="exists"):
        invoke("export", run, tmp_path / "s.jsonl")
    invoke("export", run, tmp_path / "s.jsonl", "--replace")


def test_export_takes_the_form_of_the_name(run: Path, tmp_path: Path) -> None:
    for name, begins in (("s.parquet", b"PAR1"), ("s.jsonl", b"{"), ("s", b"{")):
        invoke("export", run, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
    invoke("export", run, tmp_path / "t.parquet", "--format", "jsonl")
    assert (tmp_path / "t.parquet").read_bytes().startswith(b"{")


def test_parquet_does_not_go_to_standard_output(run: Path) -> None:
    with pytest.raises(UsageError, match="standard output"):
        invoke("export", run, "-", "--format", "parquet")
