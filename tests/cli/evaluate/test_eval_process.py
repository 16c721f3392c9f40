"""`logproof eval` as a process of its own: signals, another run on the same store, a disk that is full."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval.toy import ToyEngine, serving
from fakes.server import Reply
from logproof.store.reader import StoreReader

ROWS = 60
MAIN = "from logproof.__main__ import main; main()"
IMPATIENT = f"""
from logproof.client import outage
from logproof.http import retry
outage.POLL_S, retry.backoff = 0.1, lambda attempt, policy, roll: 0.05
{MAIN}
"""
"""The command with short waits: between sends of one request, and between questions whether an engine is back."""


@pytest.fixture
def started(engine: ToyEngine, tmp_path: Path) -> Iterator[Any]:
    """Starts a run of 60 rows into `run`, with more options; whatever is left of it is killed."""
    rows = [{"question": f"Count to {' '.join(str(i))}.", "answer": "#### 7"} for i in range(ROWS)]
    (tmp_path / "gsm8k.test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    begun: list[subprocess.Popen[str]] = []

    with serving(engine) as fake:

        def start(*more: str, url: str = fake.url, program: str = MAIN, **given: Any) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", program, "eval", "gsm8k_gen"]
            command += ["-m", url, "--data", str(tmp_path), "--shots", "0", "--out", str(tmp_path / "run"), *more]
            begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **given))
            return begun[-1]

        yield start
        for process in begun:
            process.kill()
            process.communicate()


def under_way(engine: ToyEngine, process: subprocess.Popen[str], requests: int = 6) -> None:
    """Wait until a run has sent some requests."""
    while len(engine.seen) < requests:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def stored(directory: Path) -> int:
    with StoreReader(directory / "run") as store:
        return len(store.done())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_a_run_with_its_report_and_resume_finishes_it(
    started: Any, engine: ToyEngine, tmp_path: Path, number: signal.Signals
) -> None:
    engine.behave = lambda body: Reply(json=engine.answer(body), delay=0.1)
    process = started("-c", "2")
    under_way(engine, process)
    process.send_signal(number)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"ended early: stopped by {number.name}" in printed
    assert (tmp_path / "run" / "report.json").is_file()
    before = stored(tmp_path)
    assert 0 < before < ROWS
    engine.behave = lambda body: None
    process = started("--resume")
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 0
    assert f"{ROWS - before} samples run, {before} stored before, 0 failed" in printed


def test_a_second_signal_ends_at_once(started: Any, engine: ToyEngine, tmp_path: Path) -> None:
    engine.behave = lambda body: Reply(hang=True) if len(engine.seen) > 8 else None
    process = started("-c", "2", "--no-canary")
    under_way(engine, process, 10)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)  # two signals of one kind at the same instant may arrive as one
    assert process.poll() is None, "it waits for what is in flight"
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted; what was stored is kept" in printed
    assert "Traceback" not in printed
    assert stored(tmp_path) == 8


def test_two_runs_on_one_store_are_told_apart_and_the_first_goes_on(
    started: Any, engine: ToyEngine, tmp_path: Path
) -> None:
    released = threading.Event()

    async def held(body: Any) -> Any:
        while not released.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.01)
        return engine.answer(body)

    engine.behave = lambda body: held(body) if len(engine.seen) > 5 else None
    first = started("-c", "2", "--no-canary")
    under_way(engine, first)
    refusals = {"holds a run already": started(), f"another run (process {first.pid}) writes": started("--resume")}
    for reason, second in refusals.items():
        _, printed = second.communicate(timeout=120)
        assert second.returncode == 5
        assert reason in printed
    released.set()
    first.communicate(timeout=120)
    assert first.returncode == 0
    assert stored(tmp_path) == ROWS


def test_a_run_waits_for_an_engine_that_is_restarted_and_loses_no_sample(
    started: Any, engine: ToyEngine, tmp_path: Path
) -> None:
    engine.behave = lambda body: Reply(json=engine.answer(body), delay=0.05)
    with serving(engine) as mortal:
        url = mortal.url
        process = started("-c", "2", "--no-canary", url=url, program=IMPATIENT)
        under_way(engine, process)
    printed = ""
    while "waiting up to 120 s" not in printed:
        printed += (line := process.stderr.readline())
        assert line, printed
    with serving(engine, port=int(url.rpartition(":")[2])):
        _, rest = process.communicate(timeout=120)
    assert f"{url} answers again after" in rest
    assert f"{ROWS} samples run, 0 stored before, 0 failed" in rest
    assert process.returncode == 0


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_a_disk_that_fills_up_ends_with_one_line_and_resume_goes_on(started: Any, tmp_path: Path) -> None:
    process = started(preexec_fn=_small_files)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 5
    assert "run.sqlite: the disk failed or is full" in printed
    assert "then resume the run" in printed
    assert "Traceback" not in printed
    before = stored(tmp_path)
    assert before < ROWS
    process = started("--resume")
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert stored(tmp_path) == ROWS
