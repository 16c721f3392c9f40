"""Datasets: typed rows out of JSONL files, shipped or given, or from the hub by an optional extra.

A source is None for the rows shipped in the package, a directory of `NAME.SPLIT.jsonl` files, one JSONL file
(it then stands for every split, and a row is never its own few-shot row), or `hub:REPO[:CONFIG]`. `scan` reads
a split once, checks every row and keeps counts and digests only; `Dataset.docs` reads it again row by row, so
memory does not grow with the rows.
Every fault of a row is a DatasetError that names file and line.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import numpy as np

from logproof.errors import DatasetError, UsageError, clip
from logproof.eval.tasks.rows import Row

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Longest line of a data file."""
MAX_FILE_BYTES = 2 * 1024**3
"""Largest data file."""
MAX_LIMIT_CHARS = 20
"""Longest text of a limit: an exponent written in it would be a number of so many digits."""
MAX_POOL = 10_000
"""Most rows of a few-shot pool that are read."""

HUB = "hub:"

R = TypeVar("R", bound=Row)
Lines = Callable[[], Iterable[bytes]]


class Doc(msgspec.Struct, Generic[R], frozen=True):
    """One row with its place.

    index: 0-based among the rows of its split. where: `file:line`. digest: of its content. copy: how many rows
    of the same content stand before it; published sets do repeat a few questions, and each counts.
    """

    index: int
    where: str
    digest: str
    row: R
    copy: int = 0

    @property
    def key(self) -> str:
        """Identity of the row within its split: content digest, and the copy's number where there are several."""
        return self.digest if self.copy == 0 else f"{self.digest}#{self.copy}"


class Dataset(Generic[R]):
    """One scanned split. name: as shown. count: its rows. digest: SHA-256 over the digests of its rows, in order."""

    def __init__(self, name: str, lines: Lines, row_type: type[R]) -> None:
        self.name = name
        self._lines = lines
        self._row_type = row_type
        self._repeated: frozenset[int] = frozenset()
        self.count, self.digest = 0, ""

    def scan(self) -> Dataset[R]:
        """Read and check every row once. Raises DatasetError for a bad row, an id that occurs twice, or no row."""
        total = hashlib.sha256()
        shorts = array("Q")
        ids: dict[bytes, int] = {}
        for doc in _read(self._lines(), self.name, self._row_type):
            self.count += 1
            total.update(doc.digest.encode())
            shorts.append(_short(doc.digest))
            _refuse_twin(doc, ids)
        if not self.count:
            raise DatasetError(f"{self.name} holds no row", hint="it needs at least one line of JSON")
        self.digest = total.hexdigest()
        values, counts = np.unique(np.frombuffer(shorts, dtype=np.uint64), return_counts=True)
        self._repeated = frozenset(values[counts > 1].tolist())
        return self

    def docs(self, limit: str | None = None) -> Iterator[Doc[R]]:
        """The rows in file order, read anew; as many as `limit` leaves (see `count_limit`)."""
        copies: Counter[str] = Counter()
        kept = self.count if limit is None else count_limit(limit, self.count)
        for doc in islice(_read(self._lines(), self.name, self._row_type, check=False), kept):
            if _short(doc.digest) in self._repeated:
                yield msgspec.structs.replace(doc, copy=copies[doc.digest])
                copies[doc.digest] += 1
            else:
                yield doc


def open_dataset(source: str | None, name: str, split: str, row_type: type[R]) -> Dataset[R]:
    """Scan one split of a source.

    Raises DatasetError for a missing, empty or too large file or a bad row, UsageError for a hub source
    without the extra that reads it.
    """
    if source is not None and source.startswith(HUB):
        table = _hub_table(source.removeprefix(HUB), split)
        return Dataset(f"{source}:{split}", lambda: (msgspec.json.encode(row) for row in table), row_type).scan()
    file = _file(source, name, split)
    return Dataset(file.name if source is None else str(file), lambda: _lines(file), row_type).scan()


def pool(dataset: Dataset[R]) -> list[Doc[R]]:
    """The rows of a few-shot pool, at most MAX_POOL of them."""
    return list(islice(dataset.docs(), MAX_POOL))


def check_limit(limit: str | None) -> None:
    """Raise UsageError for a limit that no dataset could have."""
    if limit is not None:
        _limit(limit)


