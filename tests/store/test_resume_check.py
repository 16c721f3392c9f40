from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from logproof.errors import ResumeRefused
from logproof.store.database import FILE
from logproof.store.resume_check import MAX_LINES, differences
from logproof.store.run_store import RunStore
from store.making import key_of, provenance, sample


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path, provenance()) as store:
        store.put_sample(sample(0))
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"config": {"limit": 60, "temperature": 0.0, "tasks": {"arc": {"shots": 5}}}},
            "limit: stored 50, given 60",
        ),
        (
            {"config": {"limit": 50, "temperature": 0.7, "tasks": {"arc": {"shots": 5}}}},
            "stored 0.0, given 0.7",
        ),
        (
            {"config": {"limit": 50, "temperature": 0.0, "tasks": {"arc": {}}}},
            "arc.shots: stored 5, given absent",
        ),
        (
            {"config": {"limit": 50, "temperature": 0.0, "tasks": 1}},
            'tasks: stored {"arc":{"shots":5}}, given 1',
        ),
        ({"model": {"name": "other", "root": "models/smollm2"}}, 'model.name: stored "smollm2", given "other"'),
        ({"tasks": {"arc": "t2"}}, 'tasks.arc: stored "t1", given "t2"'),
        ({"tasks": {"arc": "t1", "mmlu": "t"}}, 'tasks.mmlu: stored absent, given "t"'),
        ({"datasets": {"arc": "d2"}}, 'datasets.arc: stored "d1"'),
        ({"few_shot": {"arc": "f2"}}, 'few_shot.arc: stored "f1"'),
    ],
)
def test_another_run_is_refused_with_the_difference(run: Path, changes: dict[str, object], line: str) -> None:
    with pytest.raises(ResumeRefused) as caught:
        RunStore.resume(run, provenance(**changes))
    assert line in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    RunStore.resume(run, provenance()).close()


def test_a_long_difference_is_cut_and_says_so(run: Path) -> None:
    config = {"limit": 50, "temperature": 0.0, "tasks": {"arc": {"shots": 5}}, "x": "y" * 500}
    config |= {f"k{i}": i for i in range(MAX_LINES + 4)}
    with pytest.raises(ResumeRefused, match="and 5 more") as caught:
        RunStore.resume(run, provenance(config=config))
    assert len(caught.value.message) < 120 * (MAX_LINES + 2)
    assert differences(provenance(), provenance(config=config))[-1].endswith("yyy…")


def test_scheduling_url_and_versions_may_differ_and_are_noted(run: Path) -> None:
    other = provenance(scheduling={"concurrency": 64}, endpoints=("http://two:9",), versions={"logproof": "0.2.0"})
    with RunStore.resume(run, other) as store:
        assert store.done() == {key_of(0)}
        first, second = store.sessions()
        assert store.provenance.endpoints == ("http://one:8000/v1",)
    assert (first.endpoints, second.endpoints) == (["http://one:8000/v1"], ["http://two:9"])
    assert (second.scheduling, second.versions) == ({"concurrency": 64}, {"logproof": "0.2.0"})
    assert second.pid > 0


def test_a_changed_fingerprint_is_shown_and_must_be_accepted_by_name(run: Path) -> None:
    other = provenance(fingerprints=("fp-b",))
    with pytest.raises(ResumeRefused, match="stored fp-a; now fp-b") as caught:
        RunStore.resume(run, other)
    assert "fp-b" in str(caught.value.hint)
    with pytest.raises(ResumeRefused):
        RunStore.resume(run, other, accept_fingerprints=["fp-c"])
    RunStore.resume(run, other, accept_fingerprints=["fp-b"]).close()
    RunStore.resume(run, other).close()
    RunStore.resume(run, provenance()).close()


def test_a_fingerprint_that_vanished_has_a_name_too(run: Path) -> None:
    silent = provenance(fingerprints=())
    with pytest.raises(ResumeRefused, match="now none"):
        RunStore.resume(run, silent)
    RunStore.resume(run, silent, accept_fingerprints=["none"]).close()


def test_numbers_as_keys_resume_like_the_texts_they_are_stored_as(tmp_path: Path) -> None:
    told = provenance(config={"logit_bias": {10: 1.0, 2: 0.5}, "tasks": ("a", "b")})
    RunStore.create(tmp_path, told).close()
    RunStore.resume(tmp_path, told).close()


def test_a_run_killed_before_its_first_session_resumes_on_the_endpoint_that_it_began_with(run: Path) -> None:
    with closing(sqlite3.connect(run / FILE)) as connection, connection:
        connection.execute("DELETE FROM sessions")
    with pytest.raises(ResumeRefused, match="fingerprint changed"):
        RunStore.resume(run, provenance(fingerprints=["another"]))
    RunStore.resume(run, provenance()).close()
