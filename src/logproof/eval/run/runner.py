"""Runner: samples of many tasks through one pool of endpoints, as fast as it allows and no sample created too early.

As many workers as the pace lets in pull samples from one iterator that goes round the tasks and, within a task,
in dataset order; so at most that many samples exist at a time, whatever the number of rows. The requests of a
sample go out together; the transport bounds what is in flight. A sample that fails is recorded as failed with its
reason and the run goes on, unless the policy says stop. A key that the server refuses, an unknown model, an engine
that is gone (outage.py) and a store that cannot be written end the run: no later sample could do better.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from logproof.client.outage import PATIENCE_S
from logproof.client.pool import Pool, PoolReply
from logproof.errors import AuthError, EndpointError, EngineGone, LogproofError, ModelNotFound, RateLimited, StoreError
from logproof.eval.plan.jobs import Job
from logproof.eval.plan.method import requests
from logproof.eval.run import guard
from logproof.eval.run.counters import Counters
from logproof.eval.run.events import Events, NoEvents
from logproof.eval.run.pace import Pace
from logproof.eval.score.outcome import Outcome, score
from logproof.eval.score.stored_calls import call_record, failed_record
from logproof.eval.tasks.datasets import Doc
from logproof.eval.tasks.rows import Row
from logproof.eval.tasks.task import Item
from logproof.ir.request import Request
from logproof.ir.response import Response
from logproof.store.digest import call_key
from logproof.store.records import CallRecord, SampleRecord

FATAL = (AuthError, ModelNotFound, EngineGone, StoreError)
"""Errors that every later sample would meet too."""

GC_THRESHOLD = 50_000
"""Allocations between two runs of the cyclic collector while a run goes on: it takes a third of a client's time
at the interpreter's default."""


class RecordSink(Protocol):
    """Where records go: a RunStore, or a list in tests."""

    def put_call(self, record: CallRecord) -> None: ...

    def put_sample(self, record: SampleRecord) -> None: ...

    def flush(self) -> None: ...


class Progress(Protocol):
    """Who is told how a run goes on."""

    def begin(self, task: str, total: int, done: int) -> None:
        """A task has `total` samples, of which `done` are stored already."""

    def advance(self, task: str, ok: bool, count: int = 1) -> None:
        """So many more samples have ended."""


class CanaryScorer(Protocol):
    """Who scores a fixed prompt again and again, see canary.py."""

    async def score(self, when: Literal["start", "middle", "end"]) -> None: ...


