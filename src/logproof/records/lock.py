"""The write lock of a run: one process writes a store at a time.

An advisory lock (flock) on a file beside the store. The system frees it when its process ends, however it
ends, so a killed run leaves no stale lock; the process id in the file is for the message alone.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from logproof.errors import StoreLocked
from logproof.records.files import store_error


class WriteLock:
    """Holds the lock from construction to `release`. Raises StoreLocked, naming the holder, or StoreError."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise store_error("lock", path, error) from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            holder = _holder(self._handle)
            os.close(self._handle)
            raise StoreLocked(
                f"another run ({holder}) writes {path.parent}", hint="wait for it, stop it, or choose another directory"
            ) from None
        except OSError as error:
            os.close(self._handle)
            raise store_error("lock", path, error) from None

    def release(self) -> None:
        """Free the lock; a second call does nothing. The file stays: removing it would race with the next run."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _holder(handle: int) -> str:
    text = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
    return f"process {text}" if text.isdecimal() else "process unknown"
