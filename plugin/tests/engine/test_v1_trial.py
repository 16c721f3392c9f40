"""What a failed trial batch says; the trial itself needs an engine (live/test_sampler.py)."""

from __future__ import annotations

import pytest

from logproof_vllm.engine import v1_trial


def test_a_sampler_that_fits_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1_trial, "run", lambda: None)
    assert v1_trial.check() == []


def test_another_behaviour_and_an_error_are_one_sentence_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1_trial, "run", lambda: "Sampler.forward does not emit what it should")
    assert v1_trial.check() == ["Sampler.forward does not emit what it should"]
    monkeypatch.setattr(v1_trial, "run", lambda: 1 / 0)
    assert v1_trial.check() == ["the sampler cannot run a tiny batch: ZeroDivisionError: division by zero"]
