from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from logproof.errors import EngineError
from logproof.launch import processes
from logproof.launch.processes import end, exists, exit_status, family, is_alive, mark, spawn
from logproof.launch.spec import Mark

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


def test_a_recycled_id_is_another_process(tmp_path: Path) -> None:
    process = spawn(SLEEP, os.environ, tmp_path / "log")
    try:
        stale = Mark(process.pid, "some-boot:1")
        assert not exists(stale)
        assert family(stale) == ()
        end(stale, [stale])
        assert is_alive(process)
    finally:
        end(process)
    assert mark(process.pid) != process


def test_the_mark_tells_starts_apart_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_BOOT", Path("/absent"))
    found = mark(os.getpid())
    assert found is not None
    assert found.started.startswith("time:")
    assert is_alive(found)
    assert mark(2**22 + 1) is None


def test_a_zombie_exists_but_is_not_alive(tmp_path: Path) -> None:
    process = spawn([sys.executable, "-c", "raise SystemExit(3)"], os.environ, tmp_path / "log")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert exit_status(process.pid) == 3
    assert exists(process)
    assert not is_alive(process)
    end(process)
    assert not exists(process)


def test_a_process_that_vanishes_between_two_looks_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    own = mark(os.getpid())
    assert own is not None

    def gone(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", gone)
    assert not is_alive(own)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot start /absent/python: No such file"):
        spawn(["/absent/python"], {}, tmp_path / "log")


def test_a_child_that_cannot_be_found_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "mark", lambda pid: None)
    with pytest.raises(EngineError, match="right after its start"):
        spawn(["true"], os.environ, tmp_path / "log")


def test_what_survives_sigkill_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = spawn(SLEEP, os.environ, tmp_path / "log")
    try:
        with monkeypatch.context() as patch:
            patch.setattr(processes, "_send", lambda m, number: None)
            patch.setattr(processes, "GRACE_SECONDS", 0.0)
            patch.setattr(processes, "KILL_SECONDS", 0.0)
            with pytest.raises(EngineError, match=f"processes {process.pid} are still there"):
                end(process)
    finally:
        end(process)


def test_the_program_has_no_input_and_its_log_is_its_owners(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import sys; print(repr(sys.stdin.read())); print('told', file=sys.stderr)"
    process = spawn([sys.executable, "-u", "-c", code], os.environ, log)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    end(process)
    assert log.read_text() == "''\ntold\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_process_that_vanishes_while_it_is_looked_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = spawn(SLEEP, os.environ, tmp_path / "log")
    try:
        monkeypatch.setattr(psutil, "pids", lambda: [process.pid, 2**22 + 1])
        assert family(process) == (process,)
        processes._send(Mark(process.pid, "some-boot:1"), signal.SIGKILL)
        assert is_alive(process)
    finally:
        end(process)
