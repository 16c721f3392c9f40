from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from logproof.errors import StoreError
from logproof.proxy.rotating_lines import RotatingLines


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def read(folder: Path) -> list[bytes]:
    return [line for p in sorted(folder.glob("*.jsonl")) for line in p.read_bytes().splitlines()]


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    lines = RotatingLines(tmp_path / "deep" / "out", "a")
    lines.write(b"1")
    assert read(tmp_path / "deep" / "out") == []
    lines.write(b"2")
    lines.close()
    assert read(tmp_path / "deep" / "out") == [b"1", b"2"]
    lines.close()
    assert len(names(tmp_path / "deep" / "out")) == 1


def test_files_are_closed_by_size_and_age(tmp_path: Path) -> None:
    lines = RotatingLines(tmp_path, "a", max_bytes=8, max_age_s=1e9)
    for _ in range(5):
        lines.write(b"123")
    lines.tick()
    assert len(read(tmp_path)) == 4
    assert len([n for n in names(tmp_path) if n.endswith(".open")]) == 1
    lines.close()
    young = RotatingLines(tmp_path, "b", max_age_s=0.0)
    young.tick()
    young.write(b"x")
    young.tick()
    assert len(read(tmp_path)) == 6


@pytest.mark.parametrize(
    ("left", "kept"),
    [(b"1\n2\n3", [b"1", b"2"]), (b"1\n", [b"1"]), (b"torn", []), (b"", []), (b"1\n" + b"x" * 200_000, [b"1"])],
)
def test_what_a_killed_process_left_is_cut_to_whole_lines(tmp_path: Path, left: bytes, kept: list[bytes]) -> None:
    (tmp_path / "a-0-0-0001.jsonl.open").write_bytes(left)
    lines = RotatingLines(tmp_path, "a")
    assert len(lines.recovered) == 1
    assert read(tmp_path) == kept
    assert not [n for n in names(tmp_path) if n.endswith(".open")]


WRITER = """
import sys
from pathlib import Path
from logproof.proxy.rotating_lines import RotatingLines
lines = RotatingLines(Path(sys.argv[1]), "a", max_bytes=3_000_000)
line = b'{"x": "' + b"y" * 400_000 + b'"}'
while True:
    lines.write(line)
    print("w", flush=True)
"""


def test_a_killed_writer_leaves_no_torn_line_to_read(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(12):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.stdout.close()
    process.wait()
    before = read(tmp_path)
    RotatingLines(tmp_path, "a")
    after = read(tmp_path)
    assert len(after) >= 12 > len(before) >= 7
    assert {json.loads(line)["x"] for line in after} == {"y" * 400_000}


class Full:
    """A file whose disk is full after some bytes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb+", buffering=0)

    def write(self, data: bytes) -> int:
        self._file.seek(0, os.SEEK_END)
        if len(data) < 5:
            raise OSError(28, "No space left on device")
        return self._file.write(data[:3])

    def fileno(self) -> int:
        return self._file.fileno()

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_a_full_disk_is_told_and_whole_lines_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = RotatingLines(tmp_path, "a")
    lines.write(b"first")
    monkeypatch.setattr(lines, "_file", Full(lines._path))
    with pytest.raises(StoreError, match="the disk is full"):
        lines.write(b"second")
    assert read(tmp_path) == [b"first"]
    lines.write(b"third")
    lines.close()
    assert sorted(read(tmp_path)) == [b"first", b"third"]


def test_a_folder_that_goes_away_is_told(tmp_path: Path) -> None:
    lines = RotatingLines(tmp_path / "out", "a")
    lines.write(b"1")
    next((tmp_path / "out").iterdir()).unlink()
    with pytest.raises(StoreError):
        lines.close()
    (tmp_path / "out").rmdir()
    with pytest.raises(StoreError):
        lines.write(b"2")


def test_a_file_that_cannot_be_recovered_is_told(tmp_path: Path) -> None:
    (tmp_path / "a-1.jsonl.open").mkdir()
    with pytest.raises(StoreError, match="cannot recover"):
        RotatingLines(tmp_path, "a")
