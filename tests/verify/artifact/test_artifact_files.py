from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from logproof.errors import ArtifactError, StoreError, UsageError
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact, encode_artifact, seal
from verify.builders import artifact, logits, record


@pytest.fixture
def made() -> Artifact:
    return artifact(record(logits(5, 1), [1, 2, 3, 4, 5], 4), k=4)


def test_a_broken_line_is_named(tmp_path: Path, made: Artifact) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode_artifact(made) + b"\n\n{}\n")
    with pytest.raises(ArtifactError, match=r"a\.jsonl:3: artifact is malformed"):
        list(artifact_files.read(path))


def test_missing_files(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.parquet"):
        with pytest.raises(StoreError, match="no such file"):
            list(artifact_files.read(tmp_path / name))


def test_no_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(ArtifactError, match="no Parquet file"):
        list(artifact_files.read(path))


def test_without_the_package(tmp_path: Path, made: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(artifact_files.importlib, "import_module", refuse)
    with pytest.raises(UsageError, match="pyarrow"):
        artifact_files.write(tmp_path / "a.parquet", [made])


def test_unsorted_rows_are_not_packed(tmp_path: Path, made: Artifact) -> None:
    assert made.positions is not None
    ids = (made.positions.ids[0][::-1], *made.positions.ids[1:])
    values = (made.positions.logprobs[0][::-1], *made.positions.logprobs[1:])
    turned = seal(
        msgspec.structs.replace(made, positions=msgspec.structs.replace(made.positions, ids=ids, logprobs=values))
    )
    with pytest.raises(ArtifactError, match="not sorted"):
        artifact_files.write(tmp_path / "a.parquet", [turned])
    artifact_files.write(tmp_path / "a.jsonl", [turned])
    assert list(artifact_files.read(tmp_path / "a.jsonl")) == [turned]


def rows(tmp_path: Path, edit: dict[str, object], made: Artifact) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    artifact_files.write(path, [made])
    table = pq.read_table(path).to_pylist()
    pq.write_table(pa.Table.from_pylist([{**table[0], **edit}]), path)
    return path


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"head": None}, "no head"),
        ({"columns": "text"}, "no bytes"),
        ({"head": b"{"}, "malformed"),
        ({"head": b'{"positions": {"kept": 5}}'}, "malformed"),
        ({"head": b'{"positions": {}}'}, "malformed"),
        ({"columns": b"LP"}, "not packed columns"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, made: Artifact, edit: dict[str, object], words: str) -> None:
    with pytest.raises(ArtifactError, match=f"row 1: .*{words}"):
        list(artifact_files.read(rows(tmp_path, edit, made)))
