from __future__ import annotations

import os
import signal

import pytest

from cli.engines.engine_calls import states
from logproof.launch import EngineSpec, StartFailed, running_engine, start_engine
from logproof.launch.running_engines import read_records


def test_list_tells_the_states_apart(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "serve-forks")
    with running_engine(EngineSpec(model=checkpoint, name="one")) as engine:
        os.kill(engine.pid, signal.SIGSTOP)
        monkeypatch.setattr("logproof.launch.health.ANSWER_SECONDS", 0.1)
        assert states() == {"one": "no answer"}
        os.kill(engine.pid, signal.SIGKILL)
        os.waitpid(engine.pid, 0)
        assert states() == {"one": "dead, workers left"}
        os.kill(engine.members[1].pid, signal.SIGKILL)
        while states() != {}:
            assert set(states().values()) <= {"dead", "dead, workers left"}


def test_list_shows_an_engine_that_another_process_starts(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "unwell")
    seen: list[dict[str, str]] = []
    with pytest.raises(StartFailed):
        start_engine(
            EngineSpec(model=checkpoint, ready_seconds=0.3),
            lambda _, line: seen.append(states()) if read_records() else None,
        )
    assert {"my-model_1": "starting"} in seen
