"""End to end on a real engine: the same rows and options through `logproof eval`'s runner and lm-eval, interleaved.

    python bench/end_to_end.py --model URL [--data DIR] [--limit 24] [--rounds 3] [--json FILE]

Both score every option of ARC-Easy and HellaSwag rows with one request an option, at the same concurrency. Wall time
is from the first preparation to the last score; for logproof that includes the store on disk and the report, for
lm-eval neither start nor imports. Busy is the share of looks at /metrics at which the engine had a request running.
The engine must be used by nobody else meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from logproof.errors import LogproofError
from logproof.eval.pool import open_pool
from logproof.eval.prepare import load, prepare
from logproof.eval.runner import Policy
from logproof.eval.session import Order, execute
from logproof.eval.task import PplItem, Settings
from logproof.models.connect import Options, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS = ("arc_easy_ppl", "hellaswag_ppl")
WORKER = Path(__file__).with_name("judge_worker.py")
RUNNING = re.compile(r"^vllm:num_requests_running(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
LOOK_S = 0.05


class Busy:
    """Looks at an engine's /metrics again and again."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/metrics"
        self._looks: list[tuple[float, bool]] = []
        self._end = threading.Event()

    def watch(self) -> None:
        while not self._end.wait(LOOK_S):
            with urllib.request.urlopen(self._url, timeout=30) as reply:
                found = RUNNING.findall(reply.read().decode())
            self._looks.append((time.perf_counter(), any(float(value) > 0 for value in found)))

    def stop(self) -> None:
        self._end.set()

    def share(self, seconds: float) -> float:
        """Share of the looks in the last so many seconds at which a request was running."""
        since = self._looks[-1][0] - seconds if self._looks else 0.0
        return statistics.mean([running for at, running in self._looks if at >= since] or [float("nan")])


@contextmanager
def watching(url: str) -> Iterator[Busy]:
    busy = Busy(url)
    thread = threading.Thread(target=busy.watch)
    thread.start()
    try:
        yield busy
    finally:
        busy.stop()
        thread.join()


def entries(limit: str) -> list[tuple[str, Settings]]:
    return [(task, Settings(limit=limit)) for task in TASKS]


async def ours(args: argparse.Namespace, out: Path) -> float:
    """Seconds of one run of logproof."""
    options = Options(dialect="vllm_native", texts=False, concurrency=args.concurrency)
    order = Order(entries=entries(args.limit), source=args.data, out=out, policy=Policy(args.concurrency))
    async with open_pool([args.model], options) as pool:
        start = time.perf_counter()
        finished = await execute(order, pool)
        seconds = time.perf_counter() - start
    if finished.ended.failed:
        raise LogproofError(f"{finished.ended.failed} samples failed")
    return seconds


async def pairs(args: argparse.Namespace) -> tuple[list[tuple[str, str]], str, str]:
    """The same options as (context, continuation), the served name and the model's directory."""
    async with connect(args.model, Options(dialect="vllm_native", texts=False)) as connection:
        jobs = await prepare(load(entries(args.limit), args.data), connection)
        items = [job.item(doc) for job in jobs for doc in job.docs()]
        name, root = connection.model, connection.facts.model_root
    found = [(item.context, c) for item in items if isinstance(item, PplItem) for c in item.continuations]
    return found, name, root or name


def theirs(args: argparse.Namespace, asked: list[tuple[str, str]], name: str, root: str) -> float:
    """Seconds that lm-eval scores."""
    command = [args.judge, str(WORKER), args.model, name, root, str(args.concurrency)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LogproofError(f"lm-eval failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(json.loads(done.stdout)["seconds"])


def measure(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians of interleaved rounds."""
    asked, name, root = asyncio.run(pairs(args))
    taken: dict[str, list[tuple[float, float]]] = {"logproof": [], "lm-eval": []}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder, watching(args.model) as busy:
            seconds = asyncio.run(ours(args, Path(folder) / "run"))
        taken["logproof"].append((seconds, busy.share(seconds)))
        with watching(args.model) as busy:
            seconds = theirs(args, asked, name, root)
        taken["lm-eval"].append((seconds, busy.share(seconds)))
    return {
        client: {
            "seconds": statistics.median(s for s, _ in values),
            "busy": statistics.median(b for _, b in values),
            "requests": float(len(asked)),
        }
        for client, values in taken.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="URL")
    parser.add_argument("--data", default=None, metavar="DIR")
    parser.add_argument("--limit", default="24", help="rows a task")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--judge", default=".venv-judge/bin/python", help="interpreter that has lm_eval")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    try:
        found = measure(args)
    except LogproofError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("| client | requests | wall s | engine busy |\n|---|---|---|---|")
    for client, f in found.items():
        print(f"| {client} | {f['requests']:.0f} | {f['seconds']:.1f} | {f['busy']:.0%} |")
    print(f"\nlm-eval takes {found['lm-eval']['seconds'] / found['logproof']['seconds']:.2f} times as long")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
