from __future__ import annotations

from pathlib import Path

import pytest

from logproof.errors import StoreError
from logproof.launch.logs import first_error, follow, last_line, tail


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo \xff\n\n")
    assert tail(log, 2) == ["two \ufffd", ""]
    assert tail(log, 0) == []
    assert last_line(log) == "two ?" or last_line(log) == "two \ufffd"
    log.write_text("loading the weights\n  ▄▄ █ ▄█ 100%|\n\r\n")
    assert last_line(log) == "loading the weights"
    log.write_text("")
    assert last_line(log) == ""


def test_the_tail_of_a_huge_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 99 + "\n", encoding="ascii")
    with log.open("a") as file:
        file.writelines(f"{'y' * 99}\n" for _ in range(10_000))
    assert 2_000 < len(tail(log, 1_000_000)) < 3_000


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "(pid=1) INFO ok\n(pid=1) ValueError: first api_key=abc\nRuntimeError: second\n",
            "ValueError: first api_key=",
        ),
        ("usage: x\napi_server.py: error: no such flag\n", "error: no such flag"),
        ("torch.OutOfMemoryError: big\n", "torch.OutOfMemoryError: big"),
        ("INFO no errors\n", None),
    ],
)
def test_the_first_error_is_found_and_masked(text: str, error: str | None, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    found = first_error(log)
    assert found == error if error is None else (found is not None and found.startswith(error))
    assert "abc" not in str(found)


def test_following_ends_with_the_engines_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\nnew\n")
    steps = iter([b"", "half é".encode()[:-1], "é end\n".encode()[1:], b"last words\n"])
    lives = iter([True, True, True, False])

    def alive() -> bool:
        with log.open("ab") as file:
            file.write(next(steps))
        return next(lives)

    assert "".join(follow(log, 1, alive)) == "new\nhalf é end\nlast words\n"


def test_a_log_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot read"):
        tail(tmp_path / "absent", 1)
