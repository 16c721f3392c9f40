"""One run into one store: prepare, open the store, run what is not done, report.

The store's directory holds the run. `report.json` beside it is written at the end, also
of a run that one signal stopped. After a fatal error or a second signal what was stored is kept, without it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from logproof.eval import report
from logproof.eval.prepare import Entry, prepare, provenance
from logproof.eval.report import Report
from logproof.eval.runner import Ended, Policy, Progress, Runner, run_until_signal
from logproof.models.connect import Connection
from logproof.records.store import open_run


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. entries: tasks with settings. source: of data. out: directory of the store.

    resume: go on with a stored run; accept: fingerprints that may be new then.
    """

    entries: Sequence[Entry]
    out: Path
    source: str | None = None
    policy: Policy = Policy()
    resume: bool = False
    accept: Collection[str] = ()


class Finished(msgspec.Struct, frozen=True):
    """How a run ended, and what its store says now."""

    ended: Ended
    report: Report
    path: Path


async def execute(order: Order, connection: Connection, progress: Progress | None = None) -> Finished:
    """Run an order over an open connection.

    Raises UsageError kinds before the first request; ResumeRefused, StoreLocked, StoreError for the store; the
    runner's fatal errors. SIGINT and SIGTERM end it as runner.run_until_signal says.
    """
    jobs = await prepare(order.entries, order.source, connection)
    scheduling = {"concurrency": order.policy.concurrency, "max_failures": order.policy.max_failures}
    came_from = provenance(jobs, connection, scheduling)
    key = connection.endpoint.key
    secrets = [key.reveal()] if key is not None else []
    store = open_run(order.out, came_from, resume=order.resume, accept_fingerprints=order.accept, secrets=secrets)
    with store:
        runner = Runner(jobs, connection, store, order.policy, store.done(), progress)
        ended = await run_until_signal(runner)
        store.flush()
        made = report.build(store)
        report.write(made, order.out)
    return Finished(ended, made, order.out)
