"""SIGKILL at random instants loses nothing and does nothing twice."""

from __future__ import annotations

from pathlib import Path

from eval.run.killing import killed_run


def test_a_run_killed_again_and_again_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    told = killed_run(tmp_path, samples=300, kills=6, seed=1)
    assert told.different == []
    assert told.again == []
    assert (told.samples, told.calls, told.kills) == (300, 750, 6)
