"""One run into one store: prepare, open the store, run what is not done, report.

The store's directory holds the run. `report.json` beside it is written at the end, also
of a run that one signal stopped. After a fatal error or a second signal what was stored is kept, without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from logproof.client.pool import Pool
from logproof.eval.plan.prepare import Entry, LoadedTask, load, prepare
from logproof.eval.plan.run_identity import provenance
from logproof.eval.report import report
from logproof.eval.report.report import Report
from logproof.eval.run.canary import Canary
from logproof.eval.run.counters import Counters
from logproof.eval.run.events import EventLog, Events, NoEvents
from logproof.eval.run.metrics_port import exposition, metrics_port
from logproof.eval.run.pace import Pace
from logproof.eval.run.runner import Progress, RunEnd, Runner, RunPolicy
from logproof.eval.run.stop_signals import run_until_signal
from logproof.store.run_store import open_run, refuse_stored


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. entries: tasks with settings. source: of data. out: directory of the store.

    resume: go on with a stored run; accept: fingerprints that may be new then. canary: score a fixed prompt at
    start, middle and end. log: file of events. metrics: port of counters while the run goes on.
    """

    entries: Sequence[Entry]
    out: Path
    source: str | None = None
    policy: RunPolicy = RunPolicy()
    resume: bool = False
    accept: Collection[str] = ()
    canary: bool = False
    log: Path | None = None
    metrics: int | None = None


class RunResult(msgspec.Struct, frozen=True):
    """How a run ended, and what its store says now."""

    ended: RunEnd
    report: Report
    path: Path


def check(order: Order) -> list[LoadedTask]:
    """All that shows before anything is sent: the tasks with their rows. Raises UsageError kinds, StoreError."""
    if not order.resume:
        refuse_stored(order.out)
    return load(order.entries, order.source)


async def execute(
    order: Order, pool: Pool, progress: Progress | None = None, loaded: Sequence[LoadedTask] | None = None
) -> RunResult:
    """Run an order over open endpoints. loaded: what `check` gave, where the caller has asked it.

    Raises UsageError kinds before the first request; ResumeRefused, StoreLocked, StoreError for the store and the
    log; the runner's fatal errors. SIGINT and SIGTERM end it as stop_signals.py says.
    """
    jobs = await prepare(check(order) if loaded is None else loaded, pool.first)
    scheduling = {"concurrency": order.policy.concurrency, "max_failures": order.policy.max_failures}
    came_from = provenance(jobs, pool.connections, scheduling)
    shown = LiveCounters()
    async with _events(order, pool) as events, _metrics(order, shown):
        store = open_run(
            order.out, came_from, resume=order.resume, accept_fingerprints=order.accept, secrets=pool.secrets
        )
        with store:
            done = store.done()
            events.emit(
                "run_started",
                out=str(order.out),
                model=pool.first.model,
                dialect=pool.first.client.dialect.id,
                endpoints=[c.endpoint.display for c in pool.connections],
                planned=came_from.planned,
                stored=len(done),
                **scheduling,
            )
            canary = Canary(pool.connections, store.put_call, len(store.sessions()), events) if order.canary else None
            runner = Runner(jobs, pool, store, order.policy, done, progress, events=events, canary=canary)
            shown.counters, shown.pace = runner.counters, runner.pace
            ended = await run_until_signal(runner)
            store.flush()
            written = report.build(store)
            report.write(written, order.out)
            events.emit(
                "run_ended",
                ran=ended.ran,
                skipped=ended.skipped,
                failed=ended.failed,
                reason=ended.reason,
                status=written.status,
                counters=ended.counters.line(),
            )
    return RunResult(ended, written, order.out)


class LiveCounters:
    """What the port of counters shows: of a run that has not begun, zeros."""

    def __init__(self) -> None:
        self.counters, self.pace = Counters(), Pace(1)

    def text(self) -> str:
        """The counters as Prometheus reads them."""
        return exposition(self.counters, self.pace.limit)


@asynccontextmanager
async def _events(order: Order, pool: Pool) -> AsyncIterator[Events]:
    if order.log is None:
        yield NoEvents()
        return
    with EventLog(order.log, pool.secrets) as log:
        yield log


@asynccontextmanager
async def _metrics(order: Order, shown: LiveCounters) -> AsyncIterator[None]:
    if order.metrics is None:
        yield
        return
    async with metrics_port(order.metrics, shown.text):
        yield
