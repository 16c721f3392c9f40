"""Whether a vLLM of this machine works or waits: looks at the main thread of its core process, which computes on a CPU.

vLLM's own gauge cannot tell. It sets `vllm:num_requests_running` after each step without the requests that the step
finished, so an engine that scores prompts, one step each, shows 0 however busy it is (0.32).
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

from logproof.errors import LogproofError
from logproof.launch.running_engines import running

if TYPE_CHECKING:
    from collections.abc import Iterator

CORE = "VLLM::EngineCor"
"""How vLLM titles its core process; the system keeps 15 characters of it."""
LOOK_S = 0.05


def core_of(url: str) -> psutil.Process:
    """The core process of the engine at a URL. Raises LogproofError unless `logproof engine start` started it here."""
    at = url.rstrip("/").replace("//localhost:", "//127.0.0.1:")
    leader = next((engine.pid for engine in running() if engine.url == at), None)
    if leader is None:
        raise LogproofError(
            f"no engine of this machine is known at {url}", hint="start one with: logproof engine start"
        )
    return core_below(leader)


def core_below(leader: int) -> psutil.Process:
    """The core process that an engine's first process started. Raises LogproofError where there is none."""
    for process in psutil.Process(leader).children(recursive=True):
        if process.name().startswith(CORE):
            return process
    raise LogproofError(f"process {leader} has no {CORE}e: only a vLLM shows whether it works")


class Busy:
    """Looks at one process again and again."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._looks: list[tuple[float, bool]] = []
        self._end = threading.Event()

    def look(self) -> None:
        """Note whether it works now; a process that waits for a core works too."""
        self._looks.append((time.perf_counter(), self._process.status() == psutil.STATUS_RUNNING))

    def watch(self) -> None:
        """Look until stopped, or until the process is gone."""
        try:
            while not self._end.wait(LOOK_S):
                self.look()
        except psutil.Error:
            self._looks.clear()

    def stop(self) -> None:
        self._end.set()

    def share(self, start: float, end: float) -> float:
        """Share of the looks between two times of `time.perf_counter` at which it worked.

        Raises LogproofError where there is no such look, or none found it working.
        """
        found = [works for at, works in self._looks if start <= at <= end]
        if not any(found):
            raise LogproofError(f"the engine was never seen working in {len(found)} looks: its busy share is not known")
        return sum(found) / len(found)


@contextmanager
def watching(process: psutil.Process) -> Iterator[Busy]:
    """Looks at a process while the block runs."""
    busy = Busy(process)
    thread = threading.Thread(target=busy.watch)
    thread.start()
    try:
        yield busy
    finally:
        busy.stop()
        thread.join()
