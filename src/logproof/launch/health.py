"""Whether an engine answers, and the wait until it does."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from logproof.errors import EngineError
from logproof.launch.logs import first_error, last_line, tail
from logproof.launch.processes import exit_status, family
from logproof.launch.spec import HOST, LocalEngine, Progress

ANSWER_SECONDS = 2.0
POLL_SECONDS = 0.25
SHOWN_LINES = 15
"""How many of the last log lines a failure carries."""


class StartFailed(EngineError):
    """An engine died or did not answer in time. lines: the end of its log."""

    def __init__(self, engine: LocalEngine, what: str) -> None:
        path = Path(engine.log_path)
        self.lines = tuple(tail(path, SHOWN_LINES))
        cause = first_error(path)
        super().__init__(
            f"the engine {engine.name!r} {what}" + (f": {cause}" if cause else ""),
            hint=f"the whole log: {engine.log_path}",
        )


def answers(port: int) -> bool:
    """Whether GET /health answers 200 within two seconds."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_ready(engine: LocalEngine, seconds: float, check: Callable[[], None], progress: Progress) -> None:
    """Return when the engine's own process answers on its port.

    check: called at each look; it may raise. Raises StartFailed when the engine ends or `seconds` pass, and
    EngineError when another server holds the port.
    """
    began = time.monotonic()
    while True:
        check()
        status = exit_status(engine.leader.pid)
        if status is not None:
            raise StartFailed(engine, f"ended while it started ({_ending(status)})")
        if answers(engine.port):
            _require_own(engine)
            return
        elapsed = time.monotonic() - began
        if elapsed >= seconds:
            raise StartFailed(engine, f"did not answer within {seconds:g} s")
        line = last_line(Path(engine.log_path))
        progress(elapsed, f"its log: {line}" if line else "it has logged nothing yet")
        time.sleep(POLL_SECONDS)


def _require_own(engine: LocalEngine) -> None:
    """Another program may have taken the port after it was chosen, and its answer must not pass for ours."""
    if not any(_listens(member.pid, engine.port) for member in family(engine.leader)):
        raise EngineError(f"another program answers on port {engine.port}", hint="start again: a free port is chosen")


def _listens(pid: int, port: int) -> bool:
    with suppress(psutil.Error):
        open_ones = psutil.Process(pid).net_connections(kind="tcp")
        return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in open_ones)
    return False


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit code {status}"
