from __future__ import annotations

from pathlib import Path

import pytest

from logproof.errors import StoreError
from logproof.store.catalog import describe, find_runs
from logproof.store.database import FILE
from logproof.store.lock import is_held
from logproof.store.run_store import RunStore
from store.making import provenance, sample


def write(path: Path, count: int, planned: dict[str, int]) -> None:
    with RunStore.create(path, provenance(planned=planned)) as store:
        for number in range(count):
            store.put_sample(sample(number))


def test_runs_are_listed_with_their_state_oldest_first(tmp_path: Path) -> None:
    write(tmp_path / "b", 2, {"arc": 2})
    write(tmp_path / "deep" / "a", 1, {"arc": 2})
    write(tmp_path / ".hidden", 1, {})
    write(tmp_path / "1" / "2" / "3" / "4", 1, {})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / FILE).write_text("x")
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = find_runs(tmp_path)
    assert [(Path(info.path).name, info.state) for info in found] == [
        ("broken", "unreadable"),
        ("b", "complete"),
        ("a", "partial"),
    ]
    assert found[0].error
    assert found[1].summary is not None
    assert [Path(info.path).name for info in find_runs(tmp_path / "b")] == ["b"]


def test_a_run_under_way_is_running(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance(planned={})):
        assert describe(tmp_path).state == "running"
    assert describe(tmp_path).state == "partial"
    (tmp_path / "run.lock").unlink()
    assert describe(tmp_path).state == "partial"


def test_what_did_not_say_how_much_it_planned_is_never_complete(tmp_path: Path) -> None:
    write(tmp_path, 2, {})
    assert describe(tmp_path).state == "partial"


def test_a_directory_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        find_runs(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot read"):
        is_held(tmp_path / "file" / "lock")
