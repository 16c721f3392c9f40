"""The busy share of an engine: what its core process does, never a share of no looks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import busy
import psutil
import pytest

from logproof.errors import LogproofError

NAMED = "open('/proc/self/comm', 'w').write('VLLM::EngineCore'); print('named', flush=True); "
WORKS = NAMED + "\nwhile True: pass"
WAITS = NAMED + "import sys; sys.stdin.read()"


@contextmanager
def child(code: str) -> Iterator[int]:
    """A process below this one; its id."""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def looked(process: psutil.Process, looks: int = 5) -> busy.Busy:
    found = busy.Busy(process)
    for _ in range(looks):
        found.look()
    return found


def test_a_core_process_at_work_is_busy_at_each_look_in_the_span():
    with child(WORKS) as pid:
        core = busy.core_below(os.getpid())
        assert core.pid == pid
        found = looked(core)
        end = time.perf_counter()
    assert found.share(0.0, end) == 1.0
    with pytest.raises(LogproofError, match="in 0 looks"):
        found.share(end, end + 1)


def test_waiting_counts_against_the_share_and_nothing_else_is_an_error():
    with child(WAITS) as pid:
        core = psutil.Process(pid)
        while core.status() != psutil.STATUS_SLEEPING:
            time.sleep(0.01)
        found = looked(core)
        with pytest.raises(LogproofError, match="never seen working in 5 looks"):
            found.share(0.0, time.perf_counter())
        with child(WORKS):
            found._process = next(c for c in psutil.Process().children() if c.pid != pid)
            found.look()
    assert found.share(0.0, time.perf_counter()) == pytest.approx(1 / 6)


def test_an_engine_that_ends_while_it_is_watched_has_no_share():
    with child(WORKS) as pid, busy.watching(psutil.Process(pid)) as found:
        while not found._looks:
            time.sleep(0.01)
        psutil.Process(pid).kill()
        psutil.Process(pid).wait()
        while found._looks:
            time.sleep(0.01)
    with pytest.raises(LogproofError, match="not known"):
        found.share(0.0, time.perf_counter())


def test_an_engine_that_cannot_be_looked_at_is_refused():
    with pytest.raises(LogproofError, match="no engine of this machine"):
        busy.core_of("http://127.0.0.1:1")
    other = WAITS.removeprefix(NAMED.partition("print")[0])
    with child(other) as pid, pytest.raises(LogproofError, match="EngineCore"):
        busy.core_below(pid)
