from __future__ import annotations

import io

import pytest
from rich.console import Console

from logproof.cli import progress


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    monkeypatch.setattr(progress, "err", screen)
    with progress.Bars("a") as bars:
        bars.begin("task", 5, 1)
        bars.advance("task", True, 3)
        bars.advance("task", False)
    assert "a task (1 failed)" in screen.export_text()
