"""Prints where the time of a test run went: seconds and tests of each room, the slowest first.

    python scripts/minutes.py TIMES.xml

TIMES.xml is what `pytest --junitxml` wrote; `make test` does both. A row is a folder of tests, of live tests a file.
The first test that needs an engine carries the engine's start.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter


def room(module: str) -> str:
    """The row of a test module, such as tests/cli of tests.cli.verify.test_audit."""
    parts = module.split(".")
    if "live" in parts:
        return "/".join(parts[: parts.index("live") + 2])
    return "/".join(parts[: parts.index("tests") + 2])


def main(path: str) -> None:
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        name = room(case.attrib["classname"])
        seconds[name] += float(case.attrib["time"])
        tests[name] += 1
    print("seconds  tests  room")
    for name, spent in seconds.most_common():
        print(f"{spent:7.1f} {tests[name]:6}  {name}")
    print(f"{seconds.total():7.1f} {tests.total():6}  in all")


if __name__ == "__main__":
    main(*sys.argv[1:])
