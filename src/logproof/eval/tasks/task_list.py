"""The tasks by name. Adding one takes a file here and a line in `TASKS`."""

from __future__ import annotations

import difflib

from logproof.errors import UsageError
from logproof.eval.tasks import arc_easy_ppl, gsm8k_gen, hellaswag_ppl, mmlu_clp
from logproof.eval.tasks.task import AnyTask

TASKS: dict[str, AnyTask] = {
    "arc_easy_ppl": arc_easy_ppl.TASK,
    "hellaswag_ppl": hellaswag_ppl.TASK,
    "mmlu_clp": mmlu_clp.TASK,
    "gsm8k_gen": gsm8k_gen.TASK,
}
"""Name -> task, in the order in which tables show them."""


def get_task(name: str) -> AnyTask:
    """The task of a name. Raises UsageError for an unknown one, with the nearest known name."""
    if name in TASKS:
        return TASKS[name]
    near = difflib.get_close_matches(name, TASKS, n=1)
    known = f"known tasks: {', '.join(TASKS)}"
    raise UsageError(f"unknown task {name!r}", hint=f"did you mean {near[0]}? {known}" if near else known)
