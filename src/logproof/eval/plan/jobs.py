"""Before a run: tasks, data, few-shot rows, methods and label ids, checked and made ready for one connection.

`load` refuses what can be refused without an endpoint: unknown tasks, bad rows, a limit that is none. `prepare`
refuses, before the first request of the run, what a connection shows: a dialect that cannot give what a task needs,
labels that are not one token each, a completion longer than the context.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase

import msgspec

from logproof.client.connect import Connection
from logproof.client.tokenizer import Tokenizer
from logproof.dialects.registry import fitting, get_dialect
from logproof.errors import DatasetError, PlanRefused, UsageError
from logproof.eval.plan.method import LABEL_CONTEXT, TaskPlan, choose_method, max_tokens
from logproof.eval.tasks import fewshot
from logproof.eval.tasks.datasets import Dataset, Doc, check_limit, count_limit, open_dataset, pool
from logproof.eval.tasks.rows import Row
from logproof.eval.tasks.task import AnyTask, GenItem, Item, Settings
from logproof.eval.tasks.task_list import get_task
from logproof.ir.facts import Facts
from logproof.store.digest import digest
from logproof.store.records import RunProvenance
from logproof.store.run_identity import NO_FINGERPRINT
from logproof.version import VERSION


class LoadedTask(msgspec.Struct, frozen=True, eq=False):
    """One task with its rows. count: rows under the limit. pool: few-shot rows, `shots` of them for each item."""

    task: AnyTask
    settings: Settings
    data: Dataset[Row]
    pool: list[Doc[Row]]
    shots: int
    count: int


class Job(msgspec.Struct, frozen=True, eq=False):
    """One task made ready. count: its rows under the limit. shots: few-shot rows of each item."""

    task: AnyTask
    plan: TaskPlan
    data: Dataset[Row]
    pool: list[Doc[Row]]
    shots: int
    count: int
    identity: str

    @property
    def samples(self) -> int:
        """Samples of the whole job, repeats included."""
        return self.count * self.repeats

    @property
    def repeats(self) -> int:
        """Samples a row: only generation differs from draw to draw."""
        return self.plan.settings.repeats if self.task.kind == "gen" else 1

    def docs(self) -> Iterator[Doc[Row]]:
        """The rows to run, in dataset order."""
        return self.data.docs(self.plan.settings.limit)

    def drawn(self, doc: Doc[Row]) -> list[Doc[Row]]:
        """The few-shot rows of a row."""
        candidates = [d for d in self.pool if self.task.eligible(doc.row, d.row)]
        return fewshot.draw(doc, candidates, self.shots, self.plan.settings.seed)

    def item(self, doc: Doc[Row]) -> Item:
        """The item of a row. Raises DatasetError for a row that makes none."""
        try:
            item: Item = self.task.build(doc.row, [d.row for d in self.drawn(doc)])
        except ValueError as error:
            raise DatasetError(f"{doc.where}: {error}") from None
        return item

    def key(self, doc: Doc[Row], repeat: int) -> str:
        """Identity of one sample in the store: SHA-256 of task identity, row content and repeat, hex."""
        return hashlib.sha256(f"{self.identity}/{doc.key}/{repeat}".encode()).hexdigest()


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
        identity=digest(_identity(task, plan, loaded.shots, connection)),
    )
    _check_context(job, connection)
    return job


def _identity(task: AnyTask, plan: TaskPlan, shots: int, connection: Connection) -> dict[str, object]:
    """What makes two samples of one row the same: the limit and the row's place do not."""
    settings = msgspec.structs.replace(plan.settings, limit=None, repeats=1)
    return {
        **task.identity(),
        "shots": shots,
        "settings": settings,
        "way": plan.method,
        "model": plan.model,
        "dialect": connection.client.dialect.id,
    }


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
    found = {}
    for letter in ascii_uppercase:
        ids = await tokenizer.encode(f"{LABEL_CONTEXT} {letter}")
        if ids[: len(alone)] == alone and len(ids) == len(alone) + 1:
            found[f" {letter}"] = ids[-1]
        elif letter in "ABCD":
            raise PlanRefused(
                f"the label ' {letter}' is not one token behind {LABEL_CONTEXT!r} in this model's tokenizer",
                hint="score the options instead (a ppl task)",
            )
    return found


def _brief(facts: Facts) -> Facts:
    """Facts without the long lists that decide nothing more once a run is planned."""
    return msgspec.structs.replace(facts, fields={}, routes=(), sources={})


def deployment(facts: Sequence[Facts]) -> tuple[str, ...]:
    """Names of what may change under an unchanged model name, each to be accepted by name when it does."""
    prints = [f.fingerprint for f in facts if f.fingerprint is not None]
    lengths = [f"max_model_len={f.max_model_len}" for f in facts if f.max_model_len is not None]
    return tuple(dict.fromkeys([*(prints or [NO_FINGERPRINT]), *lengths]))


def provenance(
    jobs: Sequence[Job], connections: Sequence[Connection], scheduling: Mapping[str, object]
) -> RunProvenance:
    """Where the numbers of these jobs come from. connections: that agree in what decides results (pool.py)."""
    first = connections[0]
    facts = {c.endpoint.display: _brief(c.facts) for c in connections}
    few_shot = {j.task.name: digest([d.digest for d in j.pool] if j.shots else []) for j in jobs}
    engines = dict.fromkeys(f"{c.facts.engine or 'unknown'} {c.facts.version or ''}".strip() for c in connections)
    return RunProvenance(
        config={
            "settings": {j.task.name: j.plan.settings for j in jobs},
            "ways": {j.task.name: j.plan.method for j in jobs},
            "shots": {j.task.name: j.shots for j in jobs},
            "dialect": first.client.dialect.id,
            "dropped_leaves": sorted(first.client.drop),
        },
        model={"name": first.model, "root": first.facts.model_root},
        tasks={j.task.name: j.identity for j in jobs},
        datasets={j.task.name: j.data.digest for j in jobs},
        few_shot=few_shot,
        planned={j.task.name: j.samples for j in jobs},
        scheduling=scheduling,
        endpoints=tuple(facts),
        fingerprints=deployment([c.facts for c in connections]),
        versions={"logproof": VERSION, "python": platform.python_version(), "engine": ", ".join(engines)},
        facts=facts if len(connections) > 1 else facts[first.endpoint.display],
    )
