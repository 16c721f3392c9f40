"""Which runs a directory holds, and in what state each is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import msgspec

from logproof.errors import StoreError
from logproof.files import store_error
from logproof.store.database import FILE, LOCK
from logproof.store.lock import is_held
from logproof.store.reader import StoreReader
from logproof.store.records import RunSummary

MAX_DEPTH = 3
"""How many directories deep `find_runs` looks."""

State = Literal["running", "complete", "partial", "unreadable"]
"""running: a process writes it. complete: every planned sample finished ok. partial: some failed or are
missing, or the run did not say how many it planned. unreadable: `error` says why."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a listing. summary is None where the store cannot be read."""

    path: str
    state: State
    summary: RunSummary | None = None
    error: str | None = None


def find_runs(directory: Path) -> list[RunInfo]:
    """The runs in and below a directory, oldest first; a store that cannot be read is listed with its error.

    Raises StoreError if the directory cannot be read.
    """
    infos = [describe(path) for path in _stores(directory, MAX_DEPTH)]
    return sorted(infos, key=lambda info: (info.summary.created if info.summary else 0.0, info.path))


def describe(path: Path) -> RunInfo:
    """State and summary of the run in one directory."""
    try:
        with StoreReader(path) as reader:
            summary = reader.summary()
        running = is_held(path / LOCK)
    except StoreError as error:
        return RunInfo(path=str(path), state="unreadable", error=error.message)
    return RunInfo(path=str(path), state="running" if running else _state(summary), summary=summary)


def new_run_directory(kind: str) -> Path:
    """A directory that no earlier run has: runs/KIND- and the time."""
    return Path("runs") / f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"


def _state(summary: RunSummary) -> State:
    complete = all(count.ok == count.planned for count in summary.tasks)
    return "complete" if summary.tasks and complete else "partial"


def _stores(directory: Path, depth: int) -> list[Path]:
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise store_error("read", directory, error) from None
    here = [directory] if (directory / FILE).is_file() else []
    below = [entry for entry in entries if depth > 0 and entry.is_dir() and not entry.is_symlink()]
    return here + [path for entry in below if not entry.name.startswith(".") for path in _stores(entry, depth - 1)]
