from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cli.engines.engine_calls import run_engine
from logproof.errors import UsageError
from logproof.launch import EngineSpec, start_engine


def test_following_a_log_ends_with_its_engine(checkpoint: str) -> None:
    engine = start_engine(EngineSpec(model=checkpoint))
    os.kill(engine.pid, signal.SIGKILL)
    os.waitpid(engine.pid, 0)
    assert "fake engine" in run_engine("logs", engine.name, "-f").stdout


@pytest.mark.parametrize("name", ["absent", "../absent"])
def test_logs_of_an_unknown_engine_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "state/logproof/absent.log").parent.mkdir(parents=True)
    (tmp_path / "state/logproof/absent.log").touch()
    assert isinstance(run_engine("logs", name).exception, UsageError)
