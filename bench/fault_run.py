"""An evaluation through a proxy that spoils one call in five, against the same one undisturbed, on a real engine:

    python bench/fault_run.py [--engine http://127.0.0.1:8000] [--limit N] [--seed N] [--concurrency N]

Faults: see tests/fakes/faults.py. Ends with 1 unless every number equals the undisturbed run's, or its sample
failed for the reason of a fault that it met. The engine must be deterministic (vLLM with --dtype float32).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from eval.run.faulty import run_faulty
from fakes.faults import Faults
from fakes.server import FakeServer, Reply, Seen
from logproof.eval.tasks.task import Settings

TASKS = ("arc_easy_ppl", "mmlu_clp", "gsm8k_gen")
NEAR = 1e-4
"""Nats: generated tokens differ by up to 2e-5 between batches of other sizes on float32, a sum of them by more."""
ROUTES = ("/v1/models", "/version", "/openapi.json", "/tokenize", "/detokenize", "/health", "/v1/completions")


def forwarding(engine: str, faults: Faults) -> Callable[[Seen], Awaitable[Reply]]:
    """Answers a request as the engine does, but for the faults of its completions."""

    async def answer(seen: Seen) -> Reply:
        headers = {"content-type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.request(seen.method, engine + seen.path, data=seen.body or None, headers=headers) as response,
        ):
            body = await response.read()
            if seen.path == "/v1/completions" and response.status == 200 and faults.armed:
                return faults.reply(seen.json(), json.loads(body))
            return Reply(response.status, body=body, headers={"content-type": response.content_type})

    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", default="http://127.0.0.1:8000")
    parser.add_argument("--limit", default="24")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--concurrency", type=int, default=4)
    args = parser.parse_args()
    faults = Faults(args.seed, fingerprint=60)
    entries: list[Any] = [(name, Settings(limit=args.limit, shots=0, max_tokens=24)) for name in TASKS]
    with tempfile.TemporaryDirectory() as directory, FakeServer() as fake:
        for route in ROUTES:
            fake.on(route, forwarding(args.engine, faults))
        told = run_faulty(Path(directory), fake.url, faults, entries, None, args.concurrency, NEAR)
    print(f"{told.kept + told.failed} samples, {faults.calls} calls: {told.kept} scored, {told.failed} failed")
    print(f"faults: {', '.join(f'{n} {kind}' for kind, n in Counter(told.faults).items())}")
    print(f"reasons of failure: {', '.join(sorted(told.reasons)) or 'none'}")
    print(f"samples with another number than undisturbed: {len(told.wrong)} {told.wrong[:3]}")
    print(f"largest difference of a number: {told.apart:.2g} (the engine's own noise is up to {NEAR:g})")
    print(f"samples that failed for no fault of theirs: {len(told.astray)} {told.astray[:3]}")
    print(f"marks: {'; '.join(told.report.suspect)}")
    return 1 if told.wrong or told.astray else 0


if __name__ == "__main__":
    sys.exit(main())
