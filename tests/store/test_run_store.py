from __future__ import annotations

import json
import math
import sqlite3
import threading
from pathlib import Path

import pytest

from logproof.errors import StoreError, StoreLocked
from logproof.store import database, writer
from logproof.store.database import FILE
from logproof.store.lock import WriteLock
from logproof.store.records import Scorer, ScoreRecord
from logproof.store.run_store import RunStore, open_run, refuse_stored
from store.making import call, key_of, plain, provenance, sample


def test_records_come_back_as_they_were_put(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", provenance()) as store:
        for number in range(3):
            store.put_call(call(number, 1))
            store.put_call(call(number, 0))
            store.put_sample(sample(number))
        store.flush()
        assert store.done() == {key_of(number) for number in range(3)}
    with RunStore.read(tmp_path / "run") as reader:
        assert list(reader.samples()) == [sample(number) for number in range(3)]
        calls = list(reader.calls(key_of(1)))
        assert [plain(found) for found in calls] == [plain(call(1, 0)), plain(call(1, 1))]
        assert [c.part for c in reader.calls()][:2] == ["option 1", "option 0"]
        assert all(not found.columns for found in reader.calls(columns=False))
        assert reader.provenance == provenance(fingerprints=("fp-a",))


def test_a_finished_run_is_one_file_beside_its_lock(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        store.put_sample(sample(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.lock", FILE]


def test_samples_come_in_dataset_order_and_by_task(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        for number in (11, 2, 7):
            store.put_sample(sample(number))
        store.put_sample(sample(1, key="other", task="mmlu"))
        store.flush()
        assert [found.index for found in store.samples("arc")] == [2, 7, 11]
        assert [found.task for found in store.samples()] == ["arc", "arc", "arc", "mmlu"]


def test_a_failed_sample_is_not_done_and_its_rerun_replaces_it(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        store.put_sample(sample(3, status="failed", reason="HTTP 503", scores={}))
        store.flush()
        assert store.done() == set()
        assert store.failed() == {key_of(3): "HTTP 503"}
        store.put_sample(sample(3))
        store.flush()
        assert store.done() == {key_of(3)}
        assert store.failed() == {}
        assert len(list(store.samples())) == 1


def test_equal_requests_of_two_samples_or_parts_stay_apart(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        for key, part in (("s1", "a"), ("s1", "b"), ("s2", "a"), ("s2", "a")):
            store.put_call(call(0, key="same", sample_key=key, part=part))
        store.flush()
        assert [c.part for c in store.calls("s1")] == ["a", "b"]
        assert len(list(store.calls("s2"))) == 1


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        store.put_sample(sample(0))
    with pytest.raises(StoreError, match="holds a run already") as caught:
        RunStore.create(tmp_path, provenance())
    assert "resume" in str(caught.value.hint)
    with RunStore.read(tmp_path) as reader:
        assert len(reader.done()) == 1


def test_a_run_killed_before_its_provenance_can_begin_again(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / FILE).execute("PRAGMA journal_mode=WAL").close()
    with pytest.raises(StoreError, match="stopped before it began"):
        RunStore.read(tmp_path)
    refuse_stored(tmp_path)
    with RunStore.create(tmp_path, provenance()) as store:
        assert store.done() == set()
    with pytest.raises(StoreError, match="holds a run already"):
        refuse_stored(tmp_path)


def test_a_file_where_the_directory_should_be_is_refused_early(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(StoreError, match="run is a file"):
        refuse_stored(tmp_path / "run")


def test_a_run_killed_before_its_provenance_can_also_be_resumed(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / FILE).execute("PRAGMA journal_mode=WAL").close()
    with open_run(tmp_path, provenance(), resume=True) as store:
        assert store.done() == set()
        assert len(store.sessions()) == 1


def test_a_file_that_is_no_database_is_not_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"some text that is no database" * 9)
    with pytest.raises(StoreError, match="holds a run already"):
        refuse_stored(tmp_path)
    with pytest.raises(StoreError, match="it is no run store"):
        open_run(tmp_path, provenance(), resume=True)


def test_two_runs_cannot_write_one_store(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        for opening in (RunStore.create, RunStore.resume):
            with pytest.raises(StoreLocked, match=r"another run \(process \d+\) writes"):
                opening(tmp_path, provenance())
        store.put_sample(sample(0))
    RunStore.amend(tmp_path).close()


def test_an_unnamed_holder_is_still_a_holder(tmp_path: Path) -> None:
    lock = WriteLock(tmp_path / "lock")
    (tmp_path / "lock").write_text("")
    with pytest.raises(StoreLocked, match="process unknown"):
        WriteLock(tmp_path / "lock")
    lock.release()
    lock.release()
    WriteLock(tmp_path / "lock").release()


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="cannot lock"):
        WriteLock(tmp_path / "absent" / "lock")

    def broken(handle: int, mode: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("logproof.store.lock.fcntl.flock", broken)
    with pytest.raises(StoreError, match="No locks available"):
        WriteLock(tmp_path / "lock")


def test_reading_goes_on_while_a_run_writes(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store, RunStore.read(tmp_path) as reader:
        for number in range(5):
            store.put_call(call(number))
            store.put_sample(sample(number))
            store.flush()
            assert len(reader.done()) == number + 1
        stream = reader.samples()
        next(stream)
        store.put_sample(sample(9))
        store.flush()
        assert len(list(stream)) == 4


def test_many_threads_put_into_one_store(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:

        def work(start: int) -> None:
            for number in range(start, start + 50):
                store.put_sample(sample(number))

        threads = [threading.Thread(target=work, args=(50 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.flush()
        assert len(store.done()) == 200
        assert store.stats.rows == 201
        assert store.stats.commits < 201
        assert store.stats.longest > 0


def test_a_full_queue_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_ROWS", 4)
    monkeypatch.setattr(writer, "MAX_BYTES", 3000)
    with RunStore.create(tmp_path, provenance()) as store:
        for number in range(30):
            store.put_call(call(number, response={"text": "x" * (5000 if number == 7 else 10)}))
        store.flush()
        assert len(list(store.calls())) == 30


def test_nan_never_enters_a_record(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        with pytest.raises(StoreError, match="canonical JSON"):
            store.put_sample(sample(0, scores={"acc": math.nan}))
        with pytest.raises(StoreError, match="field seconds"):
            store.put_call(call(0, seconds=math.inf))
        with pytest.raises(StoreError, match="no mapping"):
            store.put_call(call(0, columns=[1]))
        store.put_sample(sample(1))
    with RunStore.read(tmp_path) as reader:
        assert [found.index for found in reader.samples()] == [1]


def test_texts_that_utf8_cannot_hold_do_not_stop_the_run(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        store.put_sample(sample(0, row_id="a\ud800é", output="\ud800"))
        store.flush()
        (found,) = store.samples()
    assert (found.row_id, found.output) == ("a?é", "\ud800")


def test_no_secret_reaches_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-test-ABC123\"'é"
    monkeypatch.setenv("LOGPROOF_API_KEY", key)
    told = provenance(config={"header": f"Bearer {key}"}, endpoints=(f"http://h/v1?key={key}",))
    with RunStore.create(tmp_path, told, secrets=[key, "EMPTY"]) as store:
        store.put_call(call(0, error=f"422: you sent {key}", request={"h": key}, response=[key], endpoint=key))
        store.put_sample(sample(0, reason=f"{key}", output={key: "EMPTY"}))
        store.flush()
        live = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    closed = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for form in (key, json.dumps(key)[1:-1], "sk-test-ABC123"):
        assert form.encode() not in live + closed
    with RunStore.resume(tmp_path, told, secrets=[key]) as store:
        (found,) = store.samples()
        assert found.output == {"[redacted]": "EMPTY"}
        assert store.provenance.config == {"header": "Bearer [redacted]"}


def test_a_later_scorer_writes_beside_the_first_scores(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        for number in range(3):
            store.put_sample(sample(number))
        store.put_sample(sample(3, status="failed", reason="HTTP 500", scores={}))
    with RunStore.amend(tmp_path) as store:
        store.put_scorer(Scorer(digest="d1", name="flexible", config={"regex": "x"}, time=1.0))
        store.put_score(ScoreRecord(sample_key=key_of(0), scorer="d1", status="ok", scores={"acc": 0.0}, output="b"))
        store.put_score(ScoreRecord(sample_key=key_of(1), scorer="d1", status="failed", reason="no answer"))
        store.put_score(ScoreRecord(sample_key=key_of(3), scorer="d1", status="ok", scores={"acc": 1.0}))
        store.flush()
        first = list(store.samples())
        later = list(store.samples(scorer="d1"))
        assert [scorer.name for scorer in store.scorers()] == ["flexible"]
        with pytest.raises(StoreError, match="no scorer d2"):
            store.samples(scorer="d2")
    assert [found.scores.get("acc") for found in first] == [1.0, 1.0, 1.0, None]
    assert [(found.status, found.reason) for found in later] == [
        ("ok", None),
        ("failed", "no answer"),
        ("failed", "not scored by d1"),
        ("failed", "HTTP 500"),
    ]
    assert (later[0].scores, later[0].output, later[2].scores) == ({"acc": 0.0}, "b", {})


def test_the_summary_counts_what_is_stored(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance(planned={"arc": 4, "mmlu": 2})) as store:
        store.put_sample(sample(0))
        store.put_sample(sample(1, status="failed", reason="x"))
        store.put_call(call(0))
        store.put_call(call(1, status="failed", model=None, fingerprint=None))
        store.put_call(call(2, fingerprint="fp-b"))
        store.flush()
        summary = store.summary()
    assert [(c.task, c.ok, c.failed, c.planned) for c in summary.tasks] == [("arc", 1, 1, 4), ("mmlu", 0, 0, 2)]
    assert (summary.calls_ok, summary.calls_failed) == (2, 1)
    assert summary.fingerprints == {"fp-a": 1, "fp-b": 1}
    assert summary.models == {"smollm2": 2}
    assert summary.sessions == 1


def test_open_run_resumes_only_what_is_there_and_asked_for(tmp_path: Path) -> None:
    open_run(tmp_path, provenance(), resume=True).close()
    with open_run(tmp_path, provenance(), resume=True) as store:
        assert len(store.sessions()) == 2
    with pytest.raises(StoreError, match="already"):
        open_run(tmp_path, provenance(), resume=False)


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, provenance())
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.put_sample(sample(0))
    with pytest.raises(StoreError, match="cannot read"):
        store.done()
    store.close()


@pytest.mark.parametrize("content", [b"", b"no database at all, just some text that is long enough" * 20])
def test_what_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    for opening in (RunStore.read, RunStore.amend):
        with pytest.raises(StoreError):
            opening(tmp_path)
    with pytest.raises(StoreError, match="no run in"):
        RunStore.read(tmp_path / "absent")


def test_another_database_or_format_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="no run store"):
        RunStore.read(tmp_path)
    connection.execute(f"PRAGMA application_id={database.APPLICATION_ID}")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="format 99"):
        RunStore.read(tmp_path)
    with pytest.raises(StoreError, match="already"):
        RunStore.create(tmp_path, provenance())


def test_damaged_content_never_becomes_a_record(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, provenance()) as store:
        store.put_sample(sample(0))
        store.put_call(call(0))
    connection = sqlite3.connect(tmp_path / FILE)
    with connection:
        connection.execute("UPDATE samples SET scores = '{'")
        connection.execute("UPDATE calls SET columns = x'00'")
        connection.execute("DELETE FROM run")
    connection.close()
    with RunStore.read(tmp_path) as reader:
        with pytest.raises(StoreError, match="JSON text is damaged"):
            list(reader.samples())
        with pytest.raises(StoreError, match="column blob is damaged"):
            list(reader.calls())
        with pytest.raises(StoreError, match="holds no run"):
            reader.summary()


def test_a_store_that_cannot_be_opened_for_writing_frees_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path, max_bytes: int | None = None) -> sqlite3.Connection:
        raise sqlite3.OperationalError("odd")

    with monkeypatch.context() as patch:
        patch.setattr("logproof.store.run_store.connect_writer", broken)
        with pytest.raises(StoreError, match="odd"):
            RunStore.create(tmp_path, provenance())
    RunStore.create(tmp_path, provenance()).close()
    with monkeypatch.context() as patch:
        patch.setattr("logproof.store.run_store.connect_writer", broken)
        with pytest.raises(StoreError, match="odd"):
            RunStore.amend(tmp_path)
    RunStore.amend(tmp_path).close()


def test_a_directory_that_cannot_be_made_durable_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("logproof.store.run_store.sync_directory", broken)
    with pytest.raises(StoreError, match="Input/output error"):
        RunStore.create(tmp_path, provenance())
