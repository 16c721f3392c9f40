from __future__ import annotations

from cli.engines.engine_calls import run_engine
from logproof.errors import UsageError
from logproof.launch import EngineSpec, start_engine
from logproof.launch.running_engines import read_records


def test_stop_takes_names_or_all_but_not_both(checkpoint: str) -> None:
    assert isinstance(run_engine("stop").exception, UsageError)
    assert isinstance(run_engine("stop", "--all", "x").exception, UsageError)
    assert isinstance(run_engine("stop", "x").exception, UsageError)
    for _ in range(2):
        start_engine(EngineSpec(model=checkpoint))
    assert run_engine("stop", "--all").stdout == "stopped my-model_1\nstopped my-model_1-2\n"
    assert read_records() == []
