from __future__ import annotations

from pathlib import Path

import pytest

from logproof.store.records import Scorer
from logproof.store.run_store import RunStore
from store.making import call, provenance, sample


@pytest.fixture
def stored_run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path / "out" / "[one]", provenance(planned={"arc": 26, "mmlu": 3})) as store:
        for number in range(2):
            store.put_call(call(number))
            store.put_sample(sample(number))
        store.put_call(call(2, status="failed", error_type="ServerFault", error="HTTP 503: [busy]", columns={}))
        for number in range(2, 26):
            store.put_sample(sample(number, status="failed", reason="HTTP 503: [busy]", scores={}))
        store.put_scorer(Scorer(digest="d" * 64, name="flexible"))
    return tmp_path / "out" / "[one]"
