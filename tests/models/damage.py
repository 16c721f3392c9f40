"""Damage to recorded replies: every way in which one place of a scored reply can go wrong.

A damage takes the decoded reply and gives another one (or its text, where the damage is no JSON value). It is
drawn by hypothesis from the places that the reply itself has: each list position, each id, count and value.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[Any, ...]

JUNK = [None, "-0.5", "NaN", True, [], {}, 1e400, float("nan"), -9999.0]
"""What may stand where a number stood."""

PARALLEL = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
"""Lists of a completions `logprobs` object whose elements belong together."""


def get(node: Any, path: Path) -> Any:
    """The value at a path of keys and indexes."""
    for key in path:
        node = node[key]
    return node


def put(reply: Any, path: Path, value: Any) -> Any:
    """A copy of the reply with another value at a path."""
    damaged = copy.deepcopy(reply)
    get(damaged, path[:-1])[path[-1]] = value
    return damaged


def walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every place of a reply with its value."""
    yield path, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        yield from walk(child, (*path, key))


def columns(reply: Any) -> list[Path]:
    """Paths of the lists that hold one element a token."""
    names = {"prompt_logprobs", "prompt_token_ids", "token_ids", *PARALLEL}
    return [p for p, v in walk(reply) if p and p[-1] in names and isinstance(v, list) and len(v) > 1]


def numbers(reply: Any) -> list[Path]:
    """Paths of the values that are, or count, scores and ids."""
    return [
        p
        for p, v in walk(reply)
        if isinstance(v, (int, float)) and not isinstance(v, bool) and p and p[0] in ("choices", "usage")
    ]


def drop(column: list[Any], i: int) -> list[Any]:
    """Without position i."""
    return column[:i] + column[i + 1 :]


def repeat(column: list[Any], i: int) -> list[Any]:
    """Position i twice."""
    return column[: i + 1] + column[i:]


def swap(column: list[Any], i: int) -> list[Any]:
    """Position i and the next (the first after the last) exchanged."""
    j = (i + 1) % len(column)
    out = list(column)
    out[i], out[j] = out[j], out[i]
    return out


def shift(column: list[Any], i: int) -> list[Any]:
    """All positions moved on by one to i + 1, the end going to the front."""
    step = i % max(len(column) - 1, 1) + 1
    return column[step:] + column[:step]


def replace_by_next(column: list[Any], i: int) -> list[Any]:
    """Position i overwritten by its neighbour."""
    out = list(column)
    out[i] = out[(i + 1) % len(out)]
    return out


MOVES: list[Callable[[list[Any], int], list[Any]]] = [drop, repeat, swap, shift, replace_by_next]


def move(reply: Any, path: Path, how: Callable[[list[Any], int], list[Any]], i: int) -> Any:
    """One list of the reply with its positions moved."""
    column = get(reply, path)
    return put(reply, path, how(column, i % len(column)))


def move_rows(reply: Any, choice: int, how: Callable[[list[Any], int], list[Any]], i: int) -> Any:
    """Whole positions of a choice's `logprobs` moved: all its parallel lists alike."""
    damaged = copy.deepcopy(reply)
    logprobs = damaged["choices"][choice]["logprobs"]
    for name in PARALLEL:
        if logprobs.get(name):
            logprobs[name] = how(logprobs[name], i % len(logprobs[name]))
    return damaged


def encode(reply: Any) -> bytes:
    """The damaged reply as bytes; NaN and infinity go out as the literals that broken servers write."""
    return json.dumps(reply, ensure_ascii=False).encode()
