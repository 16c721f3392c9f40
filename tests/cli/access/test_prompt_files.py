"""Prompts and schemas out of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.calling import Cli
from logproof.cli.access import prompt_files

PROMPT = "The capital of France is"


def test_files_that_are_no_text_or_too_large(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in cli.fails(3, "score", "--file", tmp_path / "bin", "-m", "http://h")
    (tmp_path / "bad.json").write_text("[1]")
    assert "no JSON object" in cli.fails(3, "generate", "x", "--json-schema", tmp_path / "bad.json", "-m", "http://h")
    monkeypatch.setattr(prompt_files, "MAX_PROMPT_BYTES", 1)
    (tmp_path / "big").write_text("abc")
    assert "is longer than" in cli.fails(3, "score", "--file", tmp_path / "big", "-m", "http://h")
