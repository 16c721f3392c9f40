"""Responses as plain values, so that two ways to one reply can be compared."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from logproof.ir.response import Response, TopK

IDENTITY = ("response_id", "session_id")


def plain(value: Any) -> Any:
    """A record as dicts and lists; a TopK as one {id or text: logprob} a position."""
    if isinstance(value, TopK):
        keyed = value.by_id if value.ids is not None else value.by_text
        return [keyed(i) for i in range(len(value.offsets) - 1)]
    if isinstance(value, np.ndarray):
        return value.tolist()
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


def difference(left: Any, right: Any, tolerance: float = 0.0, path: str = "") -> str | None:
    """Path of the first difference of two plain values, or None; floats may differ by `tolerance`, NaN equals NaN."""
    if isinstance(left, float) and isinstance(right, float):
        close = left == right or abs(left - right) <= tolerance or (math.isnan(left) and math.isnan(right))
        return None if close else f"{path}: {left} and {right}"
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        pairs = [(left[k], right[k], f"{path}/{k}") for k in left]
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = [(a, b, f"{path}/{i}") for i, (a, b) in enumerate(zip(left, right, strict=True))]
    else:
        return None if left == right else f"{path}: {left} and {right}"
    return next((d for a, b, p in pairs if (d := difference(a, b, tolerance, p)) is not None), None)