class RunPolicy(msgspec.Struct, frozen=True):
    """concurrency: samples at a time (pace.py). max_failures: failed samples that end the run once there are more.

    patience: seconds to wait for an engine that is gone (outage.py).
    """

    concurrency: int | Literal["auto"] = 8
    max_failures: int | None = None
    patience: float = PATIENCE_S


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ended. ran: samples that were sent now. reason: None where it came to its end."""

    ran: int
    skipped: int
    failed: int
    counters: Counters
    reason: str | None = None
    interrupted: bool = False


class _Work(msgspec.Struct, frozen=True, eq=False):
    job: Job
    doc: Doc[Row]
    repeat: int
    key: str


class Runner:
    """One run. Build it, then `await run()`; `stop` ends it after the samples in flight."""

    def __init__(
        self,
        jobs: list[Job],
        pool: Pool,
        sink: RecordSink,
        policy: RunPolicy,
        done: Collection[str] = (),
        progress: Progress | None = None,
        *,
        events: Events | None = None,
        canary: CanaryScorer | None = None,
    ) -> None:
        """done: keys of finished samples. canary: asked before the first sample, at half of them and at the end."""
        self._jobs = jobs
        self._pool = pool
        self._sink = sink
        self._policy = policy
        self._done = done
        self._progress = progress
        self._events = events or NoEvents()
        self._canary = canary
        self._half = max(1, (sum(job.samples for job in jobs) - len(done)) // 2)
        self._reason: str | None = None
        self._interrupted = False
        self._ran = self._skipped = self._failed = 0
        self.counters = Counters()
        self.pace = Pace(policy.concurrency, on_change=self._pace_changed)
        pool.subscribe(self)
        pool.outage.wait_at_most(policy.patience)

    def outage(self, line: str) -> None:
        """Log an outage; the pool calls it."""
        self._events.emit("outage", said=line)

    def rest(self, endpoint: str, error: EndpointError, seconds: float) -> None:
        """Log the rest of an endpoint; the pool calls it."""
        self._events.emit("endpoint_rests", endpoint=endpoint, error=error.message, seconds=seconds)

    def _pace_changed(self, before: int, after: int, why: str) -> None:
        self._events.emit("concurrency", before=before, after=after, why=why)

    async def run(self) -> RunEnd:
        """Run every sample that is not done. Raises the fatal errors of the module's docstring."""
        work = self._pending()
        first = next(work, None)
        with _fewer_collections():
            try:
                if first is not None:
                    await self._work(chain([first], work))
            except EngineGone:
                if not self._interrupted:
                    raise
            finally:
                self._sink.flush()
        return RunEnd(self._ran, self._skipped, self._failed, self.counters, self._reason, self._interrupted)

    async def _work(self, work: Iterator[_Work]) -> None:
        await self._score_canary("start")
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self.pace.most):
                    group.create_task(self._worker(number, work))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        if not self._interrupted:
            await self._score_canary("end")

    def stop(self, reason: str, *, interrupted: bool = False) -> None:
        """Start no further sample. interrupted: nor wait for an engine."""
        self._reason = self._reason or reason
        self._interrupted = self._interrupted or interrupted
        if interrupted:
            self._pool.outage.wait_at_most(0.0)

    def _pending(self) -> Iterator[_Work]:
        """Samples still to do, one of each task in turn."""
        open_jobs = [self._of(job) for job in self._jobs]
        while open_jobs:
            for work in list(open_jobs):
                sample = next(work, None)
                if sample is None:
                    open_jobs.remove(work)
                else:
                    yield sample

    def _of(self, job: Job) -> Iterator[_Work]:
        if self._progress is not None:
            self._progress.begin(job.task.name, job.samples, 0)
        passed = 0
        for doc in job.docs():
            for repeat in range(job.repeats):
                key = job.key(doc, repeat)
                if key in self._done:
                    passed += 1
                    continue
                passed = self._skip(job, passed)
                yield _Work(job, doc, repeat, key)
        self._skip(job, passed)

    def _skip(self, job: Job, count: int) -> int:
        """Tell of samples that were stored before, all at once; none are left to tell of."""
        self._skipped += count
        if count:
            self._tell(job, True, count)
        return 0

    async def _worker(self, number: int, work: Iterator[_Work]) -> None:
        while True:
            await self.pace.turn(number)
            mine = next(work, None) if self._reason is None else None
            if mine is None:
                return self.pace.end()
            await self._end(mine, await self._sample(mine))

    async def _end(self, work: _Work, record: SampleRecord) -> None:
        """Store a sample, tell of it, and see whether the run may go on."""
        ok = record.status == "ok"
        self._sink.put_sample(record)
        self._ran += 1
        self._failed += not ok
        self.counters.add_sample(ok)
        self._events.emit(
            "sample",
            task=record.task,
            row=record.row_id,
            index=record.index,
            repeat=record.repeat,
            status=record.status,
            reason=record.reason,
        )
        self._tell(work.job, ok)
        limit = self._policy.max_failures
        if limit is not None and self._failed > limit:
            self.stop(f"{self._failed} samples failed, the last: {record.reason}")
        if self._ran == self._half:
            await self._score_canary("middle")

    async def _score_canary(self, when: Literal["start", "middle", "end"]) -> None:
        if self._canary is not None:
            await self._canary.score(when)

    def _tell(self, job: Job, ok: bool, count: int = 1) -> None:
        if self._progress is not None:
            self._progress.advance(job.task.name, ok, count)

    async def _sample(self, work: _Work) -> SampleRecord:
        """One sample, never raising but for what is fatal."""
        room = self._pool.first.facts.max_model_len
        try:
            item = work.job.item(work.doc)
            contexts = await guard.contexts(item, work.job, self._pool.tokenizer, room)
            replies = await self._calls(item, work)
            for reply in replies.values():
                guard.check_room(item, work.job, reply, room)
            outcome = score(item, work.job.plan, replies, contexts)
        except FATAL:
            raise
        except LogproofError as error:
            return _record(work, None, f"{type(error).__name__}: {error.message}")
        return _record(work, outcome, None)

    async def _calls(self, item: Item, work: _Work) -> dict[str, Response]:
        """All requests of a sample at once; every call is recorded, then the first failure is raised."""
        parts = requests(item, work.job.plan, work.repeat)
        results = await asyncio.gather(*(self._call(request) for _, request in parts))
        replies = {}
        errors = []
        for (part, request), reached in zip(parts, results, strict=True):
            self._keep(self._call_record(work, part, request, reached), reached)
            if isinstance(reached.result, LogproofError):
                errors.append(reached.result)
            else:
                replies[part] = reached.result.response
        if errors:
            raise next((e for e in errors if isinstance(e, FATAL)), errors[0])
        return replies

    async def _call(self, request: Request) -> PoolReply:
        begun = time.monotonic()
        self.counters.in_flight += 1
        try:
            reached = await self._checked_call(request)
        finally:
            self.counters.in_flight -= 1
        if isinstance(reached.result, LogproofError):
            self.counters.add_failure(_attempts(reached.result))
            if isinstance(reached.result, RateLimited):
                self.pace.overloaded()
        else:
            self.counters.add(reached.result, time.monotonic() - begun)
            self.pace.replied(reached.result.attempts)
        return reached

    async def _checked_call(self, request: Request) -> PoolReply:
        """The call, failed where the reply answers another request."""
        reached = await self._pool.call(request)
        if isinstance(reached.result, LogproofError):
            return reached
        try:
            await guard.check_prompt(request, reached.result.response, self._pool.tokenizer)
        except LogproofError as error:
            return msgspec.structs.replace(reached, result=error)
        return reached

    def _keep(self, record: CallRecord, reached: PoolReply) -> None:
        self._sink.put_call(record)
        usage = None if isinstance(reached.result, LogproofError) else reached.result.response.usage
        self._events.emit(
            "call",
            sample=record.sample_key,
            part=record.part,
            endpoint=record.endpoint,
            status=record.status,
            error=record.error and f"{record.error_type}: {record.error}",
            attempts=record.attempts,
            seconds=round(record.seconds, 6),
            prompt_tokens=usage.prompt if usage is not None else None,
            completion_tokens=usage.completion if usage is not None else None,
        )

    def _call_record(self, work: _Work, part: str, request: Request, reached: PoolReply) -> CallRecord:
        first = self._pool.first
        dialect = first.client.dialect.id
        key = call_key(request, first.model, dialect, work.repeat)
        if isinstance(reached.result, LogproofError):
            return failed_record(key, work.key, part, request, dialect, reached.result, reached.endpoint)
        return call_record(key, work.key, part, reached.result, reached.endpoint)


def _attempts(error: LogproofError) -> int:
    return error.attempts if isinstance(error, EndpointError) else 0


def _record(work: _Work, outcome: Outcome | None, reason: str | None) -> SampleRecord:
    row_id = getattr(work.doc.row, "id", None) or Path(work.doc.where).name
    record = SampleRecord(
        key=work.key,
        task=work.job.task.name,
        row_id=str(row_id),
        index=work.doc.index,
        repeat=work.repeat,
        status="failed",
        reason=reason,
    )
    if outcome is None:
        return record
    output = {**outcome.output, "flags": list(outcome.flags)}
    return msgspec.structs.replace(record, status="ok", scores=outcome.scores, gold=outcome.gold, output=output)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first plain exception of a nested group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def _fewer_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def run_until_signal(runner: Runner) -> RunEnd:
    """Run; SIGINT or SIGTERM ends it after the samples in flight, a second one at once.

    The second raises CancelledError; what was put into the store is kept either way.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(runner.run())
    seen = 0

    def on_signal(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            runner.stop(f"stopped by {name}", interrupted=True)
        else:
            task.cancel()

    handled = (signal.SIGINT, signal.SIGTERM)
    for number in handled:
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        return await task
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
