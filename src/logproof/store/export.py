"""A run's records as JSONL or Parquet, streamed: memory holds one batch, whatever the size of the run.

JSONL: one record a line. Wide channels are left out unless asked for; then a column is a list, NaN (a position
that the engine does not score) is null, and infinities are the strings "inf" and "-inf".
Parquet (needs the extra `parquet`): JSON fields are JSON text; wide channels are a list of structs (name, dtype,
shape, and the values under ints, floats or texts), with NaN and infinities as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Literal

import numpy as np

from logproof.errors import StoreError, UsageError
from logproof.files import atomic_file
from logproof.store.digest import canonical
from logproof.store.packed_columns import Column
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, SampleRecord
from logproof.store.schema import FIELDS, JSON_FIELDS

Table = Literal["samples", "calls"]
Format = Literal["jsonl", "parquet"]
ExportRecord = CallRecord | SampleRecord
Write = Callable[[Iterable[ExportRecord], BinaryIO, Table], int]

BATCH_ROWS = 1000
BATCH_VALUES = 2_000_000
"""A Parquet row group ends at so many records, or so many values of their wide channels."""

_TYPES = {"index": "int64", "repeat": "int64", "attempts": "int64", "seconds": "float64", "time": "float64"}
_INFINITIES = {float("inf"): "inf", float("-inf"): "-inf"}


def format_of(path: Path) -> Format:
    """The format that a file's name asks for."""
    return "parquet" if path.suffix == ".parquet" else "jsonl"


def export_run(
    run: Path,
    to: Path | BinaryIO,
    table: Table,
    form: Format,
    *,
    task: str | None = None,
    scorer: str | None = None,
    columns: bool = False,
    replace: bool = False,
) -> int:
    """Write the records of a stored run to a file, or as JSONL to a stream, and return their number.

    task, scorer, columns: see `records`. replace: a file that is there. Raises StoreError, UsageError.
    """
    if not isinstance(to, Path) and form != "jsonl":
        raise UsageError("Parquet does not go to standard output", hint="name a file")
    with StoreReader(run) as reader:
        rows = records(reader, table, task=task, scorer=scorer, columns=columns)
        if isinstance(to, Path):
            return export(rows, table, to, form, replace=replace)
        return write_jsonl(rows, to, table)


def records(
    reader: StoreReader, table: Table, *, task: str | None = None, scorer: str | None = None, columns: bool = False
) -> Iterator[ExportRecord]:
    """The records to export. task, scorer: for samples only (UsageError). columns: wide channels of calls."""
    if table == "samples":
        return reader.samples(task, scorer)
    if task is not None or scorer is not None:
        raise UsageError("a task or scorer chooses samples, not calls")
    return reader.calls(columns=columns)


def export(rows: Iterable[ExportRecord], table: Table, path: Path, form: Format, *, replace: bool = False) -> int:
    """Write a whole file and return its number of records; a file that is there stays unless `replace`.

    Raises StoreError, and UsageError where pyarrow is missing. A failed export leaves no file.
    """
    if path.exists() and not replace:
        raise StoreError(f"{path} exists", hint="choose another name, or add --replace")
    write: Write = write_jsonl if form == "jsonl" else write_parquet
    with atomic_file(path) as file:
        return write(rows, file, table)


def write_jsonl(rows: Iterable[ExportRecord], file: BinaryIO, table: Table) -> int:
    """Write one line a record; fields in the order of the record's type. Returns the number of lines."""
    count = 0
    for row in rows:
        line = json.dumps(_line(row, table), allow_nan=False, separators=(",", ":"))
        file.write(line.encode("ascii") + b"\n")
        count += 1
    return count


def write_parquet(rows: Iterable[ExportRecord], file: BinaryIO, table: Table) -> int:
    """Write row groups with zstd. Returns the number of records. Raises UsageError without pyarrow."""
    arrow, parquet = _arrow()
    schema = _schema(arrow, table)
    count = 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            cells = [_cells(row, table) for row in batch]
            writer.write_table(arrow.Table.from_pylist(cells, schema=schema))
            count += len(batch)
    return count


def _names(table: Table) -> tuple[str, ...]:
    return FIELDS[CallRecord if table == "calls" else SampleRecord]


def _line(row: ExportRecord, table: Table) -> dict[str, object]:
    line: dict[str, object] = {name: getattr(row, name) for name in _names(table) if name != "columns"}
    if isinstance(row, CallRecord) and row.columns:
        line["columns"] = {name: _json_column(column) for name, column in row.columns.items()}
    return line


def _json_column(column: Column) -> list[object]:
    if not isinstance(column, np.ndarray):
        return list(column)
    plain: list[object] = column.tolist()
    return _json_floats(plain) if column.dtype.kind == "f" else plain


def _json_floats(values: list[object]) -> list[object]:
    return [_json_floats(value) if isinstance(value, list) else _json_float(value) for value in values]


def _json_float(value: object) -> object:
    if value != value:
        return None
    return _INFINITIES.get(value, value) if isinstance(value, float) else value


def _batches(rows: Iterable[ExportRecord]) -> Iterator[list[ExportRecord]]:
    batch: list[ExportRecord] = []
    values = 0
    for row in rows:
        batch.append(row)
        values += sum(_length(c) for c in row.columns.values()) if isinstance(row, CallRecord) else 0
        if len(batch) >= BATCH_ROWS or values >= BATCH_VALUES:
            yield batch
            batch, values = [], 0
    if batch:
        yield batch


def _length(column: Column) -> int:
    return column.size if isinstance(column, np.ndarray) else len(column)


def _cells(row: ExportRecord, table: Table) -> dict[str, object]:
    cells = {name: getattr(row, name) for name in _names(table)}
    for name in cells.keys() & JSON_FIELDS:
        cells[name] = canonical(cells[name])
    if isinstance(row, CallRecord):
        cells["columns"] = [_wide(name, column) for name, column in row.columns.items()]
    return cells


def _wide(name: str, column: Column) -> Mapping[str, object]:
    if not isinstance(column, np.ndarray):
        return {"name": name, "dtype": "text", "shape": [len(column)], "texts": [_utf8(text) for text in column]}
    kind, values = ("floats", column) if column.dtype.kind == "f" else ("ints", column.astype(np.int64))
    return {"name": name, "dtype": column.dtype.name, "shape": list(column.shape), kind: values.reshape(-1).tolist()}


def _utf8(text: str | None) -> str | None:
    """Parquet holds UTF-8 only: a lone surrogate becomes "?"."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _schema(arrow: ModuleType, table: Table) -> object:
    wide = [("name", arrow.string()), ("dtype", arrow.string()), ("shape", arrow.list_(arrow.int64()))]
    wide += [("ints", arrow.list_(arrow.int64())), ("floats", arrow.list_(arrow.float64()))]
    wide += [("texts", arrow.list_(arrow.string()))]
    special = {name: arrow.type_for_alias(alias) for name, alias in _TYPES.items()}
    special["columns"] = arrow.list_(arrow.struct(wide))
    return arrow.schema([(name, special.get(name, arrow.string())) for name in _names(table)])


def _arrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError("Parquet needs pyarrow", hint="pip install 'logproof[parquet]', or export as jsonl") from None
    return pyarrow, pyarrow.parquet
