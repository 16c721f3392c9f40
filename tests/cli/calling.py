"""Commands in this process, as a user types them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logproof.cli import main

KEY = "sk-test-ABC123"


class Cli:
    """Runs commands and keeps what they printed; nothing of it may hold the key."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *args: object) -> int:
        code = main.run([str(a) for a in args])
        self.out, self.err = self._capsys.readouterr()
        assert KEY not in self.out + self.err
        assert "Traceback" not in self.err
        return code

    def fails(self, code: int, *args: object) -> str:
        """Run a command that must fail: one line of error, at most one hint, and nothing on standard output."""
        assert self(*args) == code, self.err
        lines = [line for line in self.err.splitlines() if not line.startswith("dialect ")]
        assert lines[0].startswith("error: ")
        assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("  hint: "))
        assert self.out == ""
        return self.err

    def json(self, *args: object) -> Any:
        assert self(*args, "--json") == 0, self.err
        return json.loads(self.out)
