"""For both suites: engines that tests start are recorded apart from the user's, and end with pytest.

SIGTERM and SIGHUP end pytest as Ctrl-C does, with all fixtures torn down. What a SIGKILL left behind,
`XDG_STATE_HOME=$PWD/.test-state logproof engine stop --all` stops; the next live session does so too.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

pytest_plugins = ["live.engines"]

STATE = Path(__file__).parent / ".test-state"


def pytest_configure() -> None:
    os.environ["XDG_STATE_HOME"] = str(STATE)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)
