"""Whatever a server does to one call in five: no wrong number, and no sample failed without its own reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.run.faulty import run_faulty
from eval.run.killing import write_rows
from eval.toy import ToyEngine, serving
from fakes.faults import KINDS, Faults
from logproof.eval.tasks.task import Settings

ENTRIES = [(name, Settings(shots=0)) for name in ("arc_easy_ppl", "gsm8k_gen")]


@pytest.mark.parametrize("seed", [1, 2])
def test_every_number_equals_the_undisturbed_run_or_its_sample_failed_for_its_reason(tmp_path: Path, seed: int) -> None:
    write_rows(tmp_path / "data", 60)
    engine, faults = ToyEngine(), Faults(seed, fingerprint=150)
    engine.behave = lambda body: faults.reply(body, engine.answer(body))
    with serving(engine) as fake:
        told = run_faulty(tmp_path, fake.url, faults, ENTRIES, str(tmp_path / "data"))
    assert told.wrong == []
    assert told.astray == []
    assert set(told.faults) == set(KINDS)
    assert told.kept > told.failed > 0
    assert any("fp-1" in mark and "fp-2" in mark for mark in told.report.suspect)
