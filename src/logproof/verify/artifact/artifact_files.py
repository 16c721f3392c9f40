"""Artifacts on disk: JSON lines (one artifact a line), or Parquet (one a row, see parquet_rows.py).

Both forms carry the same artifact, to the last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from logproof.errors import ArtifactError
from logproof.files import store_error, write_atomic
from logproof.verify.artifact.artifact import (
    MAX_BYTES,
    Artifact,
    UnreadableRecord,
    decode_artifact,
    encode_artifact,
)
from logproof.verify.artifact.parquet_rows import decode_rows, encode_rows

T = TypeVar("T")
CHUNK = 1 << 20
"""Bytes of an overlong line that are read at once."""


def read_each(path: Path) -> Iterator[Artifact | UnreadableRecord]:
    """What stands in a file, in order; `.parquet` by name, JSON lines otherwise. What is no artifact hides no other.

    Raises ArtifactError for a file of something else, StoreError for an unreadable file, UsageError for a missing
    package.
    """
    return _read_parquet(path) if path.suffix == ".parquet" else _read_lines(path)


def read(path: Path) -> Iterator[Artifact]:
    """Artifacts of a file, in order. Raises as `read_each`, and ArtifactError naming file and line of the first
    malformed one."""
    for one in read_each(path):
        if isinstance(one, UnreadableRecord):
            raise ArtifactError(f"{one.where}: {one.detail}")
        yield one


def read_all(paths: Iterable[Path]) -> list[Artifact]:
    """Artifacts of several files, in order. Raises as `read`, and ArtifactError where there is none."""
    files = list(paths)
    return _some([a for path in files for a in read(path)], files)


def read_records(paths: Iterable[Path]) -> list[Artifact | UnreadableRecord]:
    """What stands in several files, in order. Raises as `read_each`, and ArtifactError where there is nothing."""
    files = list(paths)
    return _some([one for path in files for one in read_each(path)], files)


def _some(records: list[T], files: Sequence[Path]) -> list[T]:
    if not records:
        raise ArtifactError(f"there is no artifact in {', '.join(map(str, files))}")
    return records


def write(path: Path, artifacts: Iterable[Artifact]) -> int:
    """Write a whole file atomically and return how many artifacts it holds. Raises as `read`, StoreError for the
    disk."""
    if path.suffix == ".parquet":
        rows = list(artifacts)
        write_atomic(path, encode_rows(rows))
        return len(rows)
    lines = [encode_artifact(a) for a in artifacts]
    write_atomic(path, b"".join(line + b"\n" for line in lines))
    return len(lines)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise store_error("read", path, error) from None


def _read_lines(path: Path) -> Iterator[Artifact | UnreadableRecord]:
    with _opened(path) as file:
        for number, (line, digest) in enumerate(_lines(file), start=1):
            if len(line) <= MAX_BYTES and not line.strip():
                continue
            try:
                yield decode_artifact(line)
            except ArtifactError as error:
                yield UnreadableRecord(f"{path}:{number}", error.message, digest)


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, str]]:
    """Each line and the SHA-256 of it; of one that is too long for an artifact a beginning that is too long as well."""
    while line := file.readline(MAX_BYTES + 2):
        digest, rest = hashlib.sha256(line), line
        while not rest.endswith(b"\n") and (rest := file.readline(CHUNK)):
            digest.update(rest)
        yield line, digest.hexdigest()


def _read_parquet(path: Path) -> Iterator[Artifact | UnreadableRecord]:
    _opened(path).close()
    yield from decode_rows(path)
