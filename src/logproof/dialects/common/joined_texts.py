"""Token texts that join to a known text, from an engine that decodes each token alone.

A token that holds part of a character decodes alone to U+FFFD. Where the whole text is known, each run of such
pieces gets the characters between its whole neighbours, all at the run's last token; the others become "".
`first_text` finds the text of a prompt's first token, which engines do not score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

PARTIAL = "\ufffd"


def join(pieces: Sequence[str | None], whole: str) -> tuple[str, ...] | None:
    """Texts of the tokens that join to `whole`, or None where a text is unknown, or they fit in no way or several.

    A first token that stands outside the text (a beginning-of-text mark) keeps its own text in front.
    """
    known = [p for p in pieces if p is not None]
    if len(known) != len(pieces):
        return None
    found = _join(known, whole)
    if found is None and known and PARTIAL not in known[0] and not whole.startswith(known[0]):
        rest = _join(known[1:], whole)
        found = (known[0], *rest) if rest is not None else None
    return found


def _join(pieces: Sequence[str], whole: str) -> tuple[str, ...] | None:
    runs = _runs(pieces)
    texts = [text for text, _ in runs]
    first = _gaps(texts, whole)
    last = _gaps([t[::-1] if t is not None else None for t in reversed(texts)], whole[::-1])
    if first is None or last is None:
        return None
    if first != [(len(whole) - end, len(whole) - start) for start, end in reversed(last)]:
        return None
    joined = ["" if PARTIAL in p else p for p in pieces]
    ends = [indexes[-1] for text, indexes in runs if text is None]
    for at, (start, end) in zip(ends, first, strict=True):
        joined[at] = whole[start:end]
    return tuple(joined)


def _runs(pieces: Sequence[str]) -> list[tuple[str | None, list[int]]]:
    """(joined text, token indexes) of each run of whole pieces; the text of a run of partial ones is None."""
    runs: list[tuple[str | None, list[int]]] = []
    for i, piece in enumerate(pieces):
        if not piece:
            continue
        text = None if PARTIAL in piece else piece
        if runs and (runs[-1][0] is None) == (text is None):
            before, indexes = runs[-1]
            runs[-1] = (before + text if before is not None and text is not None else None, [*indexes, i])
        else:
            runs.append((text, [i]))
    return runs


def _gaps(texts: Sequence[str | None], whole: str) -> list[tuple[int, int]] | None:
    """Spans of the partial runs with every gap as short as it can be, from the left; None where nothing fits."""
    gaps: list[tuple[int, int]] = []
    at, opened = 0, None
    for i, text in enumerate(texts):
        if text is None:
            opened = at
            continue
        start = at
        if opened is not None:
            start = len(whole) - len(text) if i == len(texts) - 1 else whole.find(text, opened + 1)
            if start <= opened:
                return None
            gaps.append((opened, start))
            opened = None
        if not whole.startswith(text, start):
            return None
        at = start + len(text)
    if opened is not None:
        gaps.append((opened, len(whole)))
        return gaps if opened < len(whole) else None
    return gaps if at == len(whole) else None


def first_text(prompt: str | None, rest: Sequence[str | None]) -> str | None:
    """Text of the unscored first token: what the later tokens leave of the prompt's beginning.

    The engine decodes the pieces of a character to "" and gives the whole character to one of them; should
    that be the first character, its text belongs here. None where the prompt's text is unknown, or the later
    texts do not end it.
    """
    try:
        tail = "".join(cast("Sequence[str]", rest))
    except TypeError:
        return None
    if prompt is None or not prompt.endswith(tail):
        return None
    return prompt[: len(prompt) - len(tail)]
