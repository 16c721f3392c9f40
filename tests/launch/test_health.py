from __future__ import annotations

import os

import psutil
import pytest

from logproof.launch import health


def test_a_process_that_cannot_be_looked_into_owns_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", gone)
    assert not health._listens(os.getpid(), 1)
