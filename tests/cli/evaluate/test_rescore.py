from __future__ import annotations

from pathlib import Path

import pytest

from eval.toy import ToyEngine
from logproof.cli.main import run
from logproof.errors import ServerFault


def test_report_and_rescore_need_no_engine(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "gsm8k_gen", "arc_easy_ppl", "-m", url, "--limit", "2", "--shots", "0", "--out", "run"]) == 0
    assert run(["rescore", "run", "--name", "digits", "--extract", r"\d+"]) == 0
    assert "exact_custom" in capsys.readouterr().out
    assert run(["rescore", "run", "--name", "digits", "--extract", r"\d+"]) == 0
    assert run(["rescore", "run", "--extract", "("]) == 3
    capsys.readouterr()
    assert run(["report", "run", "--html", "page.html"]) == 0
    assert "exact_custom" not in capsys.readouterr().out
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()
    assert run(["report", "run", "--scorer", "digits", "--json"]) == 0
    assert "exact_custom" in capsys.readouterr().out
    assert run(["report", "run", "--scorer", "nope"]) == 3
    assert "there are: digits" in capsys.readouterr().err
    assert run(["report", "nowhere"]) == 3


def test_rescore_says_what_it_scored_and_where_there_is_nothing_to_rescore(
    url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logproof.http.retry.backoff", lambda attempt, policy, roll: 0.0)
    assert run(["eval", "arc_easy_ppl", "--limit", "2", "-m", url, "--out", "run"]) == 0
    assert run(["rescore", "run", "--extract", r"\d+"]) == 0
    told = capsys.readouterr().err
    assert "2 samples scored again as rescored" in told
    assert "nothing to rescore with --extract: no task of run generates text" in told
    assert run(["rescore", "run"]) == 0
    assert "nothing to rescore" not in capsys.readouterr().err
    engine.behave = lambda body: ServerFault(500, "fell over")
    assert run(["eval", "arc_easy_ppl", "--limit", "1", "-m", url, "--out", "failed"]) == 1
    run(["rescore", "failed"])
    assert "nothing to rescore: no sample of failed is answered" in capsys.readouterr().err
