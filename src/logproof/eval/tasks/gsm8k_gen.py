"""GSM8K: word problems; the model writes its working and ends in `#### N`, as its few-shot rows do."""

from __future__ import annotations

from collections.abc import Sequence

from logproof.eval.tasks.rows import Gsm8kRow
from logproof.eval.tasks.task import GenItem, Task, blocks

STOP = ("Question:",)
"""The beginning of a question that the model would ask itself."""
MAX_TOKENS = 256


def build(row: Gsm8kRow, shots: Sequence[Gsm8kRow]) -> GenItem:
    """The item of a row."""
    solved = [f"{_ask(s)} {s.answer.strip()}" for s in shots]
    return GenItem(blocks([*solved, _ask(row)]), STOP, MAX_TOKENS, row.gold)


def _ask(row: Gsm8kRow) -> str:
    return f"Question: {row.question.strip()}\nAnswer:"


TASK = Task(
    name="gsm8k_gen",
    kind="gen",
    about="word problems, the final number read from the working",
    dataset="gsm8k",
    split="test",
    shot_split="train",
    shots=5,
    row_type=Gsm8kRow,
    build=build,
)
