from __future__ import annotations

import io
import json
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from logproof.errors import StoreError, UsageError
from logproof.store import export as exporting
from logproof.store.export import Format, export, records, write_jsonl, write_parquet
from logproof.store.records import SampleRecord
from logproof.store.run_store import RunStore
from store.making import call, columns, key_of, provenance, sample


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path / "run", provenance()) as store:
        for number in range(3):
            store.put_call(call(number))
            store.put_sample(sample(number))
        store.put_sample(sample(0, key="k", task="mmlu"))
    return tmp_path / "run"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_samples_as_json_lines(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with RunStore.read(run) as reader:
        assert export(records(reader, "samples", task="arc"), "samples", out, "jsonl") == 3
    got = lines(out)
    assert got[1] == {
        "key": key_of(1), "task": "arc", "row_id": "id-1", "index": 1, "status": "ok", "repeat": 0, "reason": None,
        "scores": {"acc": 1.0, "acc_norm": 0.0}, "gold": 2, "output": [0.5, -1.25], "time": 1.0,
    }  # fmt: skip


def test_wide_channels_as_json_lines_when_asked_for(run: Path, tmp_path: Path) -> None:
    with RunStore.read(run) as reader:
        export(records(reader, "calls"), "calls", tmp_path / "narrow.jsonl", "jsonl")
        export(records(reader, "calls", columns=True), "calls", tmp_path / "wide.jsonl", "jsonl")
    assert "columns" not in lines(tmp_path / "narrow.jsonl")[0]
    wide = lines(tmp_path / "wide.jsonl")[1]["columns"]
    assert isinstance(wide, dict)
    want = columns(2)
    assert isinstance(want["logprobs"], np.ndarray)
    assert wide["logprobs"] == [None, "-inf", *want["logprobs"][2:].tolist()]
    assert wide["ids"] == list(want["ids"])
    assert wide["texts"] == want["texts"]


def test_grids_and_infinities_have_a_stated_json_form() -> None:
    wide = {"grid": np.array([[1.5, np.inf], [np.nan, 2]])}
    out = io.BytesIO()
    assert write_jsonl([call(0, columns=wide)], out, "calls") == 1
    assert json.loads(out.getvalue())["columns"] == {"grid": [[1.5, "inf"], [None, 2.0]]}


def test_parquet_holds_the_same_records(run: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an optional extra")
    with RunStore.read(run) as reader:
        assert export(records(reader, "samples"), "samples", tmp_path / "s.parquet", "parquet") == 4
        assert export(records(reader, "calls", columns=True), "calls", tmp_path / "c.parquet", "parquet") == 3
    rows = parquet.read_table(tmp_path / "s.parquet").to_pylist()
    assert [row["index"] for row in rows] == [0, 1, 2, 0]
    assert json.loads(rows[0]["scores"]) == {"acc": 1.0, "acc_norm": 0.0}
    row = parquet.read_table(tmp_path / "c.parquet").to_pylist()[1]
    assert json.loads(row["request"])["prompt"] == "question 1"
    wide = {column["name"]: column for column in row["columns"]}
    want = columns(2)
    assert np.array(wide["logprobs"]["floats"]).tobytes() == np.asarray(want["logprobs"]).tobytes()
    assert (wide["ids"]["ints"], wide["ids"]["dtype"], wide["ids"]["shape"]) == (list(want["ids"]), "int64", [30])
    assert (wide["texts"]["texts"], wide["texts"]["floats"]) == (want["texts"], None)


def test_parquet_takes_truths_and_lone_surrogates() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an optional extra")
    out = io.BytesIO()
    write_parquet([call(0, columns={"b": np.array([True, False]), "t": ["\ud800", None]})], out, "calls")
    truths, texts = parquet.read_table(out).to_pylist()[0]["columns"]
    assert (truths["ints"], texts["texts"]) == ([1, 0], ["?", None])


def test_row_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an optional extra")
    monkeypatch.setattr(exporting, "BATCH_ROWS", 4)
    monkeypatch.setattr(exporting, "BATCH_VALUES", 200)
    out = io.BytesIO()
    wide = [call(i, columns={"a": np.zeros(150), "t": ["x"]}) for i in range(4)]
    assert write_parquet([*wide, *(call(i, columns={}) for i in range(6))], out, "calls") == 10
    meta = parquet.ParquetFile(out).metadata
    assert [meta.row_group(i).num_rows for i in range(meta.num_row_groups)] == [2, 2, 4, 2]


def test_an_export_of_many_records_holds_one_batch() -> None:
    class Sink(io.BytesIO):
        def write(self, data: object) -> int:
            return 0

    def many() -> Iterator[SampleRecord]:
        return (sample(number) for number in range(10_000))

    tracemalloc.start()
    count = write_jsonl(many(), Sink(), "samples")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 200_000


def test_ten_thousand_records_go_through_store_and_export(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", provenance()) as store:
        for number in range(10_000):
            store.put_sample(sample(number))
        store.flush()
        assert export(records(store, "samples"), "samples", tmp_path / "out.jsonl", "jsonl") == 10_000
    assert [line["index"] for line in lines(tmp_path / "out.jsonl")] == list(range(10_000))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_existing_file_stays_unless_it_may_be_replaced(run: Path, tmp_path: Path, form: Format) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is an optional extra")
    out = tmp_path / "out"
    out.write_text("mine")
    with RunStore.read(run) as reader:
        with pytest.raises(StoreError, match="exists"):
            export(records(reader, "samples"), "samples", out, form)
        assert out.read_text() == "mine"
        assert export(records(reader, "samples"), "samples", out, form, replace=True) == 4
    assert out.read_bytes() != b"mine"


def test_without_pyarrow_the_line_names_the_extra(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with RunStore.read(run) as reader, pytest.raises(UsageError, match="needs pyarrow") as caught:
        export(records(reader, "samples"), "samples", tmp_path / "s.parquet", "parquet")
    assert "logproof[parquet]" in str(caught.value.hint)
    assert not (tmp_path / "s.parquet").exists()


def test_a_task_or_scorer_chooses_no_calls(run: Path) -> None:
    with RunStore.read(run) as reader, pytest.raises(UsageError, match="not calls"):
        records(reader, "calls", task="arc")
