"""An evaluation behind a server that answers one call in five wrongly, against the same one undisturbed."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fakes.faults import Faults, allowed
from logproof.client.connect import Options
from logproof.client.pool import open_pool
from logproof.eval.plan.prepare import Entry
from logproof.eval.report.report import Report
from logproof.eval.run.run import Order, execute
from logproof.eval.run.runner import RunPolicy
from logproof.http.endpoint import Timeouts
from logproof.http.retry import RetryPolicy
from logproof.store.reader import StoreReader

RETRY = RetryPolicy(attempts=10, base_s=0.001, cap_s=0.01)


class FaultResult(msgspec.Struct):
    """What came of it. wrong: samples with another number. astray: samples that failed for no reason of theirs.

    apart: largest difference of a number of a kept sample. kept, failed: samples. reasons: why. faults: that were
    met, in order.
    """

    kept: int
    failed: int
    wrong: list[str]
    astray: list[str]
    reasons: set[str]
    faults: list[str]
    apart: float
    report: Report


def run_faulty(
    root: Path, url: str, faults: Faults, entries: list[Entry], data: str | None, width: int = 8, near: float = 0.0
) -> FaultResult:
    """Run the entries over `url` with `faults` asleep, then again with them awake, and compare.

    near: difference of two logprobs that the engine itself shows from batch to batch.
    """
    _run(root / "plain", url, faults, entries, data, width, armed=False)
    report = _run(root / "faulty", url, faults, entries, data, width, armed=True)
    with StoreReader(root / "plain") as plain, StoreReader(root / "faulty") as faulty:
        want = {s.key: s for s in plain.samples()}
        have = list(faulty.samples())
        assert {s.key for s in have} == set(want)
        ok = [s for s in have if s.status == "ok"]
        failed = [s for s in have if s.status == "failed"]
        met = {s.key: _met(faulty, s.key, faults) for s in have}
        apart = {s.key: _apart(_numbers(faulty, s), _numbers(plain, want[s.key])) for s in ok}
        wrong = [s for s in ok if apart[s.key] > near]
        return FaultResult(
            kept=len(ok),
            failed=len(failed),
            wrong=[
                f"{s.task} {s.row_id} after {met[s.key]}: "
                + _place(_numbers(faulty, s), _numbers(plain, want[s.key]), near)
                for s in wrong
            ],
            apart=max(apart.values(), default=0.0),
            astray=[f"{s.reason} after {met[s.key]}" for s in failed if not _due(str(s.reason), met[s.key])],
            reasons={str(s.reason).partition(":")[0] for s in failed},
            faults=list(faults.met),
            report=report,
        )


def _run(
    out: Path, url: str, faults: Faults, entries: list[Entry], data: str | None, width: int, *, armed: bool
) -> Report:
    async def go() -> Report:
        limits = Timeouts(connect=5, first_byte=60, idle=20, total=120)
        async with open_pool([url], Options(retry=RETRY, timeouts=limits, concurrency=width)) as pool:
            faults.armed = armed
            finished = await execute(Order(entries=entries, out=out, source=data, policy=RunPolicy(width)), pool)
            faults.armed = False
            assert finished.ended.reason is None
            return finished.report

    return asyncio.run(go())


def _numbers(store: StoreReader, sample: Any) -> Any:
    """All that a sample says: scores, what they came from, and the columns of its calls.

    The one token drawn beside label scores is thrown away, and an engine may draw another each time.
    """
    calls = {}
    for call in store.calls(sample.key):
        columns = {name: np.asarray(column).tolist() for name, column in call.columns.items()}
        calls[call.part] = {k: v for k, v in columns.items() if (call.part, k) != ("labels", "0.token_ids")}
    return [sample.scores, sample.gold, sample.output, calls]


def _apart(a: Any, b: Any) -> float:
    """Largest difference of two numbers at the same place; infinite where anything else differs."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((_apart(a[k], b[k]) for k in a), default=0.0)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max((_apart(x, y) for x, y in zip(a, b, strict=True)), default=0.0)
    if isinstance(a, float) and isinstance(b, float) and (a == b or math.isfinite(a - b)):
        return abs(a - b) if a != b else 0.0
    return 0.0 if a == b or (a != a and b != b) else math.inf


def _place(a: Any, b: Any, near: float, at: str = "") -> str:
    """The first place where two values are further apart, and both of them."""
    keys = a if isinstance(a, dict) else range(len(a)) if isinstance(a, list) else ()
    if type(a) is type(b) and keys and len(a) == len(b):
        for key in keys:
            if _apart(a[key], b[key]) > near:
                return _place(a[key], b[key], near, f"{at}/{key}")
    return f"{at}: {str(a)[:80]} and {str(b)[:80]}"


def _met(store: StoreReader, key: str, faults: Faults) -> list[str]:
    requests: list[Any] = [c.request for c in store.calls(key, columns=False)]
    return [kind for r in requests for kind in faults.hits.get(r["input"]["text"], [])]


def _due(reason: str, met: list[str]) -> bool:
    return reason.partition(":")[0] in allowed(met)
