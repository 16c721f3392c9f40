"""End to end on a real engine: the same rows and options through `logproof eval`'s runner and lm-eval, interleaved.

    python bench/end_to_end.py --model URL [--data DIR] [--limit 24] [--rounds 3] [--json FILE]

Both score every option of ARC-Easy and HellaSwag rows with one request an option, at the same concurrency. Wall time
is from the first preparation to the last score; for logproof that includes the store on disk and the report, for
lm-eval neither start nor imports. Busy is the share of looks at which the engine's core process worked, see busy.py;
so the engine must be one of this machine. Nobody else may use it meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from busy import core_of, watching

from logproof.client.connect import Options, connect
from logproof.client.pool import open_pool
from logproof.errors import LogproofError
from logproof.eval.plan.prepare import load, prepare
from logproof.eval.run.run import Order, execute
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import PplItem, Settings

TASKS = ("arc_easy_ppl", "hellaswag_ppl")
WORKER = Path(__file__).with_name("judge_worker.py")

Span = tuple[float, float]
"""Start and end on the clock of `time.perf_counter`, which all processes of a Linux machine share."""


def entries(limit: str) -> list[tuple[str, Settings]]:
    return [(task, Settings(limit=limit)) for task in TASKS]


async def ours(args: argparse.Namespace, out: Path) -> Span:
    """When one run of logproof worked."""
    options = Options(dialect="vllm_native", texts=False, concurrency=args.concurrency)
    order = Order(entries=entries(args.limit), source=args.data, out=out, policy=RunPolicy(args.concurrency))
    async with open_pool([args.model], options) as pool:
        start = time.perf_counter()
        finished = await execute(order, pool)
        end = time.perf_counter()
    if finished.ended.failed:
        raise LogproofError(f"{finished.ended.failed} samples failed")
    return start, end


async def pairs(args: argparse.Namespace) -> tuple[list[tuple[str, str]], str, str]:
    """The same options as (context, continuation), the served name and the model's directory."""
    async with connect(args.model, Options(dialect="vllm_native", texts=False)) as connection:
        jobs = await prepare(load(entries(args.limit), args.data), connection)
        items = [job.item(doc) for job in jobs for doc in job.docs()]
        name, root = connection.model, connection.facts.model_root
    found = [(item.context, c) for item in items if isinstance(item, PplItem) for c in item.continuations]
    return found, name, root or name


def theirs(args: argparse.Namespace, asked: list[tuple[str, str]], name: str, root: str) -> Span:
    """When lm-eval scored."""
    command = [args.judge, str(WORKER), args.model, name, root, str(args.concurrency)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LogproofError(f"lm-eval failed: {done.stderr.strip().splitlines()[-1:]}")
    told = json.loads(done.stdout)
    return told["started"], told["started"] + told["seconds"]


def measure(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians of interleaved rounds."""
    asked, name, root = asyncio.run(pairs(args))
    core = core_of(args.model)
    taken: dict[str, list[tuple[float, float]]] = {"logproof": [], "lm-eval": []}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder, watching(core) as busy:
            span = asyncio.run(ours(args, Path(folder) / "run"))
        taken["logproof"].append((span[1] - span[0], busy.share(*span)))
        with watching(core) as busy:
            span = theirs(args, asked, name, root)
        taken["lm-eval"].append((span[1] - span[0], busy.share(*span)))
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
