"""Artifacts as rows of a Parquet table, in columns that any Parquet user can read; through `pyarrow`.

artifact_id, created_at, model, digest (text) and tokens (count of the completion) are for queries: they repeat what the
other columns say and are not read back. The artifact itself is in

* prompt_ids, completion_ids: list of int64, null where the source gave texts only;
* sampled_logprobs: list of double, one a position, null where unreported;
* top_ids, top_logprobs: list of lists, the recorded best entries of each position, int64 and double;
* kept: list of int64, null where not recorded;
* record: text, the artifact as JSON without these.

Doubles hold every float32 and fixed-point value exactly, so both forms carry the same artifact, to the last bit.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from logproof.errors import ArtifactError, UsageError
from logproof.verify.artifact.artifact import (
    Artifact,
    Positions,
    TokenIds,
    UnreadableRecord,
    artifact_digest,
    decode_artifact,
)

GROUP_VALUES = 1 << 20
"""Logprobs after which a row group is closed when writing."""
MAX_GROUP_VALUES = 1 << 26
"""Most values of one column in a row group that is read: 512 MiB. A run of equal values takes next to no file."""
MAX_ROW_VALUES = 1 << 24
"""Most values of one column of one artifact, about what the longest JSON document holds."""
BATCH = 8
"""Rows that are decoded together: each record may have as many bytes as a JSON document."""

_READ = ("prompt_ids", "completion_ids", "sampled_logprobs", "top_ids", "top_logprobs", "kept", "record")
_SPLIT = ("sampled_logprobs.list.element", "top_logprobs.list.element.list.element")
"""Columns whose bytes are written plane by plane: logprobs share their high bytes, which then compress."""


def encode_rows(artifacts: Iterable[Artifact]) -> bytes:
    """A Parquet file with one row an artifact, in order.

    Raises ArtifactError for an id beyond 64 bits, UsageError where `pyarrow` is missing.
    """
    arrow, parquet = _library()
    sink, schema = arrow.BufferOutputStream(), _schema(arrow)
    encodings = dict.fromkeys(_SPLIT, "BYTE_STREAM_SPLIT")
    with parquet.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=False, column_encoding=encodings
    ) as writer:
        for group in _groups(artifacts):
            try:
                table = arrow.Table.from_pylist([_row(artifact) for artifact in group], schema=schema)
            except (ValueError, OverflowError) as error:
                raise ArtifactError(f"the artifacts cannot be written as Parquet: {error}") from None
            writer.write_table(table)
    return bytes(memoryview(sink.getvalue()))


def decode_rows(path: Path) -> Iterator[Artifact | UnreadableRecord]:
    """The rows of a Parquet file, in order, as artifacts or as what is wrong with them; few are in memory at a time.

    Raises ArtifactError naming the file where it holds no rows of artifacts, UsageError where `pyarrow` is missing.
    """
    arrow, parquet = _library()
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            _check_file(file, path)
            for number, row in enumerate(_rows(file, arrow), start=1):
                yield _read_row(row, f"{path} row {number}")
    except (ValueError, OSError, arrow.ArrowException) as error:
        if not number:
            raise ArtifactError(f"{path} is no Parquet file of artifacts: {error}") from None
        yield UnreadableRecord(f"{path} from row {number + 1} on", f"the file is damaged: {error}", _digest(None))


def _read_row(row: dict[str, Any], where: str) -> Artifact | UnreadableRecord:
    """row: the cells of a row, as Arrow holds them."""
    try:
        return _artifact({name: _value(cell, name) for name, cell in row.items()})
    except ArtifactError as error:
        return UnreadableRecord(where, error.message, _digest(row["record"].as_py()))


def _digest(record: object) -> str:
    return hashlib.sha256(str(record or "").encode(errors="surrogatepass")).hexdigest()


def _library() -> tuple[ModuleType, ModuleType]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet files need the package `pyarrow`", hint="pip install pyarrow") from None


def _schema(arrow: ModuleType) -> Any:
    ids, logprobs = arrow.list_(arrow.int64()), arrow.list_(arrow.float64())
    columns = {
        "artifact_id": arrow.string(),
        "created_at": arrow.string(),
        "model": arrow.string(),
        "tokens": arrow.int64(),
        "digest": arrow.string(),
        "prompt_ids": ids,
        "completion_ids": ids,
        "sampled_logprobs": logprobs,
        "top_ids": arrow.list_(ids),
        "top_logprobs": arrow.list_(logprobs),
        "kept": ids,
        "record": arrow.string(),
    }
    return arrow.schema(list(columns.items()))


def _groups(artifacts: Iterable[Artifact]) -> Iterator[list[Artifact]]:
    """The artifacts in runs of at least GROUP_VALUES logprobs."""
    group: list[Artifact] = []
    size = 0
    for artifact in artifacts:
        group.append(artifact)
        size += 0 if artifact.positions is None else sum(map(len, artifact.positions.ids))
        if size >= GROUP_VALUES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _row(artifact: Artifact) -> dict[str, object]:
    tokens, positions = artifact.tokens, artifact.positions
    rest = msgspec.structs.replace(
        artifact,
        tokens=TokenIds(prompt_ids=None, completion_ids=None, prompt_cut=tokens.prompt_cut),
        positions=None,
    )
    return {
        "artifact_id": artifact.artifact_id,
        "created_at": artifact.created_at,
        "model": artifact.claim.model.id,
        "tokens": len(tokens.completion_ids or ()),
        "digest": artifact_digest(artifact),
        "prompt_ids": tokens.prompt_ids,
        "completion_ids": tokens.completion_ids,
        "sampled_logprobs": None if positions is None else positions.sampled,
        "top_ids": None if positions is None else positions.ids,
        "top_logprobs": None if positions is None else positions.logprobs,
        "kept": None if positions is None else positions.kept,
        "record": msgspec.json.encode(rest).decode(),
    }


def _check_file(file: Any, path: Path) -> None:
    """Refuse a file of other columns, and one whose row groups would not fit memory."""
    names = set(file.schema_arrow.names)
    if {"head", "columns"} <= names:
        raise ArtifactError(
            f"{path} holds its columns packed, a form that is no longer read",
            hint="read it with the logproof that wrote it, and write it as .jsonl",
        )
    lacking = [name for name in _READ if name not in names]
    if lacking:
        raise ArtifactError(f"{path} holds no artifacts: it has no column {lacking[0]}")
    # Arrow ends the process where it meets a damaged footer in `column`, but not in a scan, which keeps no values.
    file.scan_contents()
    for i in range(file.num_row_groups):
        group = file.metadata.row_group(i)
        widest = max(group.column(j).num_values for j in range(group.num_columns))
        if widest > MAX_GROUP_VALUES:
            raise ArtifactError(
                f"{path}: row group {i} has {widest} values in a column; the limit is {MAX_GROUP_VALUES}",
                hint="write it in smaller row groups",
            )


def _rows(file: Any, arrow: ModuleType) -> Iterator[dict[str, Any]]:
    """The rows as Arrow's cells: a list is made of one only when its length is known."""
    whole = _schema(arrow)
    schema = arrow.schema([whole.field(name) for name in _READ])
    for batch in file.iter_batches(batch_size=BATCH, columns=list(_READ)):
        table = arrow.Table.from_batches([batch]).select(list(_READ)).cast(schema)
        for i in range(len(table)):
            yield {name: table.column(name)[i] for name in _READ}


