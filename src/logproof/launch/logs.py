"""An engine's log: its end, the first error in it, and what is added while it runs."""

from __future__ import annotations

import codecs
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from logproof.errors import clip
from logproof.files import store_error

_TAIL_BYTES = 1 << 18
_POLL_SECONDS = 0.2
_WORD = re.compile(r"[^\W\d_]{2}")
_ERROR = re.compile(r"\b(?:[A-Za-z_.]*(?:Error|Exception)|error): \S.*")


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log, of at most its last 256 KiB, without line ends. Raises StoreError."""
    with _open_log(path) as log:
        return _last(_end(log), lines)


def last_line(path: Path) -> str:
    """The last line that holds a word (engines draw banners and bars), made safe to print, or an empty text."""
    return next((clip(line, 160) for line in reversed(tail(path, 50)) if _WORD.search(line)), "")


def first_error(path: Path) -> str | None:
    """The first line in a log's end that names an error: of a chain of them, the cause."""
    with _open_log(path) as log:
        match = _ERROR.search(_end(log))
    return clip(match.group()) if match else None


def follow(path: Path, lines: int, alive: Callable[[], bool]) -> Iterator[str]:
    """The last lines of a log, then what is added, in pieces as they come, until `alive` says no. Raises StoreError."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with _open_log(path) as log:
        yield "".join(f"{line}\n" for line in _last(_end(log), lines))
        running = True
        while running:
            running = alive()  # asked before the read, so that the last words of a dying engine are read
            while piece := log.read(1 << 16):
                yield decoder.decode(piece)
            if running:
                time.sleep(_POLL_SECONDS)


def _open_log(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise store_error("read", path, error) from None


def _end(log: BinaryIO) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
    return log.read().decode("utf-8", "replace")


def _last(text: str, lines: int) -> list[str]:
    return text.splitlines()[-lines:] if lines > 0 else []
