"""`demo` on the toy engine: three runs, their comparison and a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from logproof.cli.main import run


def test_the_demo_runs_compares_and_writes_a_page(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "-m", url, "--out", "demo", "--limit", "2"]) == 0
    shown = capsys.readouterr()
    assert "parity of vllm_native and openai_completions: they agree" in shown.out
    assert "demo: all as it should be" in shown.out
    assert "[run control] arc_easy_ppl" in shown.err
    assert {p.name for p in Path("demo").iterdir()} == {"a", "b", "control", "parity.json", "tokens.html"}
    assert run(["demo", "-m", url, "--out", "demo", "--limit", "2"]) == 0, "what an earlier demo wrote makes room"


def test_a_demo_leaves_other_files_alone(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("demo").mkdir()
    Path("demo", "notes.txt").write_text("mine")
    assert run(["demo", "-m", url, "--out", "demo"]) == 5
    assert "holds other files (notes.txt)" in capsys.readouterr().err
    assert Path("demo", "notes.txt").read_text() == "mine"
