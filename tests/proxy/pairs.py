"""Recorded pairs: one request, the engine's direct reply, and its reply to the request with the proxy's fields."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent.parent / "replies" / "proxy"
NAMES = tuple(sorted(p.stem for p in FOLDER.glob("*.json")))


class Pair(msgspec.Struct):
    """request: the client's. asks: what was added. direct, asked: bytes of the two replies as text."""

    path: str
    request: dict[str, object]
    asks: dict[str, object]
    direct: str
    asked: str
    source: str

    @property
    def streamed(self) -> bool:
        return self.direct.startswith("data:")

    @property
    def body(self) -> bytes:
        """The client's request, with spaces and escapes as a client may write them."""
        return json.dumps(self.request).encode()


def pair(name: str) -> Pair:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Pair)
