from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.toy import stored
from logproof.eval.report.compare import Comparison, compare
from logproof.eval.report.parity import RunScores, run_scores
from logproof.store.run_store import RunStore

ALL_KINDS = ("arc_easy_ppl", "mmlu_clp", "gsm8k_gen")


def run_pair(tmp: Path, a: Any, b: Any, *names: str, **settings: Any) -> tuple[RunScores, RunScores, Comparison]:
    """Scores of two runs into `tmp`, and their comparison."""
    first = stored(tmp / "a", a, *(names or ALL_KINDS), limit="4", shots=1, **settings)
    second = stored(tmp / "b", b, *(names or ALL_KINDS), limit="4", shots=1, **settings)
    with RunStore.read(tmp / "a") as one, RunStore.read(tmp / "b") as two:
        return run_scores(first.report), run_scores(second.report), compare(one, two)
