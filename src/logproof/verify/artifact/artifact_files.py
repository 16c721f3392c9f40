"""Artifacts on disk: JSON lines (one artifact a line), or Parquet (one a row, columns packed) through `pyarrow`.

A Parquet row holds `artifact_id`, `created_at`, `model`, `tokens`, `digest` for queries, `head` (the artifact as
JSON without its positions) and `columns` (pack.py). Both forms carry the same artifact, to the last bit.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import msgspec
import numpy as np

from logproof.errors import ArtifactError, UsageError
from logproof.files import store_error, write_atomic
from logproof.verify.artifact import pack
from logproof.verify.artifact.artifact import (
    Artifact,
    Positions,
    artifact_columns,
    artifact_digest,
    decode_artifact,
    encode_artifact,
)
from logproof.verify.artifact.columns import Columns


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
        return _write_parquet(path, list(artifacts))
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


class _Table(Protocol):
    def to_pylist(self) -> list[dict[str, object]]: ...


class _Arrow(Protocol):
    Table: _TableFactory
    BufferOutputStream: type[_Sink]


class _TableFactory(Protocol):
    def from_pylist(self, mapping: list[dict[str, object]]) -> _Table: ...


class _Sink(Protocol):
    def getvalue(self) -> bytes: ...


class _Parquet(Protocol):
    def read_table(self, source: str) -> _Table: ...
    def write_table(self, table: _Table, where: _Sink) -> None: ...


def _library() -> tuple[_Arrow, _Parquet]:
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet files need the package `pyarrow`", hint="pip install pyarrow") from None
    return cast(_Arrow, arrow), cast(_Parquet, parquet)


def _write_parquet(path: Path, artifacts: list[Artifact]) -> int:
    arrow, parquet = _library()
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.Table.from_pylist([_row(a) for a in artifacts]), sink)
    write_atomic(path, bytes(memoryview(sink.getvalue())))
    return len(artifacts)


def _read_parquet(path: Path) -> Iterator[Artifact]:
    _, parquet = _library()
    _opened(path).close()
    try:
        rows = parquet.read_table(str(path)).to_pylist()
    except (ValueError, OSError) as error:
        raise ArtifactError(f"{path} is no Parquet file: {error}") from None
    for number, row in enumerate(rows, start=1):
        try:
            yield _from_row(row)
        except ArtifactError as error:
            raise ArtifactError(f"{path} row {number}: {error.message}", hint=error.hint) from None


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a head keeps in the place of positions: their kept sizes, where there were positions at all."""

    kept: tuple[int, ...] | None = None


def _row(artifact: Artifact) -> dict[str, object]:
    head = msgspec.to_builtins(artifact)
    packed = None
    if artifact.positions is not None:
        head["positions"] = {"kept": artifact.positions.kept}
        columns = artifact_columns(artifact)
        packed = pack.pack(columns, _denominator(artifact))
        if to_positions(columns, artifact.positions.kept) != artifact.positions:
            raise ArtifactError(
                f"{artifact.artifact_id}: its rows are not sorted by falling logprob, so packing would change them",
                hint="write .jsonl instead",
            )
    return {
        "artifact_id": artifact.artifact_id,
        "created_at": artifact.created_at,
        "model": artifact.claim.model.id,
        "tokens": len(artifact.tokens.completion_ids or ()),
        "digest": artifact_digest(artifact),
        "head": msgspec.json.encode(head),
        "columns": packed,
    }


def _denominator(artifact: Artifact) -> int | None:
    spec = artifact.logprobs
    return spec.denominator if spec is not None and spec.format == "fixed" else None


def _from_row(row: dict[str, object]) -> Artifact:
    head, packed = row.get("head"), row.get("columns")
    if not isinstance(head, bytes) or not (packed is None or isinstance(packed, bytes)):
        raise ArtifactError("has no head, or columns that are no bytes")
    if packed is None:
        return decode_artifact(head)
    try:
        document = msgspec.json.decode(head, type=dict[str, object])
        kept = msgspec.convert(document.pop("positions", None), _Kept)
    except msgspec.MsgspecError as error:
        raise ArtifactError(f"head is malformed: {error}") from None
    whole = decode_artifact(msgspec.json.encode({**document, "positions": None}))
    return msgspec.structs.replace(whole, positions=to_positions(pack.unpack(packed), kept.kept))


def to_positions(columns: Columns, kept: tuple[int, ...] | None = None) -> Positions:
    """Columns as the artifact writes them; entries of a row in the columns' order."""
    drawn = (None if np.isnan(v) else v for v in columns.sampled_logprobs.tolist())
    counts = columns.present.sum(axis=1).tolist()
    return Positions(
        sampled=tuple(drawn),
        ids=tuple(tuple(r[:c]) for r, c in zip(columns.ids.tolist(), counts, strict=True)),
        logprobs=tuple(tuple(r[:c]) for r, c in zip(columns.logprobs.tolist(), counts, strict=True)),
        kept=kept,
    )
