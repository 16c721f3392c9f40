from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.evaluate.invoking import invoke
from logproof.errors import StoreError, UsageError


def test_export_writes_a_file_or_standard_output(
    stored_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = invoke("export", stored_run, tmp_path / "s.jsonl", "--task", "arc")
    assert "26 samples written" in result.output + capfd.readouterr().err
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 26
    lines = invoke("export", stored_run, "-", "--table", "calls", "--columns").output.splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["ok", "ok", "failed"]
    with pytest.raises(StoreError, match="exists"):
        invoke("export", stored_run, tmp_path / "s.jsonl")
    invoke("export", stored_run, tmp_path / "s.jsonl", "--replace")


def test_export_takes_the_form_of_the_name(stored_run: Path, tmp_path: Path) -> None:
    for name, begins in (("s.parquet", b"PAR1"), ("s.jsonl", b"{"), ("s", b"{")):
        invoke("export", stored_run, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
    invoke("export", stored_run, tmp_path / "t.parquet", "--format", "jsonl")
    assert (tmp_path / "t.parquet").read_bytes().startswith(b"{")


def test_parquet_does_not_go_to_standard_output(stored_run: Path) -> None:
    with pytest.raises(UsageError, match="standard output"):
        invoke("export", stored_run, "-", "--format", "parquet")
