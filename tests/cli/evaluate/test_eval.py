"""`eval`, `rescore` and `report` as a user types them, against the toy engine behind real HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from cli.calling import KEY
from eval.toy import ToyEngine, serving
from logproof.cli.main import run
from logproof.eval.run.runner import Runner
from logproof.store.run_store import RunStore


def test_eval_runs_stores_and_reports(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["eval", "arc_easy_ppl", "gsm8k_gen", "-m", url, "--limit", "4", "--shots", "1", "--out", "run"]
    assert run(args) == 0
    shown = capsys.readouterr()
    assert "acc_char" in shown.out
    assert "exact_strict" in shown.out
    assert "8 samples run, 0 stored before, 0 failed" in shown.err
    assert "gsm8k_gen: 4 of 4" in shown.err
    assert "begins with token" in shown.err
    assert "'Question'" in shown.err
    assert "20 requests (0 failed, 0 retries)" in shown.err
    assert (tmp_path / "run" / "report.json").is_file()
    assert KEY not in shown.out + shown.err
    assert all(KEY.encode() not in f.read_bytes() for f in (tmp_path / "run").iterdir())


def test_a_second_run_needs_another_directory_or_resume(
    url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["eval", "gsm8k_gen", "-m", url, "--limit", "2", "--shots", "0", "--out", "run"]
    assert run(args) == 0
    assert run(args) == 5
    assert "holds a run already" in capsys.readouterr().err
    engine.seen.clear()
    assert run([*args, "--resume", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["tasks"][0]["scored"] == 2
    assert "0 samples run, 2 stored before" in shown.err
    assert engine.seen == []
    assert run([*args, "--resume", "--temperature", "0.5"]) == 3
    assert "temperature: stored 0.0, given 0.5" in capsys.readouterr().err


def test_failures_give_exit_code_1_and_their_reasons(
    url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.behave = lambda body: {"choices": []} if "12 trays" in body["prompt"] else None
    args = ["eval", "gsm8k_gen", "-m", url, "--limit", "4", "--shots", "0", "-c", "1"]
    assert run([*args, "--out", "a"]) == 1
    assert "gsm8k_gen: 1 failed: BadReply" in capsys.readouterr().out
    assert run([*args, "--out", "b", "--fail-fast"]) == 1
    shown = capsys.readouterr()
    assert "ended early: 1 samples failed" in shown.err
    assert "--resume goes on" in shown.err
    assert run([*args, "--out", "c", "--max-failures", "1"]) == 1
    assert "4 samples run" in capsys.readouterr().err


def test_an_interrupted_run_says_how_to_go_on(
    url: str, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Runner._worker

    async def stopped(self: Any, number: int, work: Any) -> None:
        self.stop("stopped by SIGINT", interrupted=True)
        await original(self, number, work)

    monkeypatch.setattr(Runner, "_worker", stopped)
    assert run(["eval", "gsm8k_gen", "-m", url, "--limit", "2", "--out", "run"]) == 130
    assert "--resume goes on" in capsys.readouterr().err
    assert run(["parity", "vllm_native", "openai_completions", "gsm8k_gen", "-m", url, "--out", "p"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_run_that_is_cut_short_is_no_traceback(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def cancelled(*args: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr("logproof.eval.run.run.execute", cancelled)
    assert run(["eval", "gsm8k_gen", "-m", url, "--out", "run"]) == 130
    told = capsys.readouterr().err
    assert "interrupted; what was stored is kept" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nope"], 3, "unknown task 'nope'"),
        ([], 3, "no task is named"),
        (["gsm8k_gen", "--limit", "0.001"], 3, "leaves no row"),
        (["gsm8k_gen", "--data", "missing"], 3, "no data file missing"),
        (["gsm8k_gen", "--repeats", "2"], 3, "repeats at temperature 0"),
        (["gsm8k_gen", "--shots", "-1"], 3, "shots is -1"),
        (["arc_easy_ppl", "-d", "openai_chat"], 3, "input_scoring"),
        (["gsm8k_gen", "--model-name", "other"], 3, "does not serve 'other'"),
        (["gsm8k_gen", "--config", "run.yaml", "--seed", "0"], 3, "TASK, --model, --seed cannot stand beside --config"),
    ],
)
def test_wrong_input_is_one_line_before_any_request(
    url: str, engine: ToyEngine, args: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", *args, "-m", url]) == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert engine.seen == []


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nope"], 3, "unknown task 'nope'"),
        (["gsm8k_gen", "--limit", "many"], 3, "limit 'many' is no number"),
        (["gsm8k_gen", "--data", "missing"], 3, "no data file missing"),
        (["gsm8k_gen", "--out", "taken"], 5, "taken holds a run already"),
        (["gsm8k_gen", "-m", "localhost:1"], 3, "has no scheme"),
        (["--config", "none.yaml"], 3, "cannot read none.yaml: no such file"),
    ],
)
def test_what_shows_without_an_endpoint_is_refused_before_one_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "run.sqlite").write_bytes(b"SQLite")
    with serving(ToyEngine()) as fake:
        where = [] if "--config" in args else ["-m", fake.url]
        assert run(["eval", *args, *where]) == code
        assert fake.seen == []
    assert said in capsys.readouterr().err


def test_a_run_file_is_checked_for_all_its_models_before_one_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(ToyEngine()) as fake:
        models = f'[{{label: one, url: "{fake.url}"}}, {{label: two, url: "127.0.0.1:1"}}]'
        (tmp_path / "run.yaml").write_text(f"out: runs\ntasks: [gsm8k_gen]\nmodels: {models}\n")
        assert run(["eval", "--config", "run.yaml"]) == 3
        assert fake.seen == []
    assert "has no scheme" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--log", "no/such/dir/log", 5), ("--metrics", "PORT", 3)])
def test_a_log_or_port_that_cannot_be_used_leaves_no_run_behind(
    url: str, tmp_path: Path, option: tuple[str, str, int]
) -> None:
    name, value, code = option
    with socket.create_server(("127.0.0.1", 0)) as taken:
        value = value.replace("PORT", str(taken.getsockname()[1]))
        assert run(["eval", "gsm8k_gen", "-m", url, "--limit", "1", "--out", "run", name, value]) == code
    assert not (tmp_path / "run").exists()
    assert run(["eval", "gsm8k_gen", "-m", url, "--limit", "1", "--shots", "0", "--out", "run"]) == 0


def test_a_run_file_hands_all_its_options_on(url: str, tmp_path: Path) -> None:
    text = f"""
