"""Reading a run store, also while a run writes it: every call sees what is durable at that moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import msgspec

from logproof.errors import StoreError, UsageError
from logproof.store.database import FILE, connect_reader, database_error
from logproof.store.records import CallRecord, RunProvenance, RunSummary, SampleRecord, Scorer, TaskCount, WriteSession
from logproof.store.schema import Cell, R, decode, names, parse


class StoreReader:
    """A store opened read-only. path: the run's directory. Every method raises StoreError when reading fails.

    An iterator that is not read to its end holds a snapshot, which keeps the writer's log from shrinking.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path / FILE
        self._reading = connect_reader(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a second call does nothing."""
        self._reading.close()

    @property
    def provenance(self) -> RunProvenance:
        """What the run was begun with."""
        return msgspec.convert(parse(str(self._one("SELECT provenance FROM run"))), RunProvenance)

    def sessions(self) -> list[WriteSession]:
        """The openings for writing, oldest first."""
        return list(self._records(WriteSession, _select(names(WriteSession), "sessions", "ORDER BY rowid")))

    def known_fingerprints(self) -> set[str]:
        """Fingerprints that the openings of this run brought and so accepted."""
        return {name for session in self.sessions() for name in session.fingerprints}

    def done(self) -> set[str]:
        """Keys of the samples that finished ok: all that a resume need not send again."""
        rows = self._rows("SELECT key FROM samples INDEXED BY samples_done WHERE status = 'ok'")
        return {cast(str, key) for (key,) in rows}

    def failed(self) -> dict[str, str]:
        """Keys of the samples that failed -> why."""
        return {str(k): str(r or "") for k, r in self._rows("SELECT key, reason FROM samples WHERE status = 'failed'")}

    def samples(self, task: str | None = None, scorer: str | None = None) -> Iterator[SampleRecord]:
        """Samples by task, in dataset order, then repeat.

        scorer: digest of a later scorer, whose scores and output take the place of the first ones. A sample that
        it has not scored comes back failed, with that reason; a failed sample stays failed.
        """
        values = () if task is None else (task,)
        where = "" if task is None else "WHERE samples.task = ?"
        tail = f'{where} ORDER BY samples.task, samples."index", samples.repeat'
        if scorer is None:
            return self._records(SampleRecord, _select(names(SampleRecord), "samples", tail), values)
        self._known_scorer(scorer)
        return self._rescored(scorer, values, tail)

    def _rescored(self, scorer: str, values: Sequence[str], tail: str) -> Iterator[SampleRecord]:
        fields = names(SampleRecord, "samples.") + ", s.sample_key, s.status, s.reason, s.scores, s.output"
        join = "LEFT JOIN scores AS s ON s.sample_key = samples.key AND s.scorer = ?"
        for row in self._rows(_select(fields, "samples", join, tail), (scorer, *values)):
            yield _with_scores(decode(SampleRecord, row[:-5]), row[-5:], scorer)

    def calls(self, sample_key: str | None = None, *, columns: bool = True) -> Iterator[CallRecord]:
        """Calls of one sample by part, or all calls in the order of writing. columns: False leaves them unread."""
        chosen = names(CallRecord) if columns else names(CallRecord).replace('"columns"', "x''")
        if sample_key is None:
            return self._records(CallRecord, _select(chosen, "calls", "ORDER BY rowid"))
        query = _select(chosen, "calls", "WHERE sample_key = ? ORDER BY part, key")
        return self._records(CallRecord, query, (sample_key,))

    def scorers(self) -> list[Scorer]:
        """Later scorers, oldest first."""
        return list(self._records(Scorer, _select(names(Scorer), "scorers", "ORDER BY rowid")))

    def scorer_digest(self, wanted: str) -> str:
        """The digest of a later scorer, by its digest or its name (the latest of that name). Raises UsageError."""
        scorers = self.scorers()
        digests = [s.digest for s in scorers if wanted in (s.name, s.digest)]
        if not digests:
            names = ", ".join(s.name for s in scorers) or "none"
            raise UsageError(f"no scores named {wanted!r} in {self.path}", hint=f"there are: {names}")
        return digests[-1]

    def summary(self) -> RunSummary:
        """The store in numbers."""
        calls = self._count("status")
        return RunSummary(
            path=str(self.path),
            created=cast(float, self._one("SELECT created FROM run")),
            sessions=cast(int, self._one("SELECT count(*) FROM sessions")),
            tasks=self._tasks(),
            calls_ok=calls.get("ok", 0),
            calls_failed=calls.get("failed", 0),
            fingerprints=self._count("fingerprint"),
            models=self._count("model"),
            scorers=tuple(self.scorers()),
            bytes=self._file.stat().st_size,
        )

    def _tasks(self) -> tuple[TaskCount, ...]:
        planned = self.provenance.planned
        query = "SELECT task, sum(status = 'ok'), sum(status = 'failed') FROM samples GROUP BY task"
        counts = {str(task): (cast(int, ok), cast(int, failed)) for task, ok, failed in self._rows(query)}
        return tuple(
            TaskCount(task=task, ok=ok, failed=failed, planned=planned.get(task))
            for task in sorted({*planned, *counts})
            for ok, failed in [counts.get(task, (0, 0))]
        )

    def _count(self, field: str) -> dict[str, int]:
        query = _select(f"{field}, count(*)", "calls", f"WHERE {field} IS NOT NULL GROUP BY 1 ORDER BY 1")
        return {str(value): cast(int, count) for value, count in self._rows(query)}

    def _known_scorer(self, digest: str) -> None:
        known = [scorer.digest for scorer in self.scorers()]
        if digest not in known:
            raise StoreError(f"no scorer {digest} in {self.path}", hint=f"stored scorers: {', '.join(known) or 'none'}")

    def _one(self, query: str) -> Cell:
        for (cell,) in self._rows(query):
            return cell
        raise StoreError(f"{self._file} is damaged: it holds no run")

    def _records(self, kind: type[R], query: str, values: Sequence[Cell] = ()) -> Iterator[R]:
        for row in self._rows(query, values):
            yield decode(kind, row)

    def _rows(self, query: str, values: Sequence[Cell] = ()) -> Iterator[tuple[Cell, ...]]:
        try:
            yield from self._reading.execute(query, values)
        except sqlite3.Error as error:
            raise database_error("read", self._file, error) from None


def _select(fields: str, table: str, *rest: str) -> str:
    return " ".join(("SELECT", fields, "FROM", table, *rest))


def _with_scores(sample: SampleRecord, row: Sequence[Cell], scorer: str) -> SampleRecord:
    key, status, reason, scores, output = row
    if sample.status == "failed":
        return sample
    if key is None:
        status, reason, scores, output = "failed", f"not scored by {scorer}", "{}", "null"
    return msgspec.structs.replace(
        sample, status=status, reason=reason, scores=parse(str(scores)), output=parse(str(output))
    )
