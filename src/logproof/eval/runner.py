"""Runner: samples of many tasks through one connection, as fast as it allows and no sample created too early.

`concurrency` workers pull samples from one iterator that goes round the tasks and, within a task, in dataset
order; so at most that many samples exist at a time, whatever the number of rows. The requests of a sample go
out together; the transport bounds what is in flight. A sample that fails is recorded as failed with its reason
and the run goes on, unless the policy says stop. A key that the server refuses, an unknown model and a store
that cannot be written end the run: no later sample could do better.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from logproof.errors import AuthError, ContextOverflow, LogproofError, ModelNotFound, StoreError
from logproof.eval.counters import Counters
from logproof.eval.datasets import Doc
from logproof.eval.prepare import Job
from logproof.eval.rows import Row
from logproof.eval.score import Contexts, Outcome, score
from logproof.eval.stored import call_record, failed_record
from logproof.eval.task import GenItem, Item, PplItem
from logproof.eval.ways import max_tokens, requests
from logproof.ir.request import Request
from logproof.ir.response import Response
from logproof.models.client import Call
from logproof.models.connect import Connection
from logproof.records.digest import call_key
from logproof.records.record import CallRecord, SampleRecord

FATAL = (AuthError, ModelNotFound, StoreError)
"""Errors that every later sample would meet too."""

GC_THRESHOLD = 50_000
"""Allocations between two runs of the cyclic collector while a run goes on: it takes a third of a client's time
at the interpreter's default."""


class Sink(Protocol):
    """Where records go: a RunStore, or a list in tests."""

    def put_call(self, record: CallRecord) -> None: ...

    def put_sample(self, record: SampleRecord) -> None: ...

    def flush(self) -> None: ...


class Progress(Protocol):
    """Who is told how a run goes on."""

    def begin(self, task: str, total: int, done: int) -> None:
        """A task has `total` samples, of which `done` are stored already."""

    def advance(self, task: str, ok: bool) -> None:
        """One more sample has ended."""


class Policy(msgspec.Struct, frozen=True):
    """concurrency: samples at a time. max_failures: failed samples that end the run once there are more."""

    concurrency: int = 8
    max_failures: int | None = None


