from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.evaluate.invoking import invoke


def test_runs_lists_what_is_there(stored_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (stored_run.parent / "bad").mkdir()
    (stored_run.parent / "bad" / "run.sqlite").write_text("x")
    text = invoke("runs", stored_run.parent).output + capfd.readouterr().out
    assert "[one]" in text
    assert "2 of 29" in text
    assert "unreadable" in text
    assert "partial" in text


def test_runs_says_when_there_are_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = invoke("runs", tmp_path)
    assert "no runs in" in result.output + capfd.readouterr().err


def test_runs_as_json(stored_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (info,) = json.loads(invoke("runs", stored_run.parent, "--json").output + capfd.readouterr().out)
    assert info["state"] == "partial"
    assert info["summary"]["calls_failed"] == 1
