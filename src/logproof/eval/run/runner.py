"""Runner: samples of many tasks through one pool of endpoints, as fast as it allows and no sample created too early.

As many workers as the pace lets in pull samples from one iterator that goes round the tasks and, within a task,
in dataset order; so at most that many samples exist at a time, whatever the number of rows. A sample that fails is
recorded as failed with its reason (sample_runner.py) and the run goes on, unless the policy says stop. A
key that the server refuses, an unknown model, an engine that is gone (outage.py) and a store that cannot be written
end the run: no later sample could do better.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Literal, Protocol

import msgspec

from logproof.client.outage import PATIENCE_S
from logproof.client.pool import Pool
from logproof.errors import EndpointError, EngineGone
from logproof.eval.plan.jobs import Job
from logproof.eval.run.counters import Counters
from logproof.eval.run.events import Events, NoEvents
from logproof.eval.run.pace import Pace
from logproof.eval.run.sample_runner import PlannedSample, RecordSink, SampleRunner
from logproof.store.records import SampleRecord

GC_THRESHOLD = 50_000
"""Allocations between two runs of the cyclic collector while a run goes on: it takes a third of a client's time
at the interpreter's default."""


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
        self._samples = SampleRunner(pool, sink, self._events, self.counters, self.pace)
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

    async def _work(self, work: Iterator[PlannedSample]) -> None:
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

    def _pending(self) -> Iterator[PlannedSample]:
        """Samples still to do, one of each task in turn."""
        open_jobs = [self._of(job) for job in self._jobs]
        while open_jobs:
            for work in list(open_jobs):
                sample = next(work, None)
                if sample is None:
                    open_jobs.remove(work)
                else:
                    yield sample

    def _of(self, job: Job) -> Iterator[PlannedSample]:
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
                yield PlannedSample(job, doc, repeat, key)
        self._skip(job, passed)

    def _skip(self, job: Job, count: int) -> int:
        """Tell of samples that were stored before, all at once; none are left to tell of."""
        self._skipped += count
        if count:
            self._tell(job, True, count)
        return 0

    async def _worker(self, number: int, work: Iterator[PlannedSample]) -> None:
        while True:
            await self.pace.turn(number)
            sample = next(work, None) if self._reason is None else None
            if sample is None:
                return self.pace.end()
            await self._end(sample, await self._samples.run(sample))

    async def _end(self, work: PlannedSample, record: SampleRecord) -> None:
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
