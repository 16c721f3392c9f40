"""The tables of a run store, and the way of a record into a row and back.

    run        one row: provenance and format      sessions   one row an opening for writing
    calls      key (sample_key, part, key)         samples    key (key)
    scorers    key (digest)                        scores     key (scorer, sample_key)

JSON columns hold canonical text, `columns` the packed blob, last so that reading the rest skips it. The index
`samples_done` holds the keys of finished samples alone: a resume reads nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from logproof.errors import REDACTED, StoreError
from logproof.store.digest import canonical
from logproof.store.packed_columns import pack, unpack
from logproof.store.records import CallRecord, SampleRecord, Scorer, ScoreRecord, WriteSession

Cell = str | int | float | bytes | None
Record = CallRecord | SampleRecord | Scorer | ScoreRecord | WriteSession
R = TypeVar("R", CallRecord, SampleRecord, Scorer, ScoreRecord, WriteSession)

APPLICATION_ID = 0x4C50_5246
"""SQLite application id of a run store."""
FORMAT = 1
"""Number of this layout; a store with another is refused."""

DDL = """
CREATE TABLE run (id INTEGER PRIMARY KEY CHECK (id = 1), created REAL NOT NULL, provenance TEXT NOT NULL);
CREATE TABLE sessions (
    time REAL NOT NULL, pid INTEGER NOT NULL, scheduling TEXT NOT NULL, endpoints TEXT NOT NULL,
    fingerprints TEXT NOT NULL, versions TEXT NOT NULL);
CREATE TABLE calls (
    key TEXT NOT NULL, sample_key TEXT NOT NULL, dialect TEXT NOT NULL, status TEXT NOT NULL, part TEXT NOT NULL,
    error_type TEXT, error TEXT, attempts INTEGER NOT NULL, seconds REAL NOT NULL, request TEXT NOT NULL,
    response TEXT NOT NULL, reply_digest TEXT, endpoint TEXT, model TEXT, fingerprint TEXT, time REAL NOT NULL,
    columns BLOB NOT NULL, PRIMARY KEY (sample_key, part, key));
CREATE TABLE samples (
    key TEXT NOT NULL PRIMARY KEY, task TEXT NOT NULL, row_id TEXT NOT NULL, "index" INTEGER NOT NULL,
    status TEXT NOT NULL, repeat INTEGER NOT NULL, reason TEXT, scores TEXT NOT NULL, gold TEXT NOT NULL,
    output TEXT NOT NULL, time REAL NOT NULL);
CREATE INDEX samples_order ON samples (task, "index", repeat);
CREATE INDEX samples_done ON samples (key) WHERE status = 'ok';
CREATE TABLE scorers (digest TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, config TEXT NOT NULL, time REAL NOT NULL);
CREATE TABLE scores (
    sample_key TEXT NOT NULL, scorer TEXT NOT NULL REFERENCES scorers (digest), status TEXT NOT NULL, reason TEXT,
    scores TEXT NOT NULL, output TEXT NOT NULL, time REAL NOT NULL, PRIMARY KEY (scorer, sample_key));
"""

JSON_FIELDS = frozenset(
    {"request", "response", "scores", "gold", "output", "config", "scheduling", "endpoints", "fingerprints", "versions"}
)

TABLES: Mapping[type[Record], str] = {
    WriteSession: "sessions",
    CallRecord: "calls",
    SampleRecord: "samples",
    Scorer: "scorers",
    ScoreRecord: "scores",
}
"""Record type -> table, in the order in which one transaction writes them: a sample never precedes its calls."""

FIELDS: Mapping[type[Record], tuple[str, ...]] = {kind: kind.__struct_fields__ for kind in TABLES}

_JSON_AT = {kind: tuple(i for i, name in enumerate(fields) if name in JSON_FIELDS) for kind, fields in FIELDS.items()}
_JSON = msgspec.json.Decoder()

MIN_SECRET = 8
"""Shortest secret that is masked, in characters: placeholders such as EMPTY also occur in honest texts."""


class TableRow(NamedTuple):
    """One record ready to be written. size: its bytes, roughly, for the bound on what waits in memory."""

    kind: type[Record]
    cells: tuple[Cell, ...]
    size: int


def names(kind: type[Record], prefix: str = "") -> str:
    """The column list of a table, quoted, each with an optional prefix such as "samples."."""
    return ", ".join(f'{prefix}"{name}"' for name in FIELDS[kind])


def insert(kind: type[Record]) -> str:
    """The statement that writes one row, replacing one of the same key."""
    marks = ", ".join("?" * len(FIELDS[kind]))
    return " ".join(("INSERT OR REPLACE INTO", TABLES[kind], f"({names(kind)}) VALUES ({marks})"))


class RecordEncoder:
    """Turns records into rows, with the given secrets masked wherever they occur in a text."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        kept = {secret for secret in secrets if len(secret) >= MIN_SECRET}
        self._secrets = sorted(kept | {canonical(secret)[1:-1] for secret in kept}, key=len, reverse=True)

    def row(self, record: Record) -> TableRow:
        """The row of a record. Raises StoreError for a value that has no canonical JSON form."""
        kind = type(record)
        cells: list[object] = list(msgspec.structs.astuple(record))
        for place in _JSON_AT[kind]:
            cells[place] = canonical(cells[place])
        if kind is CallRecord:
            cells[-1] = _columns(cells[-1])
        whole = tuple([self._cell(kind, place, value) for place, value in enumerate(cells)])
        return TableRow(kind, whole, sum([len(cell) for cell in whole if isinstance(cell, (str, bytes))]))

    def mask(self, text: str) -> str:
        """The text without the secrets, and without the lone surrogates that SQLite cannot hold."""
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode("utf-8")
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text

    def _cell(self, kind: type[Record], place: int, value: object) -> Cell:
        if isinstance(value, str):
            return self.mask(value)
        if value is None or isinstance(value, (int, bytes)) or (isinstance(value, float) and math.isfinite(value)):
            return value
        raise StoreError(f"field {FIELDS[kind][place]} of a record cannot hold {value!r}")


def decode(kind: type[R], cells: Sequence[Cell]) -> R:
    """The record of a row, whose cells stand in the order of `names`. Raises StoreError for a damaged row."""
    values: dict[str, object] = dict(zip(FIELDS[kind], cells, strict=True))
    for place in _JSON_AT[kind]:
        cell = cells[place]
        if isinstance(cell, str):
            values[FIELDS[kind][place]] = parse(cell)
    blob = values.get("columns")
    if isinstance(blob, bytes):
        values["columns"] = unpack(blob)
    build: Callable[..., R] = kind
    return build(**values)


def _columns(value: object) -> bytes:
    if not isinstance(value, Mapping):
        raise StoreError("the columns of a call are no mapping")
    return pack(value)


def parse(text: str) -> object:
    """The JSON value of a stored text. Raises StoreError if it is none."""
    try:
        return _JSON.decode(text)
    except msgspec.DecodeError:  # also for the escape of a lone surrogate, which is in texts that engines return
        return _parse_any(text)


def _parse_any(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"a stored JSON text is damaged: {error}") from None
    return value
