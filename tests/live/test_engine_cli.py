from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logproof.launch import stop_engine
from logproof.launch.processes import is_alive
from logproof.launch.running_engines import find, read_records

SECONDS = 900
"""Limit of one command; it ends a hang, nothing is measured by it."""


@pytest.fixture(autouse=True)
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield
    for engine in read_records():
        stop_engine(engine)


def _logproof(*args: str) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("logproof")
    return subprocess.run(
        [str(script), *args], capture_output=True, text=True, timeout=SECONDS, check=False, env=dict(os.environ)
    )


def test_a_real_engine_is_started_listed_read_and_stopped() -> None:
    started = _logproof(
        "engine", "start", "--dtype", "float32", "--plugin", "--name", "real", "--", "--max-model-len", "256"
    )
    assert started.returncode == 0, started.stderr
    engine = find("real")
    assert f"real: smollm2 on {engine.package} {engine.version} + logproof-vllm 0.1.0 at {engine.url}" in started.stdout
    assert len(engine.members) > 1, "vLLM runs its engine core in a process of its own"
    (row,) = json.loads(_logproof("engine", "list", "--json").stdout)
    assert (row["name"], row["state"], row["pid"]) == ("real", "ready", engine.pid)
    assert "GET /health" in _logproof("engine", "logs", "real").stdout
    probed = _logproof("probe", engine.url)
    assert probed.returncode == 0, probed.stderr
    assert engine.version in probed.stdout
    assert "256" in probed.stdout
    assert "enforced_replay, logprobs_mode" in probed.stdout
    assert _logproof("engine", "stop", "real").stdout == "stopped real\n"
    assert not any(is_alive(member) for member in engine.members)


def test_a_real_engine_that_dies_shows_why() -> None:
    failed = _logproof("engine", "start", "--", "--max-model-len", "99999999")
    assert failed.returncode == 4
    assert "ended while it started" in failed.stderr
    assert "max_model_len" in failed.stderr
    assert "Traceback" not in failed.stderr.splitlines()[-2]
    assert read_records() == []
