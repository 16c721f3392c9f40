"""Few-shot rows: drawn by a seed from a named split, never the row itself.

The draw depends on the seed and on contents only, so it is the same at any limit, order or concurrency. All
rows of a task share one ranking of the pool, so their prompts share a prefix that engines can cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

from logproof.errors import DatasetError
from logproof.eval.tasks.datasets import Doc
from logproof.eval.tasks.rows import Row

R = TypeVar("R", bound=Row)


def draw(doc: Doc[R], pool: Sequence[Doc[R]], shots: int, seed: int) -> list[Doc[R]]:
    """`shots` rows of the pool other than `doc` by content, in drawn order.

    Every row of the pool has the key SHA-256(seed, its digest); the smallest keys win.
    Raises DatasetError where the pool has too few other rows.
    """
    if shots == 0:
        return []
    others = [d for d in pool if d.digest != doc.digest]
    if len(others) < shots:
        raise DatasetError(
            f"{doc.where}: {shots} few-shot rows asked, the pool has {len(others)} besides the row itself",
            hint=f"ask for at most {len(others)} shots, or give a larger pool with --data",
        )
    return sorted(others, key=lambda d: hashlib.sha256(f"{seed}/{d.digest}".encode()).digest())[:shots]
