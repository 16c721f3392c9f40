"""Events of a run as JSON lines, for whoever asks: one line an event, `time` and `event` first.

    {"time": "2026-01-31T12:00:00.000Z", "event": "call", "endpoint": "http://...", "status": "ok", ...}

Events: run_started, call, sample, endpoint_rests, outage, concurrency, canary, run_ended. No line holds a prompt, a
reply or a secret.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from logproof.errors import StoreError, clip
from logproof.store.schema import RecordEncoder


class Events(Protocol):
    """Where events go."""

    def emit(self, event: str, **fields: object) -> None: ...


class NoEvents:
    """Keeps no events."""

    def emit(self, event: str, **fields: object) -> None:
        """Nothing is written."""


class EventLog:
    """Appends to a file, each line written at once; a context manager.

    secrets: texts that are masked in every line. Raises StoreError where the file cannot be written.
    """

    def __init__(self, path: Path, secrets: Sequence[str] = ()) -> None:
        self._path = path
        self._mask = RecordEncoder(secrets).mask
        try:
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise self._fault(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._file.close()
        except OSError as failed:  # what could not be written is tried once more, and `emit` has said so already
            if error is None:
                raise self._fault(failed) from None

    def emit(self, event: str, **fields: object) -> None:
        """Write one line. Texts are clipped to one line of bounded length. Raises StoreError."""
        now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        plain = {name: clip(value) if isinstance(value, str) else value for name, value in fields.items()}
        line = msgspec.json.encode({"time": now, "event": event, **plain}).decode()
        try:
            self._file.write(self._mask(line) + "\n")
        except OSError as error:
            raise self._fault(error) from None

    def _fault(self, error: OSError) -> StoreError:
        return StoreError(f"cannot write the log {self._path}: {error.strerror}")
