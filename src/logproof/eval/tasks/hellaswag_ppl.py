"""HellaSwag: the likeliest ending of a short scene.

Texts are cleaned as the field does: markup in square brackets goes, ` [title]` becomes a full stop, double
spaces become one. Where a row has ctx_a and ctx_b, ctx_b is joined with its first letter in upper case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from logproof.eval.tasks.option_prompts import ppl_item
from logproof.eval.tasks.rows import HellaswagRow
from logproof.eval.tasks.task import PplItem, Task, blocks

_MARKUP = re.compile(r"\[[^\]]*\]")


def clean(text: str) -> str:
    """The text without WikiHow markup."""
    text = _MARKUP.sub("", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ").strip()


def build(row: HellaswagRow, shots: Sequence[HellaswagRow]) -> PplItem:
    """The item of a row."""
    solved = [f"{_scene(s)} {clean(s.endings[s.gold])}" for s in shots]
    return ppl_item(blocks([*solved, _scene(row)]), [clean(e) for e in row.endings], row.gold)


def _scene(row: HellaswagRow) -> str:
    scene = row.ctx
    if row.ctx_a is not None and row.ctx_b is not None:
        scene = f"{row.ctx_a} {row.ctx_b.capitalize()}"
    return clean(f"{row.activity_label}: {scene}")


TASK = Task(
    name="hellaswag_ppl",
    kind="ppl",
    about="endings of everyday scenes, scored",
    dataset="hellaswag",
    split="validation",
    shot_split="train",
    shots=0,
    row_type=HellaswagRow,
    build=build,
)
