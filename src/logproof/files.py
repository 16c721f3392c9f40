"""Files outside the store: atomic writes, bounded reads, and one line for what the system says no to.

Costs: `write_atomic` makes one temporary file beside the target, two fsyncs (file, directory) and one rename;
a reader sees the old file or the whole one, and so does a machine that lost power. `atomic_file` is the same
for content that comes in pieces. `read_bounded` reads at most limit + 1 bytes, whatever the file's size claims.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from logproof.errors import InputError, LogproofError, StoreError

MAX_READ = 64 << 20
"""Default bound of `read_bounded`, in bytes."""

_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EFBIG: ("the file would pass the size limit of this process or disk", "raise the limit"),
    errno.EACCES: ("permission denied", "check the owner and mode of the path"),
    errno.EPERM: ("permission denied", "check the owner and mode of the path"),
    errno.EROFS: ("the disk is read-only", "choose another path"),
    errno.ENOENT: ("no such file or directory", None),
    errno.ENOTDIR: ("a part of the path is no directory", None),
    errno.EISDIR: ("it is a directory", None),
}


_NAMED = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP}
)
"""Faults of the path that a caller named, and not of the disk."""


def store_error(action: str, path: Path, error: OSError) -> StoreError:
    """One line for a failed file operation, with what to do about it where that is known.

    An InputError where `action` is "read" and the fault is the path's.
    """
    reason, hint = _REASONS.get(error.errno or 0, (error.strerror or str(error), None))
    kind = InputError if action == "read" and error.errno in _NAMED else StoreError
    return kind(f"cannot {action} {path}: {reason}", hint=hint)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whatever is wrong with what a file holds is said with its name."""
    try:
        yield
    except LogproofError as error:
        if str(path) not in error.message:
            error.message = f"{path}: {error.message}"
        raise


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends well, and leaves nothing when it does not.

    Raises StoreError when the file cannot be written.
    """
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        temporary = None
        sync_directory(path.parent)
    except OSError as error:
        raise store_error("write", path, error) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace or make one file, whole and durable. Raises StoreError."""
    with atomic_file(path) as file:
        file.write(data)


def read_bounded(path: Path, limit: int = MAX_READ) -> bytes:
    """The bytes of a file of at most `limit` bytes. Raises InputError, also for a longer file, StoreError."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise store_error("read", path, error) from None
    if len(data) > limit:
        raise InputError(f"cannot read {path}: it is longer than {limit} bytes")
    return data


def make_directory(path: Path) -> None:
    """Make a directory and its parents, if it is not there. Raises StoreError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("make the directory", path, error) from None


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
