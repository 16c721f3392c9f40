"""MMLU: exam questions; the label ` A`, ` B`, ... scored as the next token behind `Answer:`."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from logproof.eval.tasks.rows import MmluRow
from logproof.eval.tasks.task import ClpItem, Task, blocks


def build(row: MmluRow, shots: Sequence[MmluRow]) -> ClpItem:
    """The item of a row; few-shot rows are of its subject."""
    subject = row.subject.replace("_", " ")
    head = f"The following are multiple choice questions (with answers) about {subject}."
    solved = [f"{_ask(s)} {ascii_uppercase[s.answer]}" for s in shots]
    labels = tuple(f" {letter}" for letter in _letters(row))
    return ClpItem(blocks([head, *solved, _ask(row)]), labels, row.answer)


def _ask(row: MmluRow) -> str:
    options = [f"{letter}. {text}" for letter, text in zip(_letters(row), row.choices, strict=True)]
    return "\n".join([row.question.strip(), *options, "Answer:"])


def _letters(row: MmluRow) -> str:
    return ascii_uppercase[: len(row.choices)]


TASK = Task(
    name="mmlu_clp",
    kind="clp",
    about="exam questions, answer letters scored",
    dataset="mmlu",
    split="test",
    shot_split="dev",
    shots=5,
    row_type=MmluRow,
    build=build,
    eligible=lambda row, candidate: row.subject == candidate.subject,
)
