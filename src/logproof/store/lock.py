"""The write lock of a run: one process writes a store at a time.

An advisory lock (flock) on a file beside the store. The system frees it when its process ends, however it
ends, so a killed run leaves no stale lock; the process id in the file is for the message alone.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from logproof.errors import StoreLocked
from logproof.files import store_error

TRIES = 10
PAUSE_SECONDS = 0.02
"""A held lock is tried again for TRIES x PAUSE_SECONDS: `is_held` holds one for an instant."""


class WriteLock:
    """Holds the lock from construction to `release`. Raises StoreLocked, naming the holder, or StoreError."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise store_error("lock", path, error) from None
        try:
            self._take(path)
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                raise store_error("lock", path, error) from None
            raise

    def release(self) -> None:
        """Free the lock; a second call does nothing. The file stays: removing it would race with the next run."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _take(self, path: Path) -> None:
        for _ in range(TRIES):
            if _try(self._handle, fcntl.LOCK_EX):
                os.ftruncate(self._handle, 0)
                os.pwrite(self._handle, str(os.getpid()).encode(), 0)
                return
            time.sleep(PAUSE_SECONDS)
        raise StoreLocked(
            f"another run (process {_holder(self._handle)}) writes {path.parent}",
            hint="wait for it, stop it, or choose another directory",
        )


def is_held(path: Path) -> bool:
    """Whether a process holds the lock now. Raises StoreError if the file cannot be opened."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise store_error("read", path, error) from None
    try:
        return not _try(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _try(handle: int, mode: int) -> bool:
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(handle: int) -> str:
    text = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
    return text if text.isdecimal() else "unknown"
