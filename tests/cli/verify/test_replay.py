"""`replay`, as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.verify import judging
from cli.verify.judging import captured, invoke, requests_of
from fakes.server import FakeServer
from logproof.verify.artifact import artifact_files

fake, prompts, rules = judging.fake, judging.prompts, judging.rules


def test_replay_shows_differences(fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = captured(fake, prompts, "a.parquet")
    capfd.readouterr()
    assert invoke("replay", path, "--engine", fake.url, "--repeats", 2) == 0
    assert "repeats within 0.00e+00 nat" in capfd.readouterr().out
    assert invoke("replay", path, "--engine", fake.url, "--json") == 0
    rows = json.loads(capfd.readouterr().out)
    assert {r["method"] for r in rows} == {"prefill"}
    assert all(r["ids_equal"] and r["largest_difference"] < 1e-5 for r in rows)
    assert invoke("replay", path, "--engine", fake.url, "--method", "decode") == 2
    assert "not replayed: engine_cannot_replay" in capfd.readouterr().out
    assert invoke("replay", path, "--engine", fake.url, "--method", "guess") == 3


def test_replay_of_what_cannot_be_replayed(fake: FakeServer, prompts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = captured(fake, prompts)
    lines = path.read_text().splitlines()
    broken = json.loads(lines[0])
    broken["seal"] = {"digest": "00"}
    path.write_text(json.dumps(broken) + "\n")
    assert invoke("replay", path, "--engine", fake.url) == 2
    assert "not replayed: seal.digest" in capfd.readouterr().out


def test_replays_side_by_side_and_by_name(
    fake: FakeServer, prompts: Path, rules: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = captured(fake, prompts)
    capfd.readouterr()
    verify = ("verify", path, "--engine", fake.url, "--policy", rules, "--requests", requests_of(path))
    assert invoke(*verify, "--concurrency", 4, "--repeats", 2) == 0
    capfd.readouterr()
    assert invoke("replay", path, "--engine", fake.url, "--concurrency", 4, "--json") == 0
    rows = json.loads(capfd.readouterr().out)
    assert [r["artifact"] for r in rows] == [a.artifact_id for a in artifact_files.read(path)]
    assert {r["missing"] for r in rows} == {0}
    assert invoke("replay", path, "--engine", fake.url, "--score-missing") == 0
    assert invoke("verify", path, "--engine", fake.url, "--score-missing", "--concurrency", 2) == 3
    assert "goes one by one" in capfd.readouterr().err