def _limit(limit: str) -> Fraction:
    try:
        if len(limit) > MAX_LIMIT_CHARS or "e" in limit.lower():
            raise ValueError
        value = Fraction(limit)
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"limit {clip(limit, 40)!r} is no number", hint="give a count such as 50, or 0.1") from None
    if not (0 < value < 1 or (limit.strip().isdecimal() and value >= 1)):
        raise UsageError(f"limit {limit} is neither a count of at least 1 nor a fraction between 0 and 1")
    return value


def count_limit(limit: str, total: int) -> int:
    """How many of `total` rows a limit leaves: a whole number of at least 1, or a fraction below 1 of all rows.

    A fraction is rounded down. Raises UsageError for anything else, or a fraction that leaves no row.
    """
    value = _limit(limit)
    if value >= 1:
        return min(int(value), total)
    kept = math.floor(value * total)
    if kept == 0:
        raise UsageError(f"limit {limit} of {total} rows leaves no row", hint="give a larger fraction, or a count")
    return kept


def _file(source: str | None, name: str, split: str) -> Traversable:
    file_name = f"{name}.{split}.jsonl"
    if source is None:
        return resources.files("logproof.eval.tasks") / "data" / file_name
    path = Path(source)
    if path.is_dir():
        path = path / file_name
    if not path.is_file():
        raise DatasetError(f"no data file {path}", hint=f"a data directory holds files such as {file_name}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise DatasetError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    return path


def _lines(file: Traversable) -> Iterator[bytes]:
    try:
        with file.open("rb") as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                yield line
    except OSError as error:
        raise DatasetError(f"cannot read {file}: {error.strerror}") from None


def _read(lines: Iterable[bytes], file: str, row_type: type[R], *, check: bool = True) -> Iterator[Doc[R]]:
    """Rows of lines. check: their fields against each other; the second reading of a file need not."""
    decoder = msgspec.json.Decoder(row_type)
    index = 0
    for number, line in enumerate(lines, start=1):
        where = f"{file}:{number}"
        if number == 1:
            line = _beginning(line, file)
        if len(line) > MAX_LINE_BYTES:
            raise DatasetError(f"{where}: the line is longer than {MAX_LINE_BYTES} bytes")
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
            if check:
                row.check()
        except (msgspec.DecodeError, ValueError) as error:
            raise DatasetError(f"{where}: {_fault(line, error)}", hint="mend or remove this row") from None
        yield Doc(index, where, row.digest(), row)
        index += 1


def _beginning(line: bytes, file: str) -> bytes:
    """The first line without a byte order mark. Raises DatasetError for a file that is no UTF-8 text."""
    if line.startswith(codecs.BOM_UTF8):
        return line.removeprefix(codecs.BOM_UTF8)
    kinds = {b"\x1f\x8b": "compressed (gzip)", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
    kind = kinds.get(line[:2])
    if kind is not None:
        raise DatasetError(f"{file} is {kind}, and not the UTF-8 text of JSON lines", hint="convert it first")
    return line


def _fault(line: bytes, error: Exception) -> str:
    """What is wrong with a row; the decoder calls a NaN malformed without a word why."""

    def refuse(name: str) -> None:
        raise ArithmeticError(name)

    try:
        json.loads(line, parse_constant=refuse)
    except ArithmeticError as name:
        return f"it holds {name}, which is no JSON number"
    except (ValueError, RecursionError):
        pass
    return clip(str(error), 200)


def _short(digest: str) -> int:
    """The first 64 bits of a digest: rows that share them may be copies, all others are not."""
    return int(digest[:16], 16)


def _refuse_twin(doc: Doc[R], ids: dict[bytes, int]) -> None:
    """An id that occurs twice tells that a file was joined or edited wrongly."""
    row_id = getattr(doc.row, "id", None)
    if row_id is None:
        return
    first = ids.setdefault(hashlib.sha256(row_id.encode()).digest()[:12], doc.index)
    if first != doc.index:
        raise DatasetError(
            f"{doc.where}: the id {clip(row_id, 60)!r} occurs twice, first in row {first + 1}",
            hint="remove or rename one of the two",
        )


def _hub_table(repo: str, split: str) -> Iterable[object]:
    try:
        library = import_module("datasets")
    except ImportError:
        raise UsageError(
            "data by hub name needs the optional extra", hint="pip install 'logproof[hub]', or give --data PATH"
        ) from None
    path, _, config = repo.partition(":")
    try:
        table: Iterable[object] = library.load_dataset(path, config or None, split=split)
    except Exception as error:  # the library raises whatever its transport does
        raise DatasetError(f"hub data {repo!r} ({split}) did not load: {clip(str(error), 200)}") from None
    return table