def _value(scalar: Any, name: str) -> object:
    if not scalar.is_valid or name == "record":
        return scalar.as_py()
    values = scalar.values
    size = len(values.flatten()) if name in ("top_ids", "top_logprobs") else len(values)
    if max(size, len(values)) > MAX_ROW_VALUES:
        raise ArtifactError(f"{size} values of {name} in one row; the limit is {MAX_ROW_VALUES}")
    return values.to_pylist()


def _artifact(row: dict[str, object]) -> Artifact:
    record = row["record"]
    if not isinstance(record, str):
        raise ArtifactError("it has no record")
    rest = decode_artifact(record)
    positions: Sequence[object] = [row[name] for name in ("sampled_logprobs", "top_ids", "top_logprobs")]
    try:
        return msgspec.structs.replace(
            rest,
            tokens=msgspec.convert(
                {
                    "prompt_ids": row["prompt_ids"],
                    "completion_ids": row["completion_ids"],
                    "prompt_cut": rest.tokens.prompt_cut,
                },
                TokenIds,
            ),
            positions=None if positions == [None] * 3 else _positions(row),
        )
    except msgspec.ValidationError as error:
        raise ArtifactError(f"its columns do not fit an artifact: {error}") from None


def _positions(row: dict[str, object]) -> Positions:
    names = {"sampled": "sampled_logprobs", "ids": "top_ids", "logprobs": "top_logprobs", "kept": "kept"}
    return msgspec.convert({key: row[name] for key, name in names.items()}, Positions)
