"""Starts an engine and shows how far it is; `engine start` and `demo` use it."""

from __future__ import annotations

import time

from rich.markup import escape
from rich.status import Status

from logproof.cli.printing import err, note
from logproof.errors import clip
from logproof.launch import EngineSpec, LocalEngine, StartFailed, start_engine

PLAIN_SECONDS = 15.0
"""Between two lines of progress where there is no terminal."""


def start_with_progress(spec: EngineSpec) -> LocalEngine:
    """Start an engine under a progress line; after a failure print the end of its log. Raises as `start_engine`."""
    with err.status(f"starting {spec.backend}") as status:
        try:
            return start_engine(spec, _StartProgress(status, spec.backend))
        except StartFailed as failure:
            for line in failure.lines:
                note(clip(line))
            raise


class _StartProgress:
    """A Progress on standard error: one line that changes, or a plain line now and then without a terminal."""

    def __init__(self, status: Status, backend: str) -> None:
        self._status = status
        self._backend = backend
        self._began = time.monotonic()
        self._next = 0.0

    def __call__(self, _: float, line: str) -> None:
        seconds = time.monotonic() - self._began
        text = f"starting {self._backend}, {seconds:.0f} s"
        if err.is_terminal:
            self._status.update(f"{text}: [dim]{escape(line)}[/dim]")
        elif seconds >= self._next:
            self._next = seconds + PLAIN_SECONDS
            note(f"{text}: {line}")
