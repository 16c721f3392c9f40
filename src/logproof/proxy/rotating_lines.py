"""JSON lines in files that a reader never sees torn.

Lines go to `NAME-TIME-NNNN.jsonl.open`; when it is large or old enough, or at the end, it is made durable and renamed
to `.jsonl`. What a killed process left open is cut to its whole lines and renamed by the next one.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from logproof.files import make_directory, store_error, sync_directory

_OPEN = ".open"


class RotatingLines:
    """Appends lines to files `name-*.jsonl` in `folder`. Not for several threads at a time.

    max_bytes: size at which a file is closed. max_age_s: age at which it is closed, by `tick` or the next line.
    Raises StoreError from every method; after that, the next line begins a file of its own.
    """

    def __init__(self, folder: Path, name: str, *, max_bytes: int = 64 << 20, max_age_s: float = 30.0) -> None:
        self._folder = folder
        self._name = name
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self._count = 0
        self._file: BinaryIO | None = None
        self._path = folder
        self._size = 0
        self._born = 0.0
        make_directory(folder)
        self.recovered = [_recover(p) for p in sorted(folder.glob(f"{name}-*.jsonl{_OPEN}"))]

    def write(self, line: bytes) -> None:
        """Append one line, given without its line feed."""
        try:
            file = self._file or self._begin()
            _write_all(file, line + b"\n")
        except OSError as error:
            self._drop()
            raise store_error("write", self._path, error) from None
        self._size += len(line) + 1
        if self._size >= self._max_bytes:
            self.close()

    def tick(self) -> None:
        """Close the file if it is old enough."""
        if self._file is not None and time.monotonic() - self._born >= self._max_age_s:
            self.close()

    def close(self) -> None:
        """Make the file durable and give it its name; the next line begins another."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            with file:
                os.fsync(file.fileno())
            _publish(self._path)
        except OSError as error:
            raise store_error("write", self._path, error) from None

    def _begin(self) -> BinaryIO:
        self._count += 1
        name = f"{self._name}-{self._stamp}-{os.getpid()}-{self._count:04d}.jsonl{_OPEN}"
        self._path = self._folder / name
        self._file = self._path.open("xb", buffering=0)
        self._size, self._born = 0, time.monotonic()
        return self._file

    def _drop(self) -> None:
        """After a failed write: keep the whole lines, and leave the file."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            with file:
                os.ftruncate(file.fileno(), self._size)
            _publish(self._path)
        except OSError:
            return


def _write_all(file: BinaryIO, data: bytes) -> None:
    """An unbuffered file may take less than it is given, such as the last bytes of a full disk."""
    while data:
        data = data[file.write(data) :]


def _recover(path: Path) -> Path:
    """Cut a file that was left open to its whole lines and give it its name."""
    try:
        with path.open("rb+") as file:
            file.truncate(_whole_lines(file))
            os.fsync(file.fileno())
        return _publish(path)
    except OSError as error:
        raise store_error("recover", path, error) from None


def _whole_lines(file: BinaryIO, step: int = 1 << 16) -> int:
    """Size of the file up to and with its last line feed."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - step)
        file.seek(start)
        at = file.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _publish(path: Path) -> Path:
    final = path.with_name(path.name.removesuffix(_OPEN))
    if path.stat().st_size == 0:
        path.unlink()
    else:
        path.rename(final)
    sync_directory(path.parent)
    return final
