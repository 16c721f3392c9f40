"""Generation scoring: a number out of a text, compared with the right one.

`strict` takes the number behind the first `####`; `flexible` the last number of the text. Numbers are compared
by value: a leading $ and grouping commas do not matter, 18 equals 18.0. No stop string is added or applied here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

_NUMBER = r"[-+]?\$?[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\$?\.\d+"
_STRICT = re.compile(rf"####\s*({_NUMBER})")
_ANY = re.compile(_NUMBER)

MAX_TEXT = 1_000_000
"""Longest text that is searched, in characters; what lies beyond is not read."""


def strict(text: str) -> str | None:
    """The number behind the first `####`, as written, or None."""
    match = _STRICT.search(text[:MAX_TEXT])
    return match[1] if match else None


def flexible(text: str) -> str | None:
    """The last number of the text, as written, or None. A minus that joins two numbers is no sign."""
    last = None
    for match in _ANY.finditer(text[:MAX_TEXT]):
        last = match
    if last is None:
        return None
    number = last[0]
    if number[0] in "+-" and last.start() > 0 and text[last.start() - 1].isalnum():
        return number[1:]
    return number


EXTRACTORS: Mapping[str, Callable[[str], str | None]] = {"strict": strict, "flexible": flexible}
"""Extractor -> function of the whole text. Its metric is `exact_` and its name."""


def value(number: str) -> Decimal | None:
    """The value of a number as written, or None for what is none."""
    try:
        amount = Decimal(number.replace("$", "").replace(",", "").strip())
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None


def equal(extracted: str | None, gold: str) -> bool:
    """Whether an extracted number has the value of the right one."""
    if extracted is None:
        return False
    got = value(extracted)
    return got is not None and got == value(gold)
