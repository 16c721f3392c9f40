"""Takes out of a reply what only the proxy asked for, so that the client's bytes are those of a direct call.

vLLM writes a result that was not asked for as a null in a fixed place, so values are blanked in place. One thing more:
where a parser holds a token back, a direct stream has no chunk at all, but sends an empty one beside ids. Pure.
"""

from __future__ import annotations

from logproof.proxy import json_edit

_NULL = b"null"


def reply(body: bytes, hidden: frozenset[str]) -> bytes:
    """A plain reply without the hidden fields. Raises ValueError for a body that is no such JSON object."""
    changes, _ = _changes(body, hidden)
    return json_edit.apply(body, changes)


def event(block: bytes, hidden: frozenset[str]) -> bytes:
    """One event of a stream, blank line included, without the hidden fields; b"" where a direct call has none.

    Events that are no chunk of choices pass unchanged. Raises ValueError for one whose JSON cannot be read.
    """
    if not block.startswith(b"data:"):
        return block
    data = block.partition(b"\n")[0][5:].strip()
    if not data.startswith(b"{"):
        return block
    changes, held_back = _changes(data, hidden)
    if held_back:
        return b""
    at = block.index(data)
    return block[:at] + json_edit.apply(data, changes) + block[at + len(data) :]


def _changes(body: bytes, hidden: frozenset[str]) -> tuple[list[json_edit.Change], bool]:
    """Edits of one object with choices, and whether all its choices are empty but for what is hidden."""
    spans = json_edit.members(body)
    changes = _blanks(body, spans, hidden, 0)
    first, last = spans.get("choices", (0, 0))
    choices = body[first:last]
    empty = []
    for start, end in json_edit.elements(choices) if choices.startswith(b"[") else []:
        choice = choices[start:end]
        inner = json_edit.members(choice)
        blanks = _blanks(choice, inner, hidden, first + start)
        changes += blanks
        empty.append(bool(blanks) and _held_back(choice, inner))
    return sorted(changes), bool(empty) and all(empty)


def _blanks(text: bytes, spans: dict[str, json_edit.Span], hidden: frozenset[str], base: int) -> list[json_edit.Change]:
    places = [spans[name] for name in hidden if name in spans]
    return [(base + start, base + end, _NULL) for start, end in places if text[start:end] != _NULL]


def _held_back(choice: bytes, spans: dict[str, json_edit.Span]) -> bool:
    def value(name: str) -> bytes:
        start, end = spans.get(name, (0, 0))
        return choice[start:end]

    return value("delta") == b"{}" and value("finish_reason") == _NULL
