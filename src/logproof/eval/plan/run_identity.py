"""What makes a run and its samples the same as another's, to be stored with them.

store/resume_check.py compares what a resumed run brings with what is stored.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import msgspec

from logproof.client.connect import Connection
from logproof.eval.plan.jobs import Job
from logproof.eval.plan.method import TaskPlan
from logproof.eval.tasks.task import AnyTask
from logproof.ir.facts import Facts
from logproof.store.digest import digest
from logproof.store.records import RunProvenance
from logproof.store.resume_check import NO_FINGERPRINT
from logproof.version import VERSION


def task_identity(task: AnyTask, plan: TaskPlan, shots: int, connection: Connection) -> dict[str, object]:
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


def _without_lists(facts: Facts) -> Facts:
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
    facts = {c.endpoint.display: _without_lists(c.facts) for c in connections}
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
