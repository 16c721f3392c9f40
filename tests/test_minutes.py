"""The table of a test run's time, made from what pytest writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "minutes.py"
TIMES = """<testsuites><testsuite>
<testcase classname="tests.cli.verify.test_audit" name="a" time="1.5"/>
<testcase classname="tests.cli.test_printing" name="a[x]" time="0.25"/>
<testcase classname="tests.live.test_pipe_live" name="a" time="40"/>
<testcase classname="plugin.tests.live.test_http" name="a" time="2"/>
<testcase classname="plugin.tests.test_fields" name="a" time="0.5"/>
<testcase classname="tests.test_docs" name="a" time="0.125"/>
</testsuite></testsuites>"""


def test_seconds_are_added_up_by_room_and_by_live_file(tmp_path: Path) -> None:
    (tmp_path / "times.xml").write_text(TIMES)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "times.xml")], capture_output=True, text=True, check=True
    )
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["seconds", "tests", "room"],
        ["40.0", "1", "tests/live/test_pipe_live"],
        ["2.0", "1", "plugin/tests/live/test_http"],
        ["1.8", "2", "tests/cli"],
        ["0.5", "1", "plugin/tests/test_fields"],
        ["0.1", "1", "tests/test_docs"],
        ["44.4", "6", "in", "all"],
    ]
