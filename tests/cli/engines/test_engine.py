from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from logproof.cli.engines.engine import app
from logproof.errors import UsageError
from logproof.launch import EngineSpec, StartFailed, running_engine, start_engine
from logproof.launch.processes import is_alive
from logproof.launch.running_engines import recorded


def _run(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def _states() -> dict[str, str]:
    return {row["name"]: row["state"] for row in json.loads(_run("list", "--json").stdout)}


def test_start_list_logs_stop(checkpoint: str) -> None:
    started = _run("start", checkpoint, "--name", "mine", "--served-name", "tiny", "--", "--some-flag", "3")
    assert started.exit_code == 0, started.output
    assert "mine: tiny on vllm 9.9.9 at http://127.0.0.1:" in started.stdout
    assert "logproof engine stop mine" in started.stderr
    assert started.stderr.startswith("starting vllm, 0 s: vllm 9.9.9")
    assert _states() == {"mine": "ready"}
    assert "vllm 9.9.9" in _run("list").stdout
    assert "--some-flag 3" in _run("logs", "mine").stdout
    assert len(_run("logs", "mine", "-n", "1").stdout.splitlines()) == 1
    assert _run("stop", "mine").stdout == "stopped mine\n"
    assert _states() == {}
    assert "no engine was started" in _run("list").stderr
    assert "--some-flag 3" in _run("logs", "mine").stdout


def test_a_model_that_is_not_there_is_refused_before_anything_is_asked_or_told() -> None:
    failed = _run("start", "/no/such/model")
    assert isinstance(failed.exception, UsageError)
    assert failed.exception.message == "/no/such/model is no folder"
    assert failed.stderr == ""


def test_flags_alone_leave_the_model_at_its_default() -> None:
    started = _run("start", "--plugin", "--", "--some-flag")
    assert "smollm2: smollm2 on vllm 9.9.9 + logproof-vllm 7.7.7" in started.stdout
    assert "--some-flag" in _run("logs", "smollm2").stdout


def test_a_failed_start_shows_the_end_of_the_log(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "die")
    failed = _run("start", checkpoint)
    assert isinstance(failed.exception, StartFailed)
    assert "RuntimeError: engine core failed, see above" in failed.stderr


@pytest.mark.parametrize(("numbers", "code"), [([signal.SIGINT] * 2, 130), ([signal.SIGTERM], 143)])
def test_a_signal_to_the_command_itself_leaves_nothing_running(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, numbers: list[signal.Signals], code: int
) -> None:
    monkeypatch.setenv("FAKE", "mute")
    command = [sys.executable, "-c", "from logproof.__main__ import main; main()", "engine", "start", checkpoint]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not (engines := recorded()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    for number in numbers:
        process.send_signal(number)
    _, told = process.communicate(timeout=120)
    assert process.returncode == code, told
    assert "Traceback" not in told
    assert not is_alive(engines[0].leader)
    assert recorded() == []


def test_following_a_log_ends_with_its_engine(checkpoint: str) -> None:
    engine = start_engine(EngineSpec(model=checkpoint))
    os.kill(engine.pid, signal.SIGKILL)
    os.waitpid(engine.pid, 0)
    assert "fake engine" in _run("logs", engine.name, "-f").stdout


@pytest.mark.parametrize("name", ["absent", "../absent"])
def test_logs_of_an_unknown_engine_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "state/logproof/absent.log").parent.mkdir(parents=True)
    (tmp_path / "state/logproof/absent.log").touch()
    assert isinstance(_run("logs", name).exception, UsageError)


def test_stop_takes_names_or_all_but_not_both(checkpoint: str) -> None:
    assert isinstance(_run("stop").exception, UsageError)
    assert isinstance(_run("stop", "--all", "x").exception, UsageError)
    assert isinstance(_run("stop", "x").exception, UsageError)
    for _ in range(2):
        start_engine(EngineSpec(model=checkpoint))
    assert _run("stop", "--all").stdout == "stopped my-model_1\nstopped my-model_1-2\n"
    assert recorded() == []


def test_list_tells_the_states_apart(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "serve-forks")
    with running_engine(EngineSpec(model=checkpoint, name="one")) as engine:
        os.kill(engine.pid, signal.SIGSTOP)
        monkeypatch.setattr("logproof.launch.health.ANSWER_SECONDS", 0.1)
        assert _states() == {"one": "no answer"}
        os.kill(engine.pid, signal.SIGKILL)
        os.waitpid(engine.pid, 0)
        assert _states() == {"one": "dead, workers left"}
        os.kill(engine.members[1].pid, signal.SIGKILL)
        while _states() != {}:
            assert set(_states().values()) <= {"dead", "dead, workers left"}


def test_list_shows_an_engine_that_another_process_starts(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "unwell")
    seen: list[dict[str, str]] = []
    with pytest.raises(StartFailed):
        start_engine(
            EngineSpec(model=checkpoint, ready_seconds=0.3),
            lambda _, line: seen.append(_states()) if recorded() else None,
        )
    assert {"my-model_1": "starting"} in seen