class Ended(msgspec.Struct, frozen=True):
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
        connection: Connection,
        sink: Sink,
        policy: Policy,
        done: Collection[str] = (),
        progress: Progress | None = None,
    ) -> None:
        self._jobs = jobs
        self._connection = connection
        self._sink = sink
        self._policy = policy
        self._done = done
        self._progress = progress
        self._reason: str | None = None
        self._interrupted = False
        self._ran = self._skipped = self._failed = 0
        self._counters = Counters()

    async def run(self) -> Ended:
        """Run every sample that is not done. Raises the fatal errors of the module's docstring."""
        work = self._pending()
        with _fewer_collections():
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._policy.concurrency):
                        group.create_task(self._worker(work))
            except BaseExceptionGroup as errors:
                raise _first(errors) from None
            finally:
                self._sink.flush()
        return Ended(self._ran, self._skipped, self._failed, self._counters, self._reason, self._interrupted)

    def stop(self, reason: str, *, interrupted: bool = False) -> None:
        """Start no further sample."""
        self._reason = self._reason or reason
        self._interrupted = self._interrupted or interrupted

    def _pending(self) -> Iterator[_Work]:
        """Samples still to do, one of each task in turn."""
        open_jobs = [self._of(job) for job in self._jobs]
        while open_jobs:
            for work in list(open_jobs):
                found = next(work, None)
                if found is None:
                    open_jobs.remove(work)
                else:
                    yield found

    def _of(self, job: Job) -> Iterator[_Work]:
        if self._progress is not None:
            self._progress.begin(job.task.name, job.samples, 0)
        for doc in job.docs():
            for repeat in range(job.repeats):
                key = job.key(doc, repeat)
                if key in self._done:
                    self._skipped += 1
                    self._tell(job, True)
                else:
                    yield _Work(job, doc, repeat, key)

    async def _worker(self, work: Iterator[_Work]) -> None:
        while self._reason is None and (mine := next(work, None)) is not None:
            record = await self._sample(mine)
            self._sink.put_sample(record)
            self._ran += 1
            ok = record.status == "ok"
            self._failed += not ok
            self._tell(mine.job, ok)
            limit = self._policy.max_failures
            if limit is not None and self._failed > limit:
                self.stop(f"{self._failed} samples failed, the last: {record.reason}")

    def _tell(self, job: Job, ok: bool) -> None:
        if self._progress is not None:
            self._progress.advance(job.task.name, ok)

    async def _sample(self, work: _Work) -> SampleRecord:
        """One sample, never raising but for what is fatal."""
        try:
            item = work.job.item(work.doc)
            contexts = await self._contexts(item, work.job)
            replies = await self._calls(item, work)
            for reply in replies.values():
                self._check_room(item, work.job, reply)
            outcome = score(item, work.job.plan, replies, contexts)
        except FATAL:
            raise
        except LogproofError as error:
            return _record(work, None, f"{type(error).__name__}: {error.message}")
        return _record(work, outcome, None)

    async def _contexts(self, item: Item, job: Job) -> Contexts:
        """Ids of the contexts alone, where a tokenizer is known; a prompt that cannot fit is refused here."""
        tokenizer = self._connection.tokenizer
        if tokenizer is None:
            return Contexts()
        if isinstance(item, PplItem):
            context = await tokenizer.encode(item.context)
            self._refuse_overflow(len(context), 1)
            wanted = job.plan.settings.uncond and item.neutral is not None
            return Contexts(context, await tokenizer.encode(item.neutral or "") if wanted else None)
        if isinstance(item, GenItem) and job.plan.way.form == "text":
            self._refuse_overflow(len(await tokenizer.encode(item.prompt)), max_tokens(item, job.plan.settings))
        return Contexts()

    def _refuse_overflow(self, prompt: int, completion: int) -> None:
        room = self._connection.facts.max_model_len
        if room is not None and prompt + completion > room:
            raise ContextOverflow(
                400, f"not sent: {prompt} tokens of prompt and {completion} of completion, the context has {room}"
            )

    def _check_room(self, item: Item, job: Job, reply: Response) -> None:
        """Some servers shorten a completion to what the context leaves, without a word."""
        room, usage = self._connection.facts.max_model_len, reply.usage
        if room is None or not isinstance(item, GenItem) or usage.prompt is None or usage.completion is None:
            return
        cut = usage.completion < max_tokens(item, job.plan.settings) and usage.prompt + usage.completion >= room
        if cut and reply.choices[0].finish.reason == "length":
            raise ContextOverflow(400, f"the completion was cut at {usage.completion} tokens by the context of {room}")

    async def _calls(self, item: Item, work: _Work) -> dict[str, Response]:
        """All requests of a sample at once; every call is recorded, then the first failure is raised."""
        asked = requests(item, work.job.plan, work.repeat)
        results = await asyncio.gather(*(self._call(request) for _, request in asked))
        replies = {}
        errors = []
        for (part, request), result in zip(asked, results, strict=True):
            self._sink.put_call(self._call_record(work, part, request, result))
            if isinstance(result, LogproofError):
                errors.append(result)
            else:
                replies[part] = result.response
        if errors:
            raise next((e for e in errors if isinstance(e, FATAL)), errors[0])
        return replies

    async def _call(self, request: Request) -> Call | LogproofError:
        try:
            call = await self._connection.client.call(request)
        except LogproofError as error:
            self._counters.add_failure()
            return error
        self._counters.add(call)
        return call

    def _call_record(self, work: _Work, part: str, request: Request, result: Call | LogproofError) -> CallRecord:
        connection = self._connection
        dialect, shown = connection.client.dialect.id, connection.endpoint.display
        key = call_key(request, connection.model, dialect, work.repeat)
        if isinstance(result, LogproofError):
            return failed_record(key, work.key, part, request, dialect, result, shown)
        return call_record(key, work.key, part, result, shown)


def _record(work: _Work, outcome: Outcome | None, reason: str | None) -> SampleRecord:
    row_id = getattr(work.doc.row, "id", None) or work.doc.where
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
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


@contextmanager
def _fewer_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def run_until_signal(runner: Runner) -> Ended:
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
