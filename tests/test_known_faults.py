"""docs/reference/faults.md: every known fault once, each with tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")

KNOWN = [
    *(f"A{i}" for i in range(1, 13)),
    *(f"B{i:02d}" for i in range(1, 94)),
    *(f"E{i}" for i in range(1, 22)),
    *(f"X{i}" for i in range(1, 15)),
]
"""Ids of the known faults."""


def rows() -> list[list[str]]:
    """Cells of the page's rows, without heads and rules."""
    lines = [line for line in PAGE.splitlines() if re.match(r"\| [ABEX]\d", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@cache
def names_of(file: str) -> frozenset[str]:
    """Names of the test functions of a file, read and not imported; none where there is no such file."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_every_known_fault_has_one_row() -> None:
    found = [row[0] for row in rows()]
    assert sorted(found) == sorted(KNOWN)
    assert all(len(row) == 4 and all(row) for row in rows())


def test_every_named_test_exists() -> None:
    for fault, _, _, cell in rows():
        named = [re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", name) for name in cell.split("<br>")]
        assert named, fault
        for match in named:
            assert match is not None, (fault, cell)
            assert match[2] in names_of(match[1]), (fault, match[0])
