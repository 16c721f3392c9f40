from __future__ import annotations

import asyncio

import pytest

from eval.toy import ToyEngine, connection, ready
from logproof.errors import (
    DatasetError,
    PlanRefused,
    UsageError,
)
from logproof.eval.plan.prepare import label_ids


@pytest.mark.parametrize(("names", "said"), [((), "no task"), (("mmlu_clp", "mmlu_clp"), "named twice")])
def test_tasks_are_named_once(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ready(connection(ToyEngine()), *names)


def test_a_completion_as_long_as_the_context_is_refused_before_the_run() -> None:
    with pytest.raises(PlanRefused, match="fill the whole context"):
        ready(connection(ToyEngine(), max_model_len=256), "gsm8k_gen")


def test_too_few_rows_for_the_shots_are_told_before_the_run() -> None:
    with pytest.raises(DatasetError, match="9 few-shot rows asked, the pool has 8"):
        ready(connection(ToyEngine()), "gsm8k_gen", shots=9)


def test_labels_that_are_not_one_token_are_refused() -> None:
    class Letters:
        async def encode(self, text: str) -> tuple[int, ...]:
            return tuple(text.encode())

    class NoZ(Letters):
        async def encode(self, text: str) -> tuple[int, ...]:
            base = (1, 2)
            return base if text.endswith(":") else (*base, ord(text[-1])) if text[-1] < "Y" else (9, 9)

    with pytest.raises(PlanRefused, match="' A' is not one token"):
        asyncio.run(label_ids(Letters()))
    found = asyncio.run(label_ids(NoZ()))
    assert found[" A"] == 65
    assert " Z" not in found
