"""Cuts a byte stream into server-sent events without changing a byte. Pure."""

from __future__ import annotations

import re

_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Blocks:
    """Gives out each event with its blank line as soon as it is whole; what is left over waits.

    limit: bytes of the longest event. Raises ValueError beyond it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that this piece completes."""
        self._rest += data
        blocks, at = [], 0
        for blank in _BLANK.finditer(self._rest):
            blocks.append(self._rest[at : blank.end()])
            at = blank.end()
        self._rest = self._rest[at:]
        if len(self._rest) > self._limit:
            raise ValueError(f"an event of the stream is longer than {self._limit} bytes")
        return blocks

    def rest(self) -> bytes:
        """What came after the last whole event."""
        return self._rest
