"""What a run store survives: SIGKILL at any instant, a log cut or garbled at any byte, a full disk."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from logproof.errors import StoreError, StoreLocked
from logproof.store import writer
from logproof.store.database import FILE
from logproof.store.reader import StoreReader
from logproof.store.run_store import RunStore
from store.making import CALLS, call, key_of, plain, provenance, sample

TESTS = Path(__file__).parents[1]
SAMPLES = 150
KILLS = 4


def start(path: Path, *more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "store.writing", str(path), *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=TESTS)


def finish(path: Path, *more: object) -> tuple[int, str]:
    process = start(path, *more)
    _, error = process.communicate()
    return process.returncode, error


def check_whole(reader: StoreReader) -> int:
    """Every record that is read is whole, and no sample is there without its calls. Returns the samples."""
    count = 0
    for found in reader.samples():
        assert found == sample(found.index)
        calls = [plain(c) for c in reader.calls(found.key)]
        assert calls == [plain(call(found.index, option)) for option in range(CALLS)]
        count += 1
    return count


def test_a_run_killed_at_any_instant_loses_nothing_that_was_durable(tmp_path: Path) -> None:
    chance = random.Random(11)
    for _ in range(KILLS):
        process = start(tmp_path, SAMPLES)
        assert process.stdout is not None
        told = 0
        for _ in range(chance.randint(1, 7)):
            told = int(process.stdout.readline() or told)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with RunStore.read(tmp_path) as reader:
            assert check_whole(reader) >= told
    assert finish(tmp_path, SAMPLES) == (0, "")
    with RunStore.read(tmp_path) as reader:
        assert check_whole(reader) == SAMPLES
        assert len(list(reader.calls(columns=False))) == SAMPLES * CALLS
        assert reader.done() == {key_of(number) for number in range(SAMPLES)}


def test_the_lock_of_a_killed_run_is_free(tmp_path: Path) -> None:
    process = start(tmp_path, 100_000)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(StoreLocked, match=f"process {process.pid}"):
        RunStore.amend(tmp_path)
    process.kill()
    process.communicate()
    RunStore.amend(tmp_path).close()


@pytest.mark.parametrize("garble", [False, True])
def test_a_torn_log_is_never_read(tmp_path: Path, garble: bool) -> None:
    with RunStore.create(tmp_path / "run", provenance()) as store:
        for number in range(12):
            for option in range(CALLS):
                store.put_call(call(number, option))
            store.put_sample(sample(number))
            store.flush()
        files = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if "-shm" not in path.name}
    log = files[f"{FILE}-wal"]
    seen = set()
    for cut in random.Random(5).sample(range(len(log) // 2, len(log)), 25):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        torn = log[:cut] + b"\xa5" * (len(log) - cut) if garble else log[:cut]
        for name, content in (files | {f"{FILE}-wal": torn}).items():
            (copy / name).write_bytes(content)
        with RunStore.read(copy) as reader:
            seen.add(check_whole(reader))
    assert max(seen) <= 12
    assert len(seen) > 3


def test_a_store_at_its_limit_stops_with_one_line_and_stays_valid(tmp_path: Path) -> None:
    def fill(store: RunStore) -> None:
        with store:
            for number in range(5000):
                for option in range(CALLS):
                    store.put_call(call(number, option))
                store.put_sample(sample(number))

    with pytest.raises(StoreError, match="disk is full, or the store is at its limit") as caught:
        fill(RunStore.create(tmp_path, provenance(), max_bytes=300_000))
    assert "resume" in str(caught.value.hint)
    with RunStore.read(tmp_path) as reader:
        kept = check_whole(reader)
    with RunStore.resume(tmp_path, provenance()) as store:
        assert len(store.done()) == kept
        for option in range(CALLS):
            store.put_call(call(kept, option))
        store.put_sample(sample(kept))
    with RunStore.read(tmp_path) as reader:
        assert check_whole(reader) == kept + 1


def test_a_full_disk_stops_the_run_with_one_line(tmp_path: Path) -> None:
    code, error = finish(tmp_path, 5000, 400_000)
    assert code == StoreError.exit_code
    assert len(error.splitlines()) == 1
    assert "disk" in error
    with RunStore.read(tmp_path) as reader:
        kept = check_whole(reader)
    assert kept > 0
    assert finish(tmp_path, kept + 3) == (0, "")
    with RunStore.read(tmp_path) as reader:
        assert check_whole(reader) == kept + 3


def test_a_store_too_small_to_begin_leaves_no_lock(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="limit"):
        RunStore.create(tmp_path, provenance(), max_bytes=4096)
    RunStore.create(tmp_path, provenance()).close()


def test_a_failure_of_the_writer_reaches_every_later_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore.create(tmp_path, provenance())
    store.check()

    def broken(kind: object) -> str:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(writer, "insert", broken)
    store.put_sample(sample(0))
    for action in (store.flush, store.check, lambda: store.put_sample(sample(1)), store.close):
        with pytest.raises(StoreError, match="ZeroDivisionError: odd"):
            action()
    RunStore.amend(tmp_path).close()


def test_leaving_with_an_unseen_failure_raises_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(error: Exception) -> None:
        with RunStore.resume(tmp_path, provenance()) as store:
            monkeypatch.setattr(writer, "insert", lambda kind: "no statement")
            store.put_sample(sample(0))
            raise error

    RunStore.create(tmp_path, provenance()).close()
    with pytest.raises(StoreError, match="syntax error"):
        run(ValueError("of the caller"))
    monkeypatch.undo()
    with pytest.raises(StoreError, match="of the caller"):
        run(StoreError("of the caller"))


def test_a_session_that_cannot_be_written_frees_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunStore.create(tmp_path, provenance()).close()
    monkeypatch.setattr(writer, "insert", lambda kind: "no statement")
    with pytest.raises(StoreError, match="syntax error"):
        RunStore.resume(tmp_path, provenance())
    monkeypatch.undo()
    RunStore.resume(tmp_path, provenance()).close()


def test_another_program_that_holds_the_store_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunStore.create(tmp_path, provenance()).close()
    monkeypatch.setattr("logproof.store.database.BUSY_SECONDS", 0.01)
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="another program holds it"):
        RunStore.amend(tmp_path)
    other.execute("ROLLBACK")
    other.close()
    RunStore.amend(tmp_path).close()


def test_a_reader_that_stays_does_not_stop_the_end_of_a_run(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, provenance())
    with RunStore.read(tmp_path) as reader:
        reader.done()
        store.put_sample(sample(0))
        store.close()
        assert reader.done() == {key_of(0)}
