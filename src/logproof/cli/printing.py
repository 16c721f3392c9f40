"""What the commands share of printing: consoles, one-line failures, JSON."""

from __future__ import annotations

import io
import math
import os
import sys
import time

import msgspec
import numpy as np
from rich.console import Console

from logproof.errors import clip

# Python sets a stream that the caller closed to None; what is printed then goes nowhere.
sys.stdout = sys.stdout or io.TextIOWrapper(io.FileIO(os.devnull, "w"))
sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(os.devnull, "w"))

PIPED_WIDTH = 240
"""Columns of a table that no terminal shows: wide enough that nothing is cut short."""

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPED_WIDTH)
"""Results, on standard output."""

err = Console(stderr=True, highlight=False, soft_wrap=True)
"""Progress and notes, on standard error."""


def fail(message: str, hint: str | None, code: int) -> int:
    """Print a failure as one line, its hint on a line of its own, and return the exit code."""
    err.print(f"error: {clip(message, 1200)}", style="red", markup=False)
    if hint:
        err.print(f"  hint: {clip(hint)}", markup=False)
    return code


def visible(text: str) -> str:
    """Foreign text for a terminal: control characters but line ends and tabs are shown, not obeyed."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def note(message: str) -> None:
    """Print a line that is no result."""
    err.print(message, style="dim", markup=False)


def local_time(seconds: float) -> str:
    """Seconds since the epoch as date and time of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def print_json(value: object) -> None:
    """Print any record as indented JSON. In arrays an unscored position (NaN) is null, minus infinity "-inf"."""
    encoded = msgspec.json.encode(value, enc_hook=_plain)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return [_cell(v) for v in value.tolist()]
    raise TypeError(f"cannot print {type(value).__name__}")


def _cell(value: object) -> object:
    if isinstance(value, list):
        return [_cell(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "-inf"
    return value
