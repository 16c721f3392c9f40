"""One sample: its calls to the pool, the checks of their replies, its score and the records of both.

The requests of a sample go out together; the transport bounds what is in flight. A sample that fails is recorded as
failed with its reason; errors that every later sample would meet too are raised.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol

import msgspec

from logproof.client.pool import Pool, PoolReply
from logproof.errors import AuthError, EndpointError, EngineGone, LogproofError, ModelNotFound, RateLimited, StoreError
from logproof.eval.plan.jobs import Job
from logproof.eval.plan.method import requests
from logproof.eval.run import guard
from logproof.eval.run.counters import Counters
from logproof.eval.run.events import Events
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


class RecordSink(Protocol):
    """Where records go: a RunStore, or a list in tests."""

    def put_call(self, record: CallRecord) -> None: ...

    def put_sample(self, record: SampleRecord) -> None: ...

    def flush(self) -> None: ...


class PlannedSample(msgspec.Struct, frozen=True, eq=False):
    """A sample to run: a row of a job's dataset in one repeat. key: its identity in the store."""

    job: Job
    doc: Doc[Row]
    repeat: int
    key: str


class SampleRunner:
    """Runs the samples of one run, any number at a time. counters and pace hear of every call."""

    def __init__(self, pool: Pool, sink: RecordSink, events: Events, counters: Counters, pace: Pace) -> None:
        self._pool = pool
        self._sink = sink
        self._events = events
        self._counters = counters
        self._pace = pace

    async def run(self, sample: PlannedSample) -> SampleRecord:
        """One sample, never raising but for what is fatal."""
        room = self._pool.first.facts.max_model_len
        try:
            item = sample.job.item(sample.doc)
            contexts = await guard.contexts(item, sample.job, self._pool.tokenizer, room)
            replies = await self._calls(item, sample)
            for reply in replies.values():
                guard.check_room(item, sample.job, reply, room)
            outcome = score(item, sample.job.plan, replies, contexts)
        except FATAL:
            raise
        except LogproofError as error:
            return _sample_record(sample, None, f"{type(error).__name__}: {error.message}")
        return _sample_record(sample, outcome, None)

    async def _calls(self, item: Item, sample: PlannedSample) -> dict[str, Response]:
        """All requests of a sample at once; every call is recorded, then the first failure is raised."""
        parts = requests(item, sample.job.plan, sample.repeat)
        results = await asyncio.gather(*(self._call(request) for _, request in parts))
        replies = {}
        errors = []
        for (part, request), answer in zip(parts, results, strict=True):
            self._keep(self._call_record(sample, part, request, answer), answer)
            if isinstance(answer.result, LogproofError):
                errors.append(answer.result)
            else:
                replies[part] = answer.result.response
        if errors:
            raise next((e for e in errors if isinstance(e, FATAL)), errors[0])
        return replies

    async def _call(self, request: Request) -> PoolReply:
        begun = time.monotonic()
        self._counters.in_flight += 1
        try:
            answer = await self._checked_call(request)
        finally:
            self._counters.in_flight -= 1
        if isinstance(answer.result, LogproofError):
            self._counters.add_failure(_attempts(answer.result))
            if isinstance(answer.result, RateLimited):
                self._pace.overloaded()
        else:
            self._counters.add(answer.result, time.monotonic() - begun)
            self._pace.replied(answer.result.attempts)
        return answer

    async def _checked_call(self, request: Request) -> PoolReply:
        """The call, failed where the reply answers another request."""
        answer = await self._pool.call(request)
        if isinstance(answer.result, LogproofError):
            return answer
        try:
            await guard.check_prompt(request, answer.result.response, self._pool.tokenizer)
        except LogproofError as error:
            return msgspec.structs.replace(answer, result=error)
        return answer

    def _keep(self, record: CallRecord, answer: PoolReply) -> None:
        self._sink.put_call(record)
        usage = None if isinstance(answer.result, LogproofError) else answer.result.response.usage
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

    def _call_record(self, sample: PlannedSample, part: str, request: Request, answer: PoolReply) -> CallRecord:
        first = self._pool.first
        dialect = first.client.dialect.id
        key = call_key(request, first.model, dialect, sample.repeat)
        if isinstance(answer.result, LogproofError):
            return failed_record(key, sample.key, part, request, dialect, answer.result, answer.endpoint)
        return call_record(key, sample.key, part, answer.result, answer.endpoint)


def _attempts(error: LogproofError) -> int:
    return error.attempts if isinstance(error, EndpointError) else 0


def _sample_record(sample: PlannedSample, outcome: Outcome | None, reason: str | None) -> SampleRecord:
    row_id = getattr(sample.doc.row, "id", None) or Path(sample.doc.where).name
    record = SampleRecord(
        key=sample.key,
        task=sample.job.task.name,
        row_id=str(row_id),
        index=sample.doc.index,
        repeat=sample.repeat,
        status="failed",
        reason=reason,
    )
    if outcome is None:
        return record
    output = {**outcome.output, "flags": list(outcome.flags)}
    return msgspec.structs.replace(record, status="ok", scores=outcome.scores, gold=outcome.gold, output=output)
