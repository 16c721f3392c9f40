"""Rows of the four benchmarks, in the field names of their published dataset cards.

A row knows its content (what makes two rows the same, whatever id or extra fields they carry) and checks what
its types cannot say. Unknown fields of a file are ignored; wrong or missing ones are faults of that row. Pure.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

MAX_OPTIONS = 26
"""Most choices of a row: labels are single letters."""

_WORKING_END = re.compile(r"####\s*(\S.*)$")


class Row(msgspec.Struct, frozen=True):
    """Base of all rows."""

    def content(self) -> tuple[str, ...]:
        """The texts that make this row what it is: question and choices, not ids."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise ValueError for a row whose fields contradict each other."""
        raise NotImplementedError

    def digest(self) -> str:
        """SHA-256 of the content, hex, with runs of white space counted as one space.

        The unit separator joins the parts: it is white space itself, so no folded part holds it.
        """
        folded = [_folded(text) for text in self.content()]
        return hashlib.sha256("\x1f".join([type(self).__name__, *folded]).encode()).hexdigest()


class Choices(msgspec.Struct, frozen=True):
    """Choices of an ARC row: text[i] is called label[i]."""

    text: list[str]
    label: list[str]


class ArcRow(Row, frozen=True):
    """ARC: answerKey names one of choices.label.

    Some published rows label their choices 1 to n and still give a letter as the key; it then counts from A.
    """

    id: str
    question: str
    choices: Choices
    answerKey: str  # noqa: N815 - the published field name

    def content(self) -> tuple[str, ...]:
        return (self.question, *self.choices.text)

    def check(self) -> None:
        _check_options(self.question, self.choices.text)
        labels = self.choices.label
        _require(len(labels) == len(self.choices.text), f"{len(labels)} labels for {len(self.choices.text)} choices")
        _require(len(set(labels)) == len(labels), "choices.label holds a label twice")
        _require(self._key in labels, f"answerKey {self.answerKey!r} is none of the labels {labels}")

    @property
    def gold(self) -> int:
        """0-based index of the right choice."""
        return self.choices.label.index(self._key)

    @property
    def _key(self) -> str:
        labels, position = self.choices.label, "ABCDEFGHI".find(self.answerKey)
        numbered = labels == [str(i) for i in range(1, len(labels) + 1)]
        return str(position + 1) if numbered and len(self.answerKey) == 1 and position >= 0 else self.answerKey


class HellaswagRow(Row, frozen=True):
    """HellaSwag: label is the index of the right ending, as a string. ctx is ctx_a and ctx_b joined."""

    ind: int
    activity_label: str
    ctx: str
    endings: list[str]
    label: str
    ctx_a: str | None = None
    ctx_b: str | None = None

    def content(self) -> tuple[str, ...]:
        return (self.activity_label, self.ctx, *self.endings)

    def check(self) -> None:
        _check_options(self.ctx, self.endings)
        _require(self.label.isascii() and self.label.isdecimal(), f"label {self.label!r} is no index")
        _require(int(self.label) < len(self.endings), f"label {self.label} with {len(self.endings)} endings")

    @property
    def gold(self) -> int:
        """0-based index of the right ending."""
        return int(self.label)


class MmluRow(Row, frozen=True):
    """MMLU: answer is the 0-based index of the right choice."""

    question: str
    subject: str
    choices: list[str]
    answer: int

    def content(self) -> tuple[str, ...]:
        return (self.subject, self.question, *self.choices)

    def check(self) -> None:
        _check_options(self.question, self.choices)
        _require(0 <= self.answer < len(self.choices), f"answer {self.answer} with {len(self.choices)} choices")


class Gsm8kRow(Row, frozen=True):
    """GSM8K: answer is the working, ending in a line `#### N`."""

    question: str
    answer: str

    def content(self) -> tuple[str, ...]:
        return (self.question, self.answer)

    def check(self) -> None:
        _require(bool(self.question.strip()), "the question is empty")
        _require(_WORKING_END.search(self.answer.rstrip()) is not None, "the answer does not end in `#### N`")

    @property
    def gold(self) -> str:
        """The final number, as written."""
        match = _WORKING_END.search(self.answer.rstrip())
        return match[1].strip() if match else ""


def _folded(text: str) -> str:
    """Runs of white space as one space. A printable text holds no white space but the space itself."""
    plain = text.isprintable() and "  " not in text and text == text.strip()
    return text if plain else " ".join(text.split())


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _check_options(question: str, options: list[str]) -> None:
    _require(bool(question.strip()), "the question is empty")
    _require(2 <= len(options) <= MAX_OPTIONS, f"{len(options)} choices; 2 to {MAX_OPTIONS} are possible")
    _require(all(o.strip() for o in options), "a choice is empty")
