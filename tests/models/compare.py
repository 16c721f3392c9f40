"""Responses as plain values, so that two ways to one reply can be compared."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from logproof.ir.response import Response

IDENTITY = ("response_id", "session_id")


def plain(value: Any) -> Any:
    """A record as dicts and lists; arrays keep NaN and infinity by their names."""
    if isinstance(value, np.ndarray):
        return [repr(v) for v in value.tolist()]
    if isinstance(value, msgspec.Struct):
        return {"": type(value).__name__} | {f: plain(getattr(value, f)) for f in value.__struct_fields__}
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def same_reply(response: Response) -> Any:
    """What a streamed and a plain reply to one request share: all but the ids that a server makes up."""
    found = {k: v for k, v in plain(response).items() if k not in IDENTITY}
    for choice in found["choices"]:
        for part in [*choice["tool_calls"], *(choice["turn"] or ())]:
            part.pop("id", None)
    return found
