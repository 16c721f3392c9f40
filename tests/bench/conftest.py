"""The benches are scripts that import their neighbours; their pure parts are tested from the same folder."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH / "attacks"))
sys.path.append(str(BENCH))  # last: its names must hide none of the tests' own
