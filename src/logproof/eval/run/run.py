"""One run into one store: connect, prepare, open the store, run what is not done, report.

The store's directory holds the run. `report.json` beside it is written at the end, also
of a run that one signal stopped. After a fatal error or a second signal what was stored is kept, without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec

from logproof.client.connect import Announce, Connection, Options
from logproof.client.pool import Pool, check_urls, open_pool
from logproof.errors import UsageError, clip
from logproof.eval.plan.prepare import Entry, LoadedTask, load, prepare
from logproof.eval.plan.run_identity import provenance
from logproof.eval.report import report
from logproof.eval.report.report import Report
from logproof.eval.run.canary import Canary
from logproof.eval.run.counters import Counters
from logproof.eval.run.events import EventLog, Events, NoEvents
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

    @property
    def exit_code(self) -> int:
        """130 interrupted, 1 ended early, else the report's."""
        if self.ended.interrupted:
            return 130
        return 1 if self.ended.reason is not None else self.report.exit_code


def check(order: Order) -> list[LoadedTask]:
    """All that shows before anything is sent: the tasks with their rows. Raises UsageError kinds, StoreError."""
    if order.metrics is not None:
        _metrics_module()
    if not order.resume:
        refuse_stored(order.out)
    return load(order.entries, order.source)


async def plan_order(order: Order, urls: Sequence[str], options: Options, announce: Announce) -> None:
    """Connect and plan an order without running it. Raises what would stop it before its first request."""
    check_urls(urls, options)
    loaded = check(order)
    async with open_pool(urls, options, announce) as pool:
        await prepare(loaded, pool.first)


async def run_order(
    order: Order,
    urls: Sequence[str],
    options: Options,
    *,
    announce: Announce = lambda line: None,
    progress: AbstractContextManager[Progress] | None = None,
) -> RunResult:
    """Connect to the endpoints of one model and run an order there.

    announce: takes lines for the user: what was found, outages. progress: entered once the run begins. Raises what
    `open_pool` and `execute` raise.
    """
    check_urls(urls, options)
    loaded = check(order)
    async with open_pool(urls, options, announce) as pool:
        places = ", ".join(c.endpoint.display for c in pool.connections)
        announce(f"{pool.first.model} at {places} over {pool.first.client.dialect.id} -> {order.out}")
        await _announce_beginning(pool.first, announce)
        with progress or nullcontext() as bars:
            return await execute(order, pool, bars, loaded)


async def _announce_beginning(connection: Connection, announce: Announce) -> None:
    """Whether the tokenizer puts a token before a prompt decides perplexities; so it is shown."""
    if connection.tokenizer is not None:
        first = (await connection.tokenizer.encode("Question:"))[0]
        text = await connection.tokenizer.text(first)
        announce(f"a prompt 'Question:' begins with token {first} {clip(repr(text), 40)}")


async def execute(
    order: Order, pool: Pool, progress: Progress | None = None, loaded: Sequence[LoadedTask] | None = None
) -> RunResult:
    """Run an order over open endpoints. loaded: what `check` gave, where the caller has asked it.

    Raises UsageError kinds before the first request; ResumeRefused, StoreLocked, StoreError for the store and the
    log; the runner's fatal errors. SIGINT and SIGTERM end it as stop_signals.py says.
    """
    jobs = await prepare(check(order) if loaded is None else loaded, pool.first)
    scheduling = {"concurrency": order.policy.concurrency, "max_failures": order.policy.max_failures}
    origin = provenance(jobs, pool.connections, scheduling)
    live = LiveCounters()
    async with _events(order, pool) as events, _metrics(order, live):
        store = open_run(order.out, origin, resume=order.resume, accept_fingerprints=order.accept, secrets=pool.secrets)
        with store:
            done = store.done()
            events.emit(
                "run_started",
                out=str(order.out),
                model=pool.first.model,
                dialect=pool.first.client.dialect.id,
                endpoints=[c.endpoint.display for c in pool.connections],
                planned=origin.planned,
                stored=len(done),
                **scheduling,
            )
            canary = Canary(pool.connections, store.put_call, len(store.sessions()), events) if order.canary else None
            runner = Runner(jobs, pool, store, order.policy, done, progress, events=events, canary=canary)
            live.follow(runner)
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
        self._counters, self._pace = Counters(), Pace(1)

    def follow(self, runner: Runner) -> None:
        """Show the counters of this run from now on."""
        self._counters, self._pace = runner.counters, runner.pace

    def read(self) -> tuple[Counters, int]:
        """The counters, and how many samples run at a time now."""
        return self._counters, self._pace.limit


@asynccontextmanager
async def _events(order: Order, pool: Pool) -> AsyncIterator[Events]:
    if order.log is None:
        yield NoEvents()
        return
    with EventLog(order.log, pool.secrets) as log:
        yield log


@asynccontextmanager
async def _metrics(order: Order, live: LiveCounters) -> AsyncIterator[None]:
    if order.metrics is None:
        yield
        return
    async with _metrics_module().metrics_port(order.metrics, live.read):
        yield


def _metrics_module() -> ModuleType:
    """What serves the counters. Raises UsageError where its extra is not installed."""
    try:
        return import_module("logproof.eval.run.metrics_port")
    except ImportError:
        raise UsageError("--metrics needs the optional extra", hint="pip install 'logproof[metrics]'") from None
