"""What /conftest.py promises of an interrupted pytest, on one of its own with a fake engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logproof.launch.processes import is_alive
from logproof.launch.spec import Mark

ROOT = Path(__file__).parents[2]

SUITE = """
import os, signal, time
import pytest
from logproof.launch import EngineSpec, running_engine
from logproof.launch.places import engines_dir
from logproof.launch.running_engines import read_records

@pytest.fixture(scope="session")
def engine():
    with running_engine(EngineSpec(model={model!r}, name={name!r})) as engine:
        yield engine

def test_is_interrupted(engine):
    print("records", engines_dir(), [e.name for e in read_records()], flush=True)
    print("member", *(f"{{m.pid}}/{{m.started}}" for m in engine.members), flush=True)
    os.kill(os.getpid(), {number})
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_pytest_leaves_no_engine_and_touches_no_record_of_the_user(
    tmp_path: Path, packages: Path, checkpoint: str, number: signal.Signals
) -> None:
    name = f"interrupted-{os.getpid()}-{number.value}"
    (tmp_path / "test_suite.py").write_text(SUITE.format(model=checkpoint, name=name, number=number.value))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "conftest", "-p", "no:cacheprovider", "test_suite.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{packages}:{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout + done.stderr
    records = next(line for line in done.stdout.splitlines() if "records" in line)
    assert str(ROOT / ".test-state" / "logproof" / "engines") in records
    assert name in records
    marks = next(line for line in done.stdout.splitlines() if line.startswith("member")).split()[1:]
    members = [Mark(int(pid), started) for pid, _, started in (m.partition("/") for m in marks)]
    assert members
    assert not any(is_alive(m) for m in members)
    assert not (ROOT / ".test-state" / "logproof" / "engines" / f"{name}.json").exists()
