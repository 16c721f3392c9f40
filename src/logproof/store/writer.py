"""The one thread that writes a store: rows come in from any thread, groups of them go out in one commit.

A row waits at most `interval` seconds for others, then its group is committed; with the time of a commit it is
durable within 100 ms of its arrival. What waits is bounded in rows and bytes: a `put` beyond that waits for the
disk. The first failure stops the writer, rolls its group back, and is raised by every later put, flush and
close: nothing that was put is lost in silence, and what was committed stays valid.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from logproof.errors import StoreError
from logproof.store.database import database_error
from logproof.store.schema import TABLES, Cell, Record, TableRow, insert

INTERVAL = 0.05
"""Seconds that a group is collected for."""
MAX_ROWS = 4096
"""Rows that may wait. A full queue is committed at once."""
MAX_BYTES = 64 << 20
"""Bytes that may wait; a single larger row is taken when nothing else waits."""


class WriterStats(msgspec.Struct):
    """rows: committed. commits: transactions. longest: seconds from a row's arrival to its commit, the worst."""

    rows: int = 0
    commits: int = 0
    longest: float = 0.0


class Writer:
    """Owns a connection from construction to `close`; the caller has already made the tables."""

    def __init__(self, connection: sqlite3.Connection, path: Path, interval: float = INTERVAL) -> None:
        self._connection = connection
        self._path = path
        self._interval = interval
        self._changed = threading.Condition()
        self._waiting: list[TableRow] = []
        self._bytes = 0
        self._arrived = 0.0
        self._put = 0
        self._urgent = False
        self._closing = False
        self._failure: StoreError | None = None
        self.stats = WriterStats()
        self._thread = threading.Thread(target=self._run, name="logproof-store", daemon=True)
        self._thread.start()

    def put(self, row: TableRow) -> None:
        """Queue a row; waits only while the queue is full. Raises StoreError once the writer has failed or closed."""
        with self._changed:
            self._wait(lambda: not self._waiting or self._has_room(row))
            if self._closing:
                raise StoreError(f"the store {self._path.parent} is closed")
            if not self._waiting:
                self._arrived = time.monotonic()
            self._waiting.append(row)
            self._bytes += row.size
            self._put += 1
            if len(self._waiting) in (1, MAX_ROWS) or self._bytes >= MAX_BYTES:
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until every row put so far is durable. Raises StoreError if one could not be written."""
        with self._changed:
            target = self._put
            self._urgent = True
            self._changed.notify_all()
            self._wait(lambda: self.stats.rows >= target)

    def check(self) -> None:
        """Raises the StoreError that stopped the writer, if one did."""
        if self._failure is not None:
            raise StoreError(self._failure.message, hint=self._failure.hint)

    def close(self) -> None:
        """Write what waits, then end the thread and the connection. Raises StoreError as `flush` does."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self.check()

    def _wait(self, condition: Callable[[], bool]) -> None:
        while self._failure is None and not condition():
            self._changed.wait()
        self.check()

    def _has_room(self, row: TableRow) -> bool:
        return len(self._waiting) < MAX_ROWS and self._bytes + row.size <= MAX_BYTES

    def _is_due(self) -> bool:
        full = len(self._waiting) >= MAX_ROWS or self._bytes >= MAX_BYTES
        return full or self._urgent or self._closing or time.monotonic() >= self._arrived + self._interval

    def _run(self) -> None:
        try:
            while group := self._next_group():
                self._commit(group)
        except sqlite3.Error as error:
            self._fail(database_error("write", self._path, error))
        except Exception as error:  # the thread's last words must reach the caller, whatever they are
            self._fail(StoreError(f"cannot write {self._path}: {type(error).__name__}: {error}"))
        finally:
            _finish(self._connection)

    def _next_group(self) -> list[TableRow]:
        """The rows to commit next; empty when the writer is closing and nothing waits."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._urgent = False
                self._changed.wait()
            while self._waiting and not self._is_due():
                self._changed.wait(self._arrived + self._interval - time.monotonic())
            group, self._waiting = self._waiting, []
            self._bytes = 0
            self._urgent = False
            self._group_arrived = self._arrived
            self._changed.notify_all()
            return group

    def _commit(self, group: list[TableRow]) -> None:
        by_kind: dict[type[Record], list[tuple[Cell, ...]]] = {kind: [] for kind in TABLES}
        for row in group:
            by_kind[row.kind].append(row.cells)
        self._connection.execute("BEGIN IMMEDIATE")
        for kind, rows in by_kind.items():
            if rows:
                self._connection.executemany(insert(kind), rows)
        self._connection.execute("COMMIT")
        with self._changed:
            self.stats.rows += len(group)
            self.stats.commits += 1
            self.stats.longest = max(self.stats.longest, time.monotonic() - self._group_arrived)
            self._changed.notify_all()

    def _fail(self, failure: StoreError) -> None:
        with self._changed:
            self._failure = failure
            self._waiting = []
            self._bytes = 0
            self._changed.notify_all()


def _finish(connection: sqlite3.Connection) -> None:
    """Fold the log into the file, so that a finished run is one plain file, then close.

    Failing here loses nothing: the log stays valid beside the file and the next opening reads it.
    """
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        connection.execute("PRAGMA busy_timeout=0")
        connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error:
        pass
    finally:
        connection.close()
