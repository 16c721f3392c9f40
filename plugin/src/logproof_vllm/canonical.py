"""The canonical form of a replay inside the engine: one entry of ``SamplingParams.extra_args``.

``extra_args`` is the only part of vLLM's sampling parameters that an outside package can add to and that survives
the way to the engine core and the workers. Only the room ``server`` writes the entry (and the
canary), after checking every id; everything behind it trusts the entry. Clients may not send it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

KEY = "logproof"
GRAMMAR_UTILITY = "logproof_grammar_off_at"
"""Method of the engine core: the position at which the request with a tag lost its grammar, or None."""


class EngineEntry(TypedDict):
    """``ids``: enforced ids, may be empty. ``mode``: logprobs mode or None. ``tag``: names the request in reports."""

    ids: list[int]
    mode: str | None
    tag: str


@dataclass(frozen=True)
class EnginePlan:
    """What a worker or the scheduler reads back."""

    ids: tuple[int, ...]
    mode: str | None
    tag: str


def entry_of(ids: Iterable[int], mode: str | None, tag: str | None = None) -> EngineEntry:
    """The entry of ids and a mode that were checked; without `tag` under a random one."""
    return {"ids": list(ids), "mode": mode, "tag": tag or secrets.token_hex(8)}


def read(params: Any) -> EnginePlan | None:
    """The plan inside sampling parameters, or None for a request that does not use the plugin."""
    extra = getattr(params, "extra_args", None)
    entry = extra.get(KEY) if extra else None
    if entry is None:
        return None
    return EnginePlan(tuple(entry["ids"]), entry["mode"], entry["tag"])


def enforced_length(params: Any) -> int:
    """Number of enforced ids of these sampling parameters; 0 for a plain request."""
    extra = getattr(params, "extra_args", None)
    entry = extra.get(KEY) if extra else None
    return len(entry["ids"]) if entry else 0
