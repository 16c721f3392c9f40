from __future__ import annotations

import pytest

from eval.toy import ToyEngine
from logproof.cli.main import run


def test_suspect_runs_say_so(url: str, engine: ToyEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.generate = lambda prompt: " "
    assert run(["eval", "gsm8k_gen", "-m", url, "--limit", "4", "--shots", "0", "--out", "run"]) == 2
    assert "suspect: gsm8k_gen: the text is empty in 4 of 4" in capsys.readouterr().out
