"""The runs that a run file asks for: one order for each of its models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from logproof.client.connect import Options
from logproof.client.pool import check_urls
from logproof.eval.plan.run_file import ModelEntry, RunFile
from logproof.eval.run.pace import most_at_a_time
from logproof.eval.run.run import Order, check
from logproof.eval.run.runner import RunPolicy
from logproof.http.endpoint import timeouts_within

EXIT_CODES = (0, 2, 1, 4)
"""Exit codes of a run, the worst last."""


class ModelOrder(msgspec.Struct, frozen=True):
    """The run of one model. label: its name in the file. urls: its endpoints."""

    label: str
    urls: Sequence[str]
    order: Order
    options: Options


def model_orders(run: RunFile, *, resume: bool = False, accept: Sequence[str] = ()) -> list[ModelOrder]:
    """The runs of a run file, all checked before the first is begun. resume, accept: beside what the file says.

    Raises UsageError kinds, StoreError.
    """
    orders = [ModelOrder(m.label, m.urls, _order(m, run, resume, accept), _options(m, run)) for m in run.models]
    for model in orders:
        check_urls(model.urls, model.options)
        check(model.order)
    return orders


def worst_exit_code(codes: Iterable[int]) -> int:
    """The exit code of several runs; 0 where there is none."""
    return max(codes, key=EXIT_CODES.index, default=0)


def _order(entry: ModelEntry, run: RunFile, resume: bool, accept: Sequence[str]) -> Order:
    return Order(
        entries=run.entries(),
        out=Path(run.out) / entry.label,
        source=run.data,
        policy=RunPolicy(run.concurrency, 0 if run.fail_fast else run.max_failures, run.patience),
        resume=resume or run.resume,
        accept=[*run.accept, *accept],
        canary=run.canary,
        log=Path(run.log) if run.log is not None else None,
        metrics=run.metrics,
    )


def _options(entry: ModelEntry, run: RunFile) -> Options:
    return Options(
        dialect=entry.dialect,
        model=entry.name,
        key_env=entry.key_env,
        headers=entry.headers,
        timeouts=timeouts_within(entry.timeout),
        tokenizer=Path(entry.tokenizer) if entry.tokenizer is not None else None,
        drop=tuple(entry.drop),
        concurrency=most_at_a_time(run.concurrency),
    )
