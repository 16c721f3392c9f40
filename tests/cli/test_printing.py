"""What is printed where nobody listens."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = "from logproof.cli.main import main; main()"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_swallows_what_goes_there(closed: str) -> None:
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", PROGRAM, "dialects"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert ("vllm_native" in done.stdout) == (">&-" not in closed.split())
