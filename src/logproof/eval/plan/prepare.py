"""Before a run: tasks, data, few-shot rows, methods and label ids, checked and made ready for one connection.

`load` refuses what can be refused without an endpoint: unknown tasks, bad rows, a limit that is none. `prepare`
refuses, before the first request of the run, what a connection shows: a dialect that cannot give what a task needs,
labels that are not one token each, a completion longer than the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

import msgspec

from logproof.client.connect import Connection
from logproof.client.tokenizer import Tokenizer
from logproof.dialects.registry import fitting, get_dialect
from logproof.errors import PlanRefused, UsageError
from logproof.eval.plan.jobs import Job
from logproof.eval.plan.method import LABEL_CONTEXT, TaskPlan, choose_method, max_tokens
from logproof.eval.plan.run_identity import task_identity
from logproof.eval.tasks.datasets import Dataset, Doc, check_limit, count_limit, open_dataset, pool
from logproof.eval.tasks.rows import Row
from logproof.eval.tasks.task import AnyTask, GenItem, Settings
from logproof.eval.tasks.task_list import get_task
from logproof.store.digest import digest


class LoadedTask(msgspec.Struct, frozen=True, eq=False):
    """One task with its rows. count: rows under the limit. pool: few-shot rows, `shots` of them for each item."""

    task: AnyTask
    settings: Settings
    data: Dataset[Row]
    pool: list[Doc[Row]]
    shots: int
    count: int


Entry = tuple[str, Settings]
"""A task's name, and the settings it is to run with."""


def load(entries: Sequence[Entry], source: str | None) -> list[LoadedTask]:
    """The named tasks with their rows, in that order. source: see datasets.py.

    Raises UsageError kinds: a task that is unknown or named twice, a limit that is none, DatasetError.
    """
    names = [name for name, _ in entries]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None or not names:
        raise UsageError(f"task {twice!r} is named twice" if twice else "no task is named", hint="name each task once")
    tasks = [(get_task(name), settings) for name, settings in entries]
    for _, settings in tasks:
        check_limit(settings.limit)
    return [_loaded(task, settings, source) for task, settings in tasks]


def _loaded(task: AnyTask, settings: Settings, source: str | None) -> LoadedTask:
    data = open_dataset(source, task.dataset, task.split, task.row_type)
    count = data.count if settings.limit is None else count_limit(settings.limit, data.count)
    shots = task.shots if settings.shots is None else settings.shots
    shared = pool(open_dataset(source, task.dataset, task.shot_split, task.row_type)) if shots else []
    return LoadedTask(task, settings, data, shared, shots, count)


async def prepare(loaded: Sequence[LoadedTask], connection: Connection) -> list[Job]:
    """Jobs of loaded tasks, in that order. Raises PlanRefused, and DatasetError for a first row that makes no item."""
    return [await _job(one, connection) for one in loaded]


async def _job(loaded: LoadedTask, connection: Connection) -> Job:
    task, settings = loaded.task, loaded.settings
    facts, tokenizer = connection.facts, connection.tokenizer
    method = choose_method(
        task.kind,
        settings,
        connection.client.dialect,
        facts,
        tokenizer=tokenizer is not None,
        others=lambda: [get_dialect(name) for name in fitting(facts)],
    )
    labels = await label_ids(tokenizer) if task.kind == "clp" and tokenizer is not None else {}
    plan = TaskPlan(connection.model, method, settings, labels)
    job = Job(
        task=task,
        plan=plan,
        data=loaded.data,
        pool=loaded.pool,
        shots=loaded.shots,
        count=loaded.count,
        identity=digest(task_identity(task, plan, loaded.shots, connection)),
    )
    _check_context(job, connection)
    return job


def _check_context(job: Job, connection: Connection) -> None:
    """A first row that is broken, or a completion that no prompt can stand before, is told before the run."""
    first = job.item(next(job.docs()))
    room = connection.facts.max_model_len
    if isinstance(first, GenItem) and room is not None and max_tokens(first, job.plan.settings) >= room:
        raise PlanRefused(
            f"{job.task.name}: {max_tokens(first, job.plan.settings)} tokens of completion fill the whole context of "
            f"{room}",
            hint="ask for fewer with --max-tokens",
        )


async def label_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """{label text: token id} of ` A` to ` Z`, as the tokenizer writes them behind `Answer:`; most tasks use four.

    A label that is not one token of its own there is left out. Raises PlanRefused where ` A` to ` D` are not.
    """
    alone = await tokenizer.encode(LABEL_CONTEXT)
    labels = {}
    for letter in ascii_uppercase:
        ids = await tokenizer.encode(f"{LABEL_CONTEXT} {letter}")
        if ids[: len(alone)] == alone and len(ids) == len(alone) + 1:
            labels[f" {letter}"] = ids[-1]
        elif letter in "ABCD":
            raise PlanRefused(
                f"the label ' {letter}' is not one token behind {LABEL_CONTEXT!r} in this model's tokenizer",
                hint="score the options instead (a ppl task)",
            )
    return labels
