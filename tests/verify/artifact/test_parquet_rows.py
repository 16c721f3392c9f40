"""Artifacts as Parquet rows: exact round trips, columns that others read, and files that are refused."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import ArtifactError
from logproof.verify.artifact import artifact_files, parquet_rows
from logproof.verify.artifact.artifact import (
    Artifact,
    Positions,
    TokenIds,
    artifact_digest,
    positions_of,
    seal,
)
from logproof.verify.artifact.columns import Columns, make_columns, to_fixed
from verify.builders import artifact, logits, quick, record


@pytest.fixture
def made() -> Artifact:
    return artifact(record(logits(5, 1), [1, 2, 3, 4, 5], 4), k=4)


IDS = st.integers(0, 2**63 - 1)
FLOATS = st.floats(allow_nan=False) | st.floats(allow_nan=False, width=32) | st.just(-math.inf)
FIXED = st.integers(-(2**31), 0).map(lambda steps: steps / 1024)
ROWS = st.lists(st.lists(st.tuples(IDS, FLOATS | FIXED), max_size=5).map(tuple), max_size=6)


@st.composite
def artifacts(draw: st.DrawFn) -> Artifact:
    """Any positions and ids, also those that no honest record has."""
    rows = draw(ROWS)
    positions = Positions(
        sampled=tuple(draw(st.none() | FLOATS) for _ in rows),
        ids=tuple(tuple(t for t, _ in row) for row in rows),
        logprobs=tuple(tuple(v for _, v in row) for row in rows),
        kept=draw(st.none() | st.just(tuple(len(row) for row in rows))),
    )
    base = artifact(record(logits(1, 1), [1], 1), k=1)
    ids = st.none() | st.lists(IDS, max_size=4).map(tuple)
    tokens = TokenIds(prompt_ids=draw(ids), completion_ids=draw(ids), prompt_cut=draw(st.none() | st.just(3)))
    return seal(msgspec.structs.replace(base, tokens=tokens, positions=draw(st.none() | st.just(positions))))


def signs(given: Artifact) -> list[bytes]:
    """The bytes of every logprob: equality alone takes -0.0 for 0.0."""
    if given.positions is None:
        return []
    return [np.float64(np.nan if v is None else v).tobytes() for v in given.positions.sampled] + [
        np.float64(v).tobytes() for row in given.positions.logprobs for v in row
    ]


@quick
@given(given_artifacts=st.lists(artifacts(), max_size=4))
def test_round_trip_is_exact(tmp_path_factory: pytest.TempPathFactory, given_artifacts: list[Artifact]) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.parquet"
    assert artifact_files.write(path, given_artifacts) == len(given_artifacts)
    read = list(artifact_files.read(path))
    assert read == given_artifacts
    assert [signs(a) for a in read] == [signs(a) for a in given_artifacts]


def test_both_forms_of_a_file_carry_the_same(tmp_path: Path, made: Artifact) -> None:
    for name in ("a.jsonl", "a.parquet"):
        artifact_files.write(tmp_path / name, [made, made])
    assert list(artifact_files.read(tmp_path / "a.jsonl")) == list(artifact_files.read(tmp_path / "a.parquet"))


def test_any_user_of_parquet_reads_the_columns(tmp_path: Path, made: Artifact) -> None:
    artifact_files.write(tmp_path / "a.parquet", [made])
    table = pq.read_table(tmp_path / "a.parquet")
    assert {f.name: str(f.type) for f in table.schema} == {
        "artifact_id": "string",
        "created_at": "string",
        "model": "string",
        "tokens": "int64",
        "digest": "string",
        "prompt_ids": "list<element: int64>",
        "completion_ids": "list<element: int64>",
        "sampled_logprobs": "list<element: double>",
        "top_ids": "list<element: list<element: int64>>",
        "top_logprobs": "list<element: list<element: double>>",
        "kept": "list<element: int64>",
        "record": "string",
    }
    (row,) = table.to_pylist()
    assert made.positions is not None
    assert (row["model"], row["tokens"], row["digest"]) == ("tiny", 5, artifact_digest(made))
    assert row["completion_ids"] == [1, 2, 3, 4, 5]
    assert row["top_logprobs"] == [list(r) for r in made.positions.logprobs]


def test_other_writers_types_are_read(tmp_path: Path, made: Artifact) -> None:
    """A file that another program wrote again: large lists, narrow ids, columns of its own, another order."""
    path = tmp_path / "a.parquet"
    artifact_files.write(path, [made])
    table = pq.read_table(path)
    names = table.schema.names[::-1]
    wide = {"completion_ids": pa.large_list(pa.int32()), "record": pa.large_string()}
    fields = [pa.field(n, wide.get(n, table.schema.field(n).type)) for n in names]
    again = table.select(names).cast(pa.schema(fields)).append_column("split", pa.array(["test"]))
    pq.write_table(again, path)
    assert list(artifact_files.read(path)) == [made]


def textlike(n: int, k: int) -> Columns:
    """Rows over a vocabulary of 49,152 where few ids are frequent and one entry in twenty tokens is not listed."""
    rng = np.random.default_rng(3)
    rows = [rng.permutation(np.unique(rng.zipf(1.25, 40 * k) % 49152))[:k].tolist() for _ in range(n)]
    depths = -np.sort(rng.gamma(2.0, 1.6, (n, k)), axis=1)
    where = np.where(rng.random(n) < 0.05, -1, rng.geometric(0.6, n).clip(1, k) - 1)
    ids = [int(rng.integers(0, 49152)) if j < 0 else row[j] for j, row in zip(where, rows, strict=True)]
    drawn = [-9.0 if j < 0 else float(d[j]) for j, d in zip(where, depths, strict=True)]
    return make_columns(ids, drawn, rows, depths.tolist())


@pytest.mark.parametrize(("k", "limit"), [(5, 30), (20, 85)])
def test_size_a_position_in_fixed_steps(k: int, limit: float) -> None:
    columns = to_fixed(textlike(1000, k))
    ids = tuple(columns.sampled_ids.tolist())
    small = artifact(columns.head(1), k=k)
    one = msgspec.structs.replace(
        small, tokens=TokenIds(prompt_ids=(1,), completion_ids=ids), positions=positions_of(columns)
    )
    taken = len(parquet_rows.encode_rows([one])) - len(parquet_rows.encode_rows([small]))
    assert taken / 1000 <= limit


def test_ids_beyond_64_bits_are_refused(tmp_path: Path, made: Artifact) -> None:
    tokens = msgspec.structs.replace(made.tokens, completion_ids=(2**70,))
    with pytest.raises(ArtifactError, match="cannot be written"):
        artifact_files.write(tmp_path / "a.parquet", [msgspec.structs.replace(made, tokens=tokens)])


def test_many_artifacts_make_several_row_groups(
    tmp_path: Path, made: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_rows, "GROUP_VALUES", 40)
    path = tmp_path / "a.parquet"
    assert artifact_files.write(path, [made] * 5) == 5
    assert pq.ParquetFile(path).num_row_groups == 3
    assert list(artifact_files.read(path)) == [made] * 5


def edited(tmp_path: Path, made: Artifact, edit: dict[str, object]) -> Path:
    path = tmp_path / "a.parquet"
    artifact_files.write(path, [made])
    (row,) = pq.read_table(path).to_pylist()
    pq.write_table(pa.Table.from_pylist([{**row, **edit}]), path)
    return path


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"record": None}, "row 1: it has no record"),
        ({"record": "{"}, "row 1: artifact is malformed"),
        ({"record": "{}"}, "row 1: artifact is malformed"),
        ({"sampled_logprobs": None}, "row 1: its columns do not fit"),
        ({"top_ids": None}, "row 1: its columns do not fit"),
        ({"completion_ids": [1, None]}, "row 1: its columns do not fit"),
        ({"top_logprobs": [[0.5], None]}, "row 1: its columns do not fit"),
        ({"completion_ids": ["a"]}, "no Parquet file of artifacts"),
        ({"completion_ids": [1.5]}, "no Parquet file of artifacts"),
        ({"top_ids": [1, 2]}, "no Parquet file of artifacts"),
        ({"kept": "five"}, "no Parquet file of artifacts"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, made: Artifact, edit: dict[str, object], words: str) -> None:
    with pytest.raises(ArtifactError, match=words):
        list(artifact_files.read(edited(tmp_path, made, edit)))


def test_a_packed_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([{"artifact_id": "a", "head": b"{}", "columns": b"LPCOL"}]), path)
    with pytest.raises(ArtifactError, match="columns packed, a form that is no longer read") as error:
        list(artifact_files.read(path))
    assert "write it as .jsonl" in str(error.value.hint)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([{"text": "a"}]), path)
    with pytest.raises(ArtifactError, match="it has no column prompt_ids"):
        list(artifact_files.read(path))
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(ArtifactError, match="no Parquet file"):
        list(artifact_files.read(path))


def bomb(path: Path, made: Artifact, values: int) -> None:
    """One row whose completion is a single id that stands many times: a small file, a huge list."""
    artifact_files.write(path, [made])
    table = pq.read_table(path)
    ids = pa.ListArray.from_arrays(pa.array([0, values], pa.int32()), pa.array(np.zeros(values, np.int64)))
    at = table.schema.get_field_index("completion_ids")
    pq.write_table(table.set_column(at, "completion_ids", ids), path, compression="zstd")


def test_a_bomb_is_not_read(tmp_path: Path, made: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    bomb(path, made, 2_000_000)
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(parquet_rows, "MAX_ROW_VALUES", 1_000_000)
    with pytest.raises(ArtifactError, match="2000000 values of completion_ids in one row; the limit is 1000000"):
        list(artifact_files.read(path))
    monkeypatch.setattr(parquet_rows, "MAX_GROUP_VALUES", 1_000_000)
    with pytest.raises(ArtifactError, match="row group 0 has 2000000 values in a column") as error:
        list(artifact_files.read(path))
    assert "smaller row groups" in str(error.value.hint)


def test_every_damage_is_an_artifact_error_or_harmless(tmp_path: Path, made: Artifact) -> None:
    whole, path = parquet_rows.encode_rows([made]), tmp_path / "a.parquet"
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        with pytest.raises(ArtifactError):
            list(artifact_files.read(path))
    for at in range(0, len(whole), 13):
        broken = bytearray(whole)
        broken[at] ^= 0x5A
        path.write_bytes(bytes(broken))
        try:
            list(artifact_files.read(path))
        except ArtifactError:
            continue
