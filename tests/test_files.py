from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logproof.errors import StoreError
from logproof.files import atomic_file, make_directory, read_bounded, store_error, write_atomic


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomic(path, b"old")

    def write_half() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomic(path, b"old")
    code = (
        "import resource, sys, pathlib; from logproof.files import write_atomic\n"
        "from logproof.errors import StoreError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_atomic(pathlib.Path(sys.argv[1]), b'x' * 100_000)\n"
        "except StoreError as error: print(error, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "size limit" in done.stdout
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["report.json"]


def test_reads_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * 11)
    assert read_bounded(path, 11) == b"x" * 11
    with pytest.raises(StoreError, match="longer than 10 bytes"):
        read_bounded(path, 10)
    with pytest.raises(StoreError, match="no such file"):
        read_bounded(tmp_path / "absent")


@pytest.mark.parametrize(
    ("code", "text"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission denied"), (errno.EROFS, "read-only")]
)
def test_each_fault_says_what_to_do(code: int, text: str) -> None:
    error = store_error("write", Path("out.json"), OSError(code, "raw"))
    assert text in error.message
    assert error.hint
    assert "out.json" in error.message


def test_an_unknown_fault_keeps_the_words_of_the_system() -> None:
    assert "Too many links" in store_error("write", Path("x"), OSError(errno.EMLINK, "Too many links")).message
    assert "odd" in store_error("write", Path("x"), OSError("odd")).message


def test_a_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="no directory"):
        make_directory(tmp_path / "file" / "run")
    make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_directory_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file or directory"):
        write_atomic(tmp_path / "absent" / "file", b"x")