out: runs
tasks: [gsm8k_gen]
settings: {{limit: 2, shots: 0}}
models: [{{label: one, url: ["{url}"], timeout: 30}}]
concurrency: auto
canary: false
log: events.jsonl
metrics: 0
fail_fast: true
"""
    (tmp_path / "run.yaml").write_text(text)
    assert run(["eval", "--config", "run.yaml"]) == 0
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert (events[0]["concurrency"], events[0]["max_failures"]) == ("auto", 0)
    assert "canary" not in {e["event"] for e in events}
    assert run(["eval", "--config", "run.yaml"]) == 5
    (tmp_path / "run.yaml").write_text(text + "resume: true\n")
    assert run(["eval", "--config", "run.yaml"]) == 0


def test_a_bad_row_is_named(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gsm8k.test.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n{"question": "q"}\n')
    assert run(["eval", "gsm8k_gen", "-m", url, "--data", str(tmp_path)]) == 3
    assert "gsm8k.test.jsonl:2: Object missing required field `answer`" in capsys.readouterr().err


def test_a_run_file_runs_every_model(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"""
out: runs
tasks: [mmlu_clp, {{name: gsm8k_gen, settings: {{shots: 0}}}}]
settings: {{limit: 2, shots: 1}}
models:
  - {{label: native, url: "{url}", dialect: vllm_native}}
  - {{label: echo, url: "{url}", dialect: openai_completions}}
"""
    (tmp_path / "run.yaml").write_text(text)
    assert run(["eval", "--config", "run.yaml"]) == 0
    shown = capsys.readouterr()
    assert "toy over vllm_native" in shown.out
    assert "toy over openai_completions" in shown.out
    assert (tmp_path / "runs" / "echo" / "report.json").is_file()
    assert run(["eval", "--config", "run.yaml", "--resume"]) == 0
    assert "0 samples run" in capsys.readouterr().err


def test_a_run_file_ends_at_an_interrupt_and_keeps_the_worst_code(
    url: str, engine: ToyEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = "".join(f'  - {{label: {n}, url: "{url}", tokenizer: null}}\n' for n in ("one", "two"))
    text = f"out: runs\ntasks: [gsm8k_gen]\ncanary: false\nsettings: {{limit: 1, shots: 0}}\nmodels:\n{models}"
    (tmp_path / "run.yaml").write_text(text)
    engine.behave = lambda body: {"choices": []} if len(engine.seen) == 1 else None
    assert run(["eval", "--config", "run.yaml"]) == 1
    monkeypatch.setattr("logproof.cli.evaluate.eval.print_result", lambda result, as_json: 130)
    assert run(["eval", "--config", "run.yaml", "--resume"]) == 130


def test_the_store_of_a_failed_server_still_reports(
    url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.behave = lambda body: {"choices": []}
    assert run(["eval", "gsm8k_gen", "-m", url, "--limit", "2", "--shots", "0", "--out", "run"]) == 1
    with RunStore.read(Path("run")) as store:
        assert len(store.failed()) == 2
