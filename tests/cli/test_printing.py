"""Printing: what JSON cannot hold, foreign texts, and closed streams."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from logproof.cli.printing import print_json, visible

PROGRAM = "from logproof.__main__ import main; main()"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_swallows_what_goes_there(closed: str) -> None:
    command = ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", PROGRAM, "dialects"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert ("vllm_native" in done.stdout) == (">&-" not in closed.split())


def test_ctrl_c_while_the_commands_load_is_one_line() -> None:
    interrupted = (
        "import sys; from importlib.abc import MetaPathFinder\n"
        "class CtrlC(MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'logproof.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\n" + PROGRAM
    )
    done = subprocess.run([sys.executable, "-c", interrupted, "dialects"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_json_shows_what_json_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": np.array([[np.nan, -np.inf], [-1.0, 0.0]])})
    assert json.loads(capsys.readouterr().out) == {"a": [[None, "-inf"], [-1.0, 0.0]]}
    with pytest.raises(TypeError, match="cannot print object"):
        print_json({"a": object()})


def test_control_characters_of_a_reply_are_shown_not_obeyed() -> None:
    assert visible("a\x1b[31mb\n\tc") == "a\\x1b[31mb\n\tc"
