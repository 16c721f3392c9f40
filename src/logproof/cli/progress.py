"""Progress of a run on standard error: one line a task with rate and time left, or plain lines without a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from logproof.cli.printing import err

PLAIN_STEPS = 10
"""Lines that a task prints where there is no terminal."""


class Bars:
    """A context manager that a runner tells how it goes on. label: stands before each task."""

    def __init__(self, label: str = "") -> None:
        self._label = f"{label} " if label else ""
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            console=err,
            disable=not err.is_terminal,
        )
        self._ids: dict[str, Task] = {}
        self._failed: dict[str, int] = {}
        self._counted: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, task: str, total: int, done: int) -> None:
        """A task starts with `done` of `total` samples behind it."""
        added = self._bars.add_task(f"{self._label}{task}", total=total, completed=done)
        self._ids[task] = next(t for t in self._bars.tasks if t.id == added)
        self._failed[task] = 0
        self._counted[task] = (done, total)

    def advance(self, task: str, ok: bool, count: int = 1) -> None:
        """So many samples have ended, all alike."""
        bar = self._ids[task]
        self._failed[task] += 0 if ok else count
        failed = f" ({self._failed[task]} failed)" if self._failed[task] else ""
        self._bars.update(bar.id, advance=count, description=f"{self._label}{task}{failed}")
        done, total = self._counted[task]
        now = done + count
        self._counted[task] = (now, total)
        if not err.is_terminal and now * PLAIN_STEPS // total > done * PLAIN_STEPS // total:
            err.print(f"{self._label}{task}{failed}: {now} of {total}", markup=False)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Samples a second, once it is known."""
        return Text(f"{task.speed:.1f}/s" if task.speed else "")
