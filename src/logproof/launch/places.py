"""Where the launcher keeps things: checkpoints in the user's cache, records and logs in the user's state folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from logproof.errors import StoreError
from logproof.files import make_directory, store_error

_PAUSE_SECONDS = 0.05


def engines_dir() -> Path:
    """`$XDG_STATE_HOME/logproof/engines`, made if absent: one NAME.json and one NAME.log an engine."""
    return _make(_base("XDG_STATE_HOME", ".local/state") / "engines")


def models_dir() -> Path:
    """`$XDG_CACHE_HOME/logproof/models`, made if absent: one folder a prepared checkpoint."""
    return _make(_base("XDG_CACHE_HOME", ".cache") / "models")


@contextmanager
def locked(path: Path, seconds: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on a file. While another process holds it, `waiting` is called; it may raise.

    The system frees the lock when its holder ends, however it ends. Raises StoreError after `seconds`.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise store_error("lock", path, error) from None
    try:
        deadline = time.monotonic() + seconds
        while not _try(handle):
            waiting()
            if time.monotonic() >= deadline:
                raise StoreError(f"another process held the lock {path} for {seconds:g} s", hint="wait, or end it")
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(handle)


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _base(variable: str, fallback: str) -> Path:
    # The XDG base directory rules: a relative value counts as unset.
    value = os.environ.get(variable, "")
    return (Path(value) if os.path.isabs(value) else Path.home() / fallback) / "logproof"


def _make(path: Path) -> Path:
    make_directory(path)
    return path
