"""Damage to recorded replies: every way in which one place of a reply can go wrong, whatever its wire.

A recorded reply is decoded to plain JSON: an object, or the list of a stream's events. Each operator gives all
places of that JSON that it may damage, and a damaged copy for one of them. Which damage changes what is returned
without being refused is for tests/dialects/test_mutation.py to say.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[Any, ...]
Column = list[Any]

JUNK = [None, "-0.5", "NaN", True, [], {}, 1e400, float("nan"), -9999.0]
"""What may stand where a number stood."""

PARALLEL = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
"""Lists of a completions `logprobs` object whose elements belong together."""

PLACEHOLDER = re.compile(r"token_id:(\d+)")
TOKENS = ("token", "tokens")
"""Names under which a wire writes the text of a token."""


def get(node: Any, path: Path) -> Any:
    """The value at a path of keys and indexes."""
    for key in path:
        node = node[key]
    return node


def put(reply: Any, path: Path, value: Any) -> Any:
    """A copy of the reply with another value at a path."""
    if not path:
        return value
    damaged = copy.deepcopy(reply)
    get(damaged, path[:-1])[path[-1]] = value
    return damaged


def walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every place of a reply with its value; the bytes of a token's text are one value."""
    yield path, node
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in items:
        if key != "bytes":
            yield from walk(child, (*path, key))


def drop(column: Column, i: int) -> Column:
    """Without position i."""
    return column[:i] + column[i + 1 :]


def repeat(column: Column, i: int) -> Column:
    """Position i twice."""
    return column[: i + 1] + column[i:]


def swap(column: Column, i: int) -> Column:
    """Position i and the next (the first after the last) exchanged."""
    j = (i + 1) % len(column)
    out = list(column)
    out[i], out[j] = out[j], out[i]
    return out


def shift(column: Column, i: int) -> Column:
    """All positions moved on by one to i + 1, the end going to the front."""
    step = i % max(len(column) - 1, 1) + 1
    return column[step:] + column[:step]


def replace_by_next(column: Column, i: int) -> Column:
    """Position i overwritten by its neighbour."""
    out = list(column)
    out[i] = out[(i + 1) % len(out)]
    return out


def cut(column: Column, i: int) -> Column:
    """Nothing from position i on."""
    return column[:i]


MOVES: list[Callable[[Column, int], Column]] = [drop, repeat, swap, shift, replace_by_next, cut]


def lists(reply: Any) -> list[Path]:
    """Paths of the lists that hold more than one element."""
    return [p for p, v in walk(reply) if isinstance(v, list) and len(v) > 1]


def move(reply: Any, path: Path, how: Callable[[Column, int], Column], i: int) -> Any:
    """One list of the reply with its positions moved."""
    column = get(reply, path)
    return put(reply, path, how(column, i % len(column)))


def rows(reply: Any) -> list[Path]:
    """Paths of the objects that hold one position in parallel lists."""
    return [p for p, v in walk(reply) if isinstance(v, dict) and v.get("tokens") and "token_logprobs" in v]


def move_rows(reply: Any, path: Path, how: Callable[[Column, int], Column], i: int) -> Any:
    """Whole positions of parallel lists moved, all lists alike."""
    held = get(reply, path)
    moved = {k: how(v, i % len(v)) if k in PARALLEL and v else v for k, v in held.items()}
    return put(reply, path, moved)


def numbers(reply: Any) -> list[Path]:
    """Paths of all numbers."""
    return [p for p, v in walk(reply) if isinstance(v, (int, float)) and not isinstance(v, bool)]


def names(reply: Any) -> list[Path]:
    """Paths of all token names: the texts of tokens, and keys of a map of logprobs (with their key last)."""
    found = []
    for path, value in walk(reply):
        in_column = len(path) > 1 and path[-2] in TOKENS and isinstance(path[-1], int)
        named = isinstance(value, str) and path and (path[-1] in TOKENS or in_column)
        if named or (isinstance(value, (float, dict)) and _is_entry(path)):
            found.append(path)
    return found


def _is_entry(path: Path) -> bool:
    """Whether a path ends in a key of the map of one position."""
    maps = ("prompt_logprobs", "top_logprobs")
    return len(path) > 2 and path[-3] in maps and isinstance(path[-2], int) and isinstance(path[-1], str)


def rename(reply: Any, path: Path, step: int) -> Any:
    """Another name for one token: its id moved by `step`, a text changed to another."""
    if _is_entry(path):
        held = get(reply, path[:-1])
        if (new := another(path[-1], step)) in held:
            return reply
        return put(reply, path[:-1], {new if k == path[-1] else k: v for k, v in held.items()})
    return put(reply, path, another(get(reply, path), step))


def another(name: str, step: int) -> str:
    """A name that differs from a token's."""
    placed = PLACEHOLDER.fullmatch(name)
    if placed:
        return f"token_id:{int(placed[1]) + step}"
    return str(int(name) + step) if name.isdecimal() and len(name) > 2 else f"{name}~"


def parts(reply: Any) -> list[Path]:
    """Paths of the lists and objects that may be lost whole."""
    return [p for p, v in walk(reply) if p and isinstance(v, (list, dict)) and isinstance(p[-1], str)]


def encode(reply: Any) -> bytes:
    """The damaged reply as bytes; NaN and infinity go out as the literals that broken servers write."""
    return json.dumps(reply, ensure_ascii=False).encode()


def encode_events(events: Any) -> bytes:
    """The damaged events of a stream as bytes, its end mark after them."""
    return b"".join(b"data: " + encode(e) + b"\n\n" for e in events) + b"data: [DONE]\n\n"
