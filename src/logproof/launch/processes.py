"""Processes of an engine: start one in a group of its own, find all it forked, end them and make sure.

A process id alone is never acted on: a `Mark` also holds when the process started, and a recycled id has
another. Engines fork workers that outlive a killed leader, so ending means the whole session.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from logproof.errors import EngineError
from logproof.launch.spec import Mark

GRACE_SECONDS = 15.0
"""How long an engine may take to end by itself after SIGTERM."""
KILL_SECONDS = 10.0
"""How long its processes may take to vanish after SIGKILL."""
POLL_SECONDS = 0.1

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD = 19
"""Index of starttime in /proc/PID/stat (proc(5)), counted after the command's closing bracket."""


def spawn(argv: list[str], env: Mapping[str, str], log_path: Path) -> Mark:
    """Start a program in a session of its own, with no input and its output in a fresh `log_path`.

    Raises EngineError when the program cannot be started.
    """
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log_path), write, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        pid = os.posix_spawnp(argv[0], argv, env, file_actions=actions, setsid=True)
    except OSError as error:
        raise EngineError(f"cannot start {argv[0]}: {error.strerror}") from None
    leader = mark(pid)
    if leader is None:  # the child waits to be reaped, so its entry is there
        raise EngineError(f"process {pid} cannot be found right after its start")
    return leader


def mark(pid: int) -> Mark | None:
    """The mark of a process that exists, a zombie included, or None."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return Mark(pid, f"{boot}:{fields[_START_FIELD]}")
    except OSError:
        return _portable_mark(pid)


def _portable_mark(pid: int) -> Mark | None:
    try:
        return Mark(pid, f"time:{psutil.Process(pid).create_time():.0f}")
    except psutil.Error:
        return None


def exists(process: Mark) -> bool:
    """Whether this very process is there, be it as a zombie."""
    return mark(process.pid) == process


def is_alive(process: Mark) -> bool:
    """Whether this very process runs."""
    try:
        return exists(process) and psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def exit_status(pid: int) -> int | None:
    """Exit code of a child (minus the signal number if one ended it), or None while it runs.

    The child stays unreaped, so that its id cannot go to another process before `end` is done.
    """
    ending = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ending is None:
        return None
    return ending.si_status if ending.si_code == os.CLD_EXITED else -ending.si_status


def family(leader: Mark) -> tuple[Mark, ...]:
    """All running processes of the leader's session and below it; empty when the leader does not exist.

    Nothing is looked for by a session id whose leader is gone: that number may be another session's by now.
    """
    if not exists(leader):
        return ()
    pids = {pid for pid in psutil.pids() if _session(pid) == leader.pid}
    with suppress(psutil.Error):
        pids |= {child.pid for child in psutil.Process(leader.pid).children(recursive=True)}
    marks = (mark(pid) for pid in sorted(pids))
    return tuple(m for m in marks if m is not None and is_alive(m))


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def end(leader: Mark, members: Iterable[Mark] = ()) -> None:
    """End the leader, all its relatives and `members` that still run: SIGTERM to the leader, then SIGKILL to all.

    members: processes known to be the engine's, for a leader that died before its workers. Raises EngineError
    naming the processes that are still there after both.
    """
    victims = set(family(leader)) | {m for m in members if is_alive(m)}
    if is_alive(leader):
        _send(leader, signal.SIGTERM)
        _wait(victims, GRACE_SECONDS)
    victims |= set(family(leader))
    for process in victims:
        _send(process, signal.SIGKILL)
    survivors = _wait(victims, KILL_SECONDS)
    if survivors:
        ids = ", ".join(str(m.pid) for m in survivors)
        raise EngineError(f"processes {ids} are still there after SIGKILL", hint="look at them with `ps`")
    with suppress(ChildProcessError):
        os.waitpid(leader.pid, os.WNOHANG)


def _send(process: Mark, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if exists(process):
            os.kill(process.pid, number)


def _wait(processes: Iterable[Mark], seconds: float) -> list[Mark]:
    """Those of the processes that still run when all have ended or the time is over."""
    deadline = time.monotonic() + seconds
    while (left := [m for m in processes if is_alive(m)]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return left
