"""Records for the tests of the run store, made from a number alone: the same number, the same record."""

from __future__ import annotations

import numpy as np

from logproof.store.digest import call_key, sample_key
from logproof.store.packed_columns import Column
from logproof.store.records import CallRecord, RunProvenance, SampleRecord

MODEL = {"name": "smollm2", "root": "models/smollm2"}
CALLS = 2


def provenance(**changes: object) -> RunProvenance:
    base: dict[str, object] = {
        "config": {"limit": 50, "temperature": 0.0, "tasks": {"arc": {"shots": 5}}},
        "model": MODEL,
        "tasks": {"arc": "t1"},
        "datasets": {"arc": "d1"},
        "few_shot": {"arc": "f1"},
        "scheduling": {"concurrency": 8},
        "endpoints": ("http://one:8000/v1",),
        "fingerprints": ("fp-a",),
        "versions": {"logproof": "0.1.0"},
        "planned": {"arc": 4},
    }
    return RunProvenance(**(base | changes))


def columns(number: int) -> dict[str, Column]:
    rng = np.random.default_rng(number)
    logprobs = -rng.random(30)
    logprobs[0] = np.nan
    logprobs[1] = -np.inf
    texts = [None, *(f"t{number}é{i}" for i in range(29))]
    return {"ids": rng.integers(0, 50_000, 30), "logprobs": logprobs, "texts": texts}


def key_of(number: int, task: str = "arc") -> str:
    return sample_key(task, f"row {number}")


def call(number: int, option: int = 0, **changes: object) -> CallRecord:
    request = {"prompt": f"question {number}", "part": option}
    base: dict[str, object] = {
        "key": call_key(request, MODEL, "vllm_native"),
        "sample_key": key_of(number),
        "part": f"option {option}",
        "dialect": "vllm_native",
        "status": "ok",
        "attempts": 1,
        "seconds": 0.25,
        "request": request,
        "response": {"text": "yes", "usage": {"prompt": 30}},
        "reply_digest": "abc",
        "endpoint": "http://one:8000/v1",
        "model": "smollm2",
        "fingerprint": "fp-a",
        "time": float(number),
        "columns": columns(number * CALLS + option),
    }
    return CallRecord(**(base | changes))


def sample(number: int, **changes: object) -> SampleRecord:
    base: dict[str, object] = {
        "key": key_of(number),
        "task": "arc",
        "row_id": f"id-{number}",
        "index": number,
        "status": "ok",
        "scores": {"acc": 1.0, "acc_norm": 0.0},
        "gold": 2,
        "output": [0.5, -1.25],
        "time": float(number),
    }
    return SampleRecord(**(base | changes))


def plain(record: CallRecord) -> dict[str, object]:
    """A call as values that compare bit for bit, NaN included."""
    bits = {n: c.tobytes() if isinstance(c, np.ndarray) else list(c) for n, c in record.columns.items()}
    return {name: getattr(record, name) for name in record.__struct_fields__ if name != "columns"} | {"columns": bits}
