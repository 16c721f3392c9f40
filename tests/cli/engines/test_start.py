from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from cli.engines.engine_calls import run_engine, states
from logproof.errors import UsageError
from logproof.launch import StartFailed
from logproof.launch.processes import is_alive
from logproof.launch.running_engines import read_records


def test_start_list_logs_stop(checkpoint: str) -> None:
    started = run_engine("start", checkpoint, "--name", "mine", "--served-name", "tiny", "--", "--some-flag", "3")
    assert started.exit_code == 0, started.output
    assert "mine: tiny on vllm 9.9.9 at http://127.0.0.1:" in started.stdout
    assert "logproof engine stop mine" in started.stderr
    assert started.stderr.startswith("starting vllm, 0 s: vllm 9.9.9")
    assert states() == {"mine": "ready"}
    assert "vllm 9.9.9" in run_engine("list").stdout
    assert "--some-flag 3" in run_engine("logs", "mine").stdout
    assert len(run_engine("logs", "mine", "-n", "1").stdout.splitlines()) == 1
    assert run_engine("stop", "mine").stdout == "stopped mine\n"
    assert states() == {}
    assert "no engine was started" in run_engine("list").stderr
    assert "--some-flag 3" in run_engine("logs", "mine").stdout


def test_a_model_that_is_not_there_is_refused_before_anything_is_asked_or_told() -> None:
    failed = run_engine("start", "/no/such/model")
    assert isinstance(failed.exception, UsageError)
    assert failed.exception.message == "/no/such/model is no folder"
    assert failed.stderr == ""


def test_flags_alone_leave_the_model_at_its_default() -> None:
    started = run_engine("start", "--plugin", "--", "--some-flag")
    assert "smollm2: smollm2 on vllm 9.9.9 + logproof-vllm 7.7.7" in started.stdout
    assert "--some-flag" in run_engine("logs", "smollm2").stdout


def test_a_failed_start_shows_the_end_of_the_log(checkpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE", "die")
    failed = run_engine("start", checkpoint)
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
    while not (engines := read_records()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    for number in numbers:
        process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert not is_alive(engines[0].leader)
    assert read_records() == []
