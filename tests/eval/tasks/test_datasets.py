from __future__ import annotations

import codecs
import contextlib
import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import DatasetError, UsageError
from logproof.eval.tasks import datasets
from logproof.eval.tasks.datasets import Dataset, count_limit, open_dataset, pool
from logproof.eval.tasks.rows import ArcRow, Gsm8kRow, HellaswagRow, MmluRow, Row, _folded
from logproof.eval.tasks.task_list import TASKS

ARC = {"id": "1", "question": "Why?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}
GSM = {"question": "How many?", "answer": "2 + 2 = 4\n#### 4"}


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    return str(path)


def opened(tmp: Path, *rows: Any, row_type: type[Row] = ArcRow) -> Dataset[Row]:
    return open_dataset(write(tmp / "rows.jsonl", *rows), "arc_easy", "test", row_type)


@pytest.mark.parametrize("task", TASKS.values(), ids=str)
def test_shipped_rows_are_whole(task: Any) -> None:
    test = open_dataset(None, task.dataset, task.split, task.row_type)
    shots = pool(open_dataset(None, task.dataset, task.shot_split, task.row_type))
    assert test.count == 24
    assert len(shots) >= 8
    assert not {d.digest for d in test.docs()} & {d.digest for d in shots}
    for doc in test.docs():
        task.build(doc.row, [shots[0].row])


def test_shipped_answers_stand_in_varied_places() -> None:
    for name in ("arc_easy_ppl", "hellaswag_ppl", "mmlu_clp"):
        task = TASKS[name]
        places = [
            task.build(d.row, []).gold for d in open_dataset(None, task.dataset, task.split, task.row_type).docs()
        ]
        assert all(places.count(i) >= 4 for i in range(4)), name


def test_a_directory_holds_named_splits(tmp_path: Path) -> None:
    write(tmp_path / "arc_easy.test.jsonl", ARC)
    assert open_dataset(str(tmp_path), "arc_easy", "test", ArcRow).count == 1
    with pytest.raises(DatasetError, match="no data file") as caught:
        open_dataset(str(tmp_path), "arc_easy", "train", ArcRow)
    assert "arc_easy.train.jsonl" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "truncated"),
        ("[1]", "array"),
        ({k: v for k, v in ARC.items() if k != "question"}, "question"),
        ({**ARC, "answerKey": "C"}, "'C' is none of the labels"),
        ({**ARC, "answerKey": 1}, "str"),
        ({**ARC, "question": " "}, "question is empty"),
        ({**ARC, "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "A"}, "1 choices"),
        ({**ARC, "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"}, "1 labels for 2"),
        ({**ARC, "choices": {"text": ["a", "b"], "label": ["A", "A"]}, "answerKey": "A"}, "twice"),
        ({**ARC, "choices": {"text": ["a", " "], "label": ["A", "B"]}}, "choice is empty"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, row: Any, said: str) -> None:
    good = {**ARC, "id": "0", "question": "What?"}
    with pytest.raises(DatasetError, match=r"rows\.jsonl:3: ") as caught:
        opened(tmp_path, good, "", row)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("row_type", "row", "said"),
    [
        (HellaswagRow, {"ind": 1, "activity_label": "a", "ctx": "c", "endings": ["x", "y"], "label": "2"}, "label 2"),
        (HellaswagRow, {"ind": 1, "activity_label": "a", "ctx": "c", "endings": ["x", "y"], "label": "-1"}, "no index"),
        (HellaswagRow, {"ind": 1, "activity_label": "a", "ctx": "c", "endings": ["x", "y"], "label": "²"}, "no index"),
        (MmluRow, {"question": "q", "subject": "s", "choices": ["x", "y"], "answer": 2}, "answer 2"),
        (MmluRow, {"question": "q", "subject": "s", "choices": ["x", "y"], "answer": -1}, "answer -1"),
        (Gsm8kRow, {"question": "q", "answer": "four"}, "#### N"),
        (Gsm8kRow, {"question": " ", "answer": "#### 4"}, "question is empty"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(tmp_path: Path, row_type: Any, row: Any, said: str) -> None:
    with pytest.raises(DatasetError, match=r"rows\.jsonl:1: ") as caught:
        opened(tmp_path, row, row_type=row_type)
    assert said in caught.value.message


def test_an_empty_file_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds no row"):
        opened(tmp_path, "", " ")
    with pytest.raises(DatasetError, match="no data file"):
        open_dataset(str(tmp_path / "none.jsonl"), "arc_easy", "test", ArcRow)


def test_limits_on_lines_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "MAX_LINE_BYTES", 60)
    with pytest.raises(DatasetError, match=r":1: the line is longer"):
        opened(tmp_path, ARC)
    monkeypatch.setattr(datasets, "MAX_FILE_BYTES", 10)
    with pytest.raises(DatasetError, match="larger"):
        opened(tmp_path, ARC)


def test_an_unreadable_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(write(tmp_path / "rows.jsonl", ARC))

    def refuse(*args: object, **kwargs: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DatasetError, match="Permission denied"):
        open_dataset(str(path), "arc_easy", "test", ArcRow)


def test_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r":2: the id '1' occurs twice"):
        opened(tmp_path, ARC, {**ARC, "question": "What else?"})


def test_rows_of_one_content_are_told_apart_by_number(tmp_path: Path) -> None:
    docs = list(opened(tmp_path, GSM, {**GSM, "extra": 1}, GSM, row_type=Gsm8kRow).docs())
    assert len({d.digest for d in docs}) == 1
    assert [d.key for d in docs] == [docs[0].digest, f"{docs[0].digest}#1", f"{docs[0].digest}#2"]
    assert [d.index for d in docs] == [0, 1, 2]


def test_content_ignores_ids_extra_fields_and_white_space_but_not_words(tmp_path: Path) -> None:
    rows = [ARC, {**ARC, "id": "2", "source": "x", "question": " Why? "}, {**ARC, "id": "3", "question": "How?"}]
    one, two, three = opened(tmp_path, *rows).docs()
    assert one.digest == two.digest != three.digest


def test_the_digest_of_a_dataset_follows_rows_and_their_order(tmp_path: Path) -> None:
    other = {**ARC, "id": "2", "question": "How?"}
    assert opened(tmp_path, ARC, other).digest == opened(tmp_path, ARC, "", other).digest
    assert opened(tmp_path, ARC, other).digest != opened(tmp_path, other, ARC).digest


@pytest.mark.parametrize(
    ("limit", "total", "kept"), [("1", 50, 1), ("50", 50, 50), ("99", 50, 50), ("0.1", 50, 5), ("0.99", 50, 49)]
)
def test_limits_keep_counts_and_fractions(limit: str, total: int, kept: int) -> None:
    assert count_limit(limit, total) == kept


@pytest.mark.parametrize(
    "limit", ["0", "-1", "1.5", "2.0", "1.0", "x", "", "nan", "1/0", "0.001", "1e999999999", "1E-3", "9" * 21]
)
def test_a_limit_that_leaves_no_row_or_is_none_is_refused(limit: str) -> None:
    with pytest.raises(UsageError, match="limit"):
        count_limit(limit, 50)


@given(st.text(max_size=8), st.integers(1, 1000))
def test_a_limit_is_a_count_between_one_and_all_or_refused(limit: str, total: int) -> None:
    with contextlib.suppress(UsageError):
        assert 1 <= count_limit(limit, total) <= total


def test_docs_stop_at_the_limit(tmp_path: Path) -> None:
    rows = [{**ARC, "id": str(i), "question": f"Why {i}?"} for i in range(5)]
    assert [d.row.question for d in opened(tmp_path, *rows).docs("2")] == ["Why 0?", "Why 1?"]


def test_hub_data_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match="optional extra") as caught:
        open_dataset("hub:ai2_arc:ARC-Easy", "arc_easy", "test", ArcRow)
    assert "logproof[hub]" in str(caught.value.hint)


def test_hub_rows_pass_the_same_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(path: str, config: str | None, split: str) -> list[Any]:
        asked.append((path, config, split))
        return [ARC, {**ARC, "id": "2", "answerKey": "Z"}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    with pytest.raises(DatasetError, match=r"hub:ai2_arc:ARC-Easy:test:2: answerKey"):
        open_dataset("hub:ai2_arc:ARC-Easy", "arc_easy", "test", ArcRow)
    assert asked == [("ai2_arc", "ARC-Easy", "test")]


def test_a_hub_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: object, **kwargs: object) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    with pytest.raises(DatasetError, match="no route to host"):
        open_dataset("hub:x", "arc_easy", "test", ArcRow)


def test_a_bare_row_has_no_content() -> None:
    with pytest.raises(NotImplementedError):
        Row().content()
    with pytest.raises(NotImplementedError):
        Row().check()


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_row(tmp_path: Path, end: bytes) -> None:
    rows = [b'{"question": "q%d", "answer": "#### 1"}' % i for i in range(3)]
    (tmp_path / "plain.jsonl").write_bytes(b"\n".join(rows))
    (tmp_path / "marked.jsonl").write_bytes(codecs.BOM_UTF8 + end.join(rows) + end)
    plain, marked = (open_dataset(str(tmp_path / f"{n}.jsonl"), "gsm8k", "test", Gsm8kRow) for n in ("plain", "marked"))
    assert (marked.count, marked.digest) == (3, plain.digest)
    assert [d.row for d in marked.docs()] == [d.row for d in plain.docs()]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(b'{"question": "q", "answer": "#### 1"}'), "rows.jsonl is compressed (gzip), and not the UTF-8"),
        ('{"question": "q"}'.encode("utf-16"), "rows.jsonl is UTF-16, and not the UTF-8"),
        (b'{"question": "q", "answer": NaN}', "rows.jsonl:1: it holds NaN, which is no JSON number"),
        (b'{"question": "q", "answer": "#### 1"}\n{"question": -Infinity}', "rows.jsonl:2: it holds -Infinity"),
        (b'{"question": "q", "answer": "NaN", x}', "rows.jsonl:1: JSON is malformed"),
        (b'{"question": "q", "answer": "#### 1\x00"', "rows.jsonl:1: "),
    ],
)
def test_files_of_another_kind_are_named_as_what_they_are(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "rows.jsonl").write_bytes(data)
    with pytest.raises(DatasetError) as caught:
        open_dataset(str(tmp_path / "rows.jsonl"), "gsm8k", "test", Gsm8kRow)
    assert said in caught.value.message


@given(st.text(st.characters(codec=None, exclude_categories=["Cs"])))
def test_white_space_is_folded_alike_with_and_without_need(text: str) -> None:
    assert _folded(text) == " ".join(text.split())
