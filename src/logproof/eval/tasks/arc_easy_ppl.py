"""ARC-Easy: school science questions, each answer scored behind `Question: ... Answer:`."""

from __future__ import annotations

from collections.abc import Sequence

from logproof.eval.tasks.option_prompts import ppl_item
from logproof.eval.tasks.rows import ArcRow
from logproof.eval.tasks.task import PplItem, Task, blocks


def build(row: ArcRow, shots: Sequence[ArcRow]) -> PplItem:
    """The item of a row. The neutral context of the unconditional normalisation is `Answer:`."""
    solved = [f"{_ask(s)} {s.choices.text[s.gold].strip()}" for s in shots]
    return ppl_item(blocks([*solved, _ask(row)]), row.choices.text, row.gold, neutral="Answer:")


def _ask(row: ArcRow) -> str:
    return f"Question: {row.question.strip()}\nAnswer:"


TASK = Task(
    name="arc_easy_ppl",
    kind="ppl",
    about="school science questions, answers scored",
    dataset="arc_easy",
    split="test",
    shot_split="train",
    shots=0,
    row_type=ArcRow,
    build=build,
)
