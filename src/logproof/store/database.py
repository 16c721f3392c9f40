"""SQLite connections of a run store, and one line for what SQLite says no to.

Writing: WAL, synchronous=FULL: a committed transaction survives kill -9 and power loss, and readers never wait.
Reading: read-only; sees what is committed. Not for network file systems: WAL needs shared memory.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from logproof.errors import InputError, StoreError
from logproof.store.schema import APPLICATION_ID, FORMAT

FILE = "run.sqlite"
LOCK = "run.lock"
BUSY_SECONDS = 30.0
"""How long one connection waits for another before it gives up."""

_REASONS = {
    sqlite3.SQLITE_FULL: ("the disk is full, or the store is at its limit", "free some space, then resume the run"),
    sqlite3.SQLITE_IOERR: ("the disk failed or is full", "check the disk and its limits, then resume the run"),
    sqlite3.SQLITE_READONLY: ("it is read-only", "check the owner and mode of the directory"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "check the path, the owner and the mode of the directory"),
    sqlite3.SQLITE_CORRUPT: ("it is damaged", "restore it from a copy, or start the run again in another directory"),
    sqlite3.SQLITE_NOTADB: ("it is no run store", None),
    sqlite3.SQLITE_BUSY: ("another program holds it", "close that program"),
}


def database_error(action: str, path: Path, error: sqlite3.Error) -> StoreError:
    """One line for a failed database operation: what is wrong, and what to do where that is known."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    reason, hint = _REASONS.get(code, (str(error), None))
    kind = InputError if code == sqlite3.SQLITE_NOTADB else StoreError
    return kind(f"cannot {action} {path}: {reason}", hint=hint)


def connect_writer(path: Path, max_bytes: int | None = None) -> sqlite3.Connection:
    """A connection that writes. max_bytes: the store never grows beyond. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    if max_bytes is not None:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count={max(1, max_bytes // page)}")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection that any thread may use. Raises StoreError for a store of another format or a damaged one,
    InputError where there is none."""
    if not path.is_file():
        raise InputError(f"no run in {path.parent}", hint="give the directory that a run was written to")
    address = f"{path.resolve().as_uri()}?mode=ro"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            check_format(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise database_error("read", path, error) from None
    return connection


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether a database holds nothing yet: a run killed at its very start leaves one. Raises sqlite3.Error."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(tables) == 0


def is_begun(path: Path) -> bool:
    """Whether a file holds a run, or anything else; False where it is absent, or was left by a run killed too soon."""
    if not path.is_file():
        return False
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            return not is_empty(connection)
        finally:
            connection.close()
    except sqlite3.Error:
        return True


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError unless the database is a run store of this format."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    if is_empty(connection):
        raise StoreError(f"the run in {path.parent} was stopped before it began", hint="start it again")
    if application != APPLICATION_ID:
        raise InputError(f"{path} is no run store")
    if number != FORMAT:
        raise StoreError(
            f"{path} has format {number}, this version reads {FORMAT}", hint="read it with its own version"
        )
