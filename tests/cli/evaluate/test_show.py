from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.evaluate.invoking import invoke
from logproof.errors import StoreError, UsageError
from store.making import key_of


def test_show_prints_provenance_counts_and_failures(stored_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = invoke("show", stored_run).output + capfd.readouterr().out
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


def test_show_as_json(stored_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    view = json.loads(invoke("show", stored_run, "--json").output + capfd.readouterr().out)
    assert view["provenance"]["model"]["name"] == "smollm2"
    assert len(view["failures"]) == 24


def test_show_one_sample_by_the_beginning_of_its_key(stored_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = invoke("show", stored_run, "--sample", key_of(0)[:10]).output + capfd.readouterr().out
    for piece in (key_of(0), "id-0", "acc_norm", "option 0", "question 0", "columns ids, logprobs, texts"):
        assert piece in text
    text = invoke("show", stored_run, "--sample", key_of(2)).output + capfd.readouterr().out
    assert "failed ServerFault: HTTP 503: [busy]" in text
    view = json.loads(invoke("show", stored_run, "--sample", key_of(0), "--json").output + capfd.readouterr().out)
    assert view["calls"][0]["columns"]["logprobs"][:2] == [None, "-inf"]


def test_a_key_that_names_no_single_sample_is_refused(stored_run: Path) -> None:
    for prefix, count in (("zzz", 0), ("", 26)):
        with pytest.raises(UsageError, match=f"{count} samples"):
            invoke("show", stored_run, "--sample", prefix)


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for command in (("show", tmp_path / "x"), ("export", tmp_path / "x", "-")):
        with pytest.raises(StoreError, match="no run in"):
            invoke(*command)
