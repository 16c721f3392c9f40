"""Options of `eval` that say how a run goes, not what it asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.toy import ToyEngine, serving
from logproof.cli.main import run
from logproof.eval.run.canary import PROMPT


def test_two_endpoints_auto_pace_log_and_port_in_one_run(url: str, engine: ToyEngine) -> None:
    second = ToyEngine()
    with serving(second) as other:
        args = ["eval", "gsm8k_gen", "--shots", "0", "--limit", "6", "-m", url, "-m", other.url, "--out", "run"]
        assert run([*args, "-c", "auto", "--log", "events.jsonl", "--metrics", "0"]) == 0
        urls = [url, other.url]
    assert all(any(body["prompt"] != PROMPT for body in e.seen) for e in (engine, second))
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    assert events[0]["endpoints"] == urls
    assert events[0]["concurrency"] == "auto"
    assert sum(e["event"] == "sample" for e in events) == 6


def test_the_canary_sings_unless_told_not_to(url: str, engine: ToyEngine) -> None:
    assert run(["eval", "gsm8k_gen", "--limit", "2", "-m", url, "--out", "a"]) == 0
    assert json.loads(Path("a/report.json").read_text())["canary"]["drift"] == 0.0
    engine.seen.clear()
    assert run(["eval", "gsm8k_gen", "--limit", "2", "-m", url, "--out", "b", "--no-canary"]) == 0
    assert json.loads(Path("b/report.json").read_text())["canary"] is None
    assert all(body["prompt"] != PROMPT for body in engine.seen)


@pytest.mark.parametrize("width", ["0", "-1", "many", "1.5"])
def test_a_concurrency_that_is_none_is_refused(url: str, width: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "gsm8k_gen", "-m", url, f"--concurrency={width}"]) == 3
    assert "a number of at least 1, or auto" in capsys.readouterr().err


def test_an_endpoint_named_twice_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "gsm8k_gen", "-m", url, "-m", f"{url}/v1"]) == 3
    assert "named twice" in capsys.readouterr().err


def test_a_log_in_no_directory_ends_before_the_first_sample(
    url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", "gsm8k_gen", "--limit", "1", "-m", url, "--log", "none/events"]) == 5
    assert "cannot write the log" in capsys.readouterr().err
    assert engine.seen == []
