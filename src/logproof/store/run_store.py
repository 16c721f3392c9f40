"""RunStore: the durable record of one run, in a directory of its own.

    create   a directory without a run        -> writes provenance once
    resume   a directory with the same run    -> refused with the difference if it is another
    amend    a finished run                   -> later scores beside the first ones
    read     any run, also one under way      -> StoreReader

The directory holds run.sqlite (with -wal and -shm beside it while a run goes on) and run.lock. Records come in
from any thread and are durable within 100 ms (store/writer.py). One process writes at a time.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from logproof.errors import StoreError
from logproof.files import make_directory, store_error, sync_directory
from logproof.store.database import FILE, LOCK, connect_writer, database_error, is_begun, is_empty
from logproof.store.digest import canonical
from logproof.store.lock import WriteLock
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, RunProvenance, SampleRecord, Scorer, ScoreRecord, WriteSession
from logproof.store.resume_check import check_resume, names
from logproof.store.schema import APPLICATION_ID, DDL, FORMAT, RecordEncoder, parse
from logproof.store.writer import Writer, WriterStats


class RunStore(StoreReader):
    """A store opened for writing; build it with `create`, `resume` or `amend`, end it with `close` or `with`."""

    def __init__(self, path: Path, lock: WriteLock, encoder: RecordEncoder, max_bytes: int | None) -> None:
        super().__init__(path)
        self._lock = lock
        self._encoder = encoder
        try:
            self._writer = Writer(connect_writer(self._file, max_bytes), self._file)
        except sqlite3.Error as error:
            super().close()
            raise database_error("write", self._file, error) from None

    @classmethod
    def create(
        cls, path: Path, provenance: RunProvenance, *, secrets: Sequence[str] = (), max_bytes: int | None = None
    ) -> RunStore:
        """Begin a run in `path`, made if absent. A run that is there is never overwritten.

        secrets: texts of at least 8 characters that are masked in every record. max_bytes: limit of the store.
        Raises StoreError, StoreLocked.
        """
        make_directory(path)
        lock, encoder = WriteLock(path / LOCK), RecordEncoder(secrets)
        try:
            _begin(path, encoder.mask(canonical(provenance)), max_bytes)
            store = cls(path, lock, encoder, max_bytes)
        except BaseException:
            lock.release()
            raise
        return store._open_session(provenance)

    @classmethod
    def resume(
        cls,
        path: Path,
        provenance: RunProvenance,
        *,
        accept_fingerprints: Collection[str] = (),
        secrets: Sequence[str] = (),
        max_bytes: int | None = None,
    ) -> RunStore:
        """Go on with the run in `path`.

        Raises ResumeRefused (another config, model, task or dataset; an unknown fingerprint that
        `accept_fingerprints` does not name), StoreLocked, StoreError.
        """
        given = msgspec.convert(parse(RecordEncoder(secrets).mask(canonical(provenance))), RunProvenance)
        with StoreReader(path) as stored:
            check_resume(stored.provenance, given, stored.known_fingerprints(), accept_fingerprints)
        return cls.amend(path, secrets=secrets, max_bytes=max_bytes)._open_session(provenance)

    @classmethod
    def amend(cls, path: Path, *, secrets: Sequence[str] = (), max_bytes: int | None = None) -> RunStore:
        """Open the run in `path` to add scores to it. Raises StoreLocked, StoreError."""
        StoreReader(path).close()
        lock = WriteLock(path / LOCK)
        try:
            return cls(path, lock, RecordEncoder(secrets), max_bytes)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def read(path: Path) -> StoreReader:
        """Open any run read-only. Raises StoreError."""
        return StoreReader(path)

    def put_call(self, record: CallRecord) -> None:
        """Queue a call; any thread. Raises StoreError for a bad record, or once the store cannot be written."""
        self._writer.put(self._encoder.row(record))

    def put_sample(self, record: SampleRecord) -> None:
        """Queue a sample, after its calls; any thread. Raises StoreError like `put_call`."""
        self._writer.put(self._encoder.row(record))

    def put_scorer(self, record: Scorer) -> None:
        """Queue a later scorer, before its scores. Raises StoreError like `put_call`."""
        self._writer.put(self._encoder.row(record))

    def put_score(self, record: ScoreRecord) -> None:
        """Queue what a later scorer made of a sample. Raises StoreError like `put_call`."""
        self._writer.put(self._encoder.row(record))

    def flush(self) -> None:
        """Wait until all that was put is durable. Raises StoreError if some could not be written."""
        self._writer.flush()

    def check(self) -> None:
        """Raises StoreError if the writer has failed: cheap, for a loop that puts rarely."""
        self._writer.check()

    @property
    def stats(self) -> WriterStats:
        """What the writer has done so far."""
        return self._writer.stats

    def close(self) -> None:
        """Write what waits, close, free the lock. Raises StoreError if something put could not be written."""
        try:
            super().close()
            self._writer.close()
        finally:
            self._lock.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except StoreError:
            if not isinstance(error, StoreError):
                raise

    def _open_session(self, provenance: RunProvenance) -> RunStore:
        session = WriteSession(
            time=time.time(),
            pid=os.getpid(),
            scheduling=provenance.scheduling,
            endpoints=provenance.endpoints,
            fingerprints=sorted(names(provenance.fingerprints)),
            versions=provenance.versions,
        )
        try:
            self._writer.put(self._encoder.row(session))
            self.flush()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self


def _begin(path: Path, provenance: str, max_bytes: int | None) -> None:
    """Make the tables and store the provenance, all or nothing."""
    file = path / FILE
    try:
        connection = connect_writer(file, max_bytes)
        try:
            if not is_empty(connection):
                raise _holds_a_run(path)
            connection.execute("BEGIN IMMEDIATE")
            for statement in DDL.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO run VALUES (1, ?, ?)", (time.time(), provenance))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.execute("COMMIT")
        finally:
            connection.close()
        sync_directory(path)
    except sqlite3.Error as error:
        raise database_error("write", file, error) from None
    except OSError as error:
        raise store_error("write", file, error) from None


def _holds_a_run(path: Path) -> StoreError:
    return StoreError(f"{path} holds a run already", hint="resume it, or choose another directory")


def refuse_stored(path: Path) -> None:
    """Raise StoreError where a file or a stored run is in the way: `create` would refuse both too, but later."""
    if os.path.exists(path) and not os.path.isdir(path):
        raise StoreError(f"{path} is a file", hint="name a directory")
    if is_begun(path / FILE):
        raise _holds_a_run(path)


def open_run(
    path: Path,
    provenance: RunProvenance,
    *,
    resume: bool,
    accept_fingerprints: Collection[str] = (),
    secrets: Sequence[str] = (),
) -> RunStore:
    """`resume` where a run is stored and resuming is asked for, else `create`. Raises as those do."""
    if resume and is_begun(path / FILE):
        return RunStore.resume(path, provenance, accept_fingerprints=accept_fingerprints, secrets=secrets)
    return RunStore.create(path, provenance, secrets=secrets)
