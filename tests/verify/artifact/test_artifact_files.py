from __future__ import annotations

from pathlib import Path

import pytest

from logproof.errors import ArtifactError, StoreError, UsageError
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact, encode_artifact
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


def test_without_the_package(tmp_path: Path, made: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr("logproof.verify.artifact.parquet_rows.importlib.import_module", refuse)
    with pytest.raises(UsageError, match="pyarrow"):
        artifact_files.write(tmp_path / "a.parquet", [made])
