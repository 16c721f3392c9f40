"""Artifacts on disk: JSON lines (one artifact a line), or Parquet (one a row, see parquet_rows.py).

Both forms carry the same artifact, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from logproof.errors import ArtifactError
from logproof.files import store_error, write_atomic
from logproof.verify.artifact.artifact import (
    Artifact,
    decode_artifact,
    encode_artifact,
)
from logproof.verify.artifact.parquet_rows import decode_rows, encode_rows


def read(path: Path) -> Iterator[Artifact]:
    """Artifacts of a file, in order; `.parquet` by name, JSON lines otherwise.

    Raises ArtifactError naming the file and line of the first malformed one, StoreError for an unreadable file,
    UsageError for a missing package.
    """
    return _read_parquet(path) if path.suffix == ".parquet" else _read_lines(path)


def read_all(paths: Iterable[Path]) -> list[Artifact]:
    """Artifacts of several files, in order. Raises as `read`, and ArtifactError where there is none."""
    files = list(paths)
    artifacts = [a for path in files for a in read(path)]
    if not artifacts:
        raise ArtifactError(f"there is no artifact in {', '.join(map(str, files))}")
    return artifacts


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


def _read_lines(path: Path) -> Iterator[Artifact]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield decode_artifact(line)
            except ArtifactError as error:
                raise ArtifactError(f"{path}:{number}: {error.message}", hint=error.hint) from None


def _read_parquet(path: Path) -> Iterator[Artifact]:
    _opened(path).close()
    yield from decode_rows(path)
