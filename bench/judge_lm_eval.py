"""An outside judge: lm-evaluation-harness scores the same rows on the same engine, sum by sum.

    make judge                                                               (builds lm-eval's environment, no more)
    .venv/bin/python bench/judge_lm_eval.py --model URL                      (the shipped rows)
    .venv/bin/python bench/judge_lm_eval.py --model URL --data DIR --limit 30

Every option of ARC-Easy and HellaSwag rows is scored by logproof through vllm_native and by lm-eval's
`local-completions`. Where both split the text into the same tokens at the same place the sums must agree
within 1e-4 nat; a row whose tokens cross the join is split differently by design, and is counted apart.
Exits 1 where a sum disagrees.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec

from logproof.client.connect import Connection, Options, connect
from logproof.errors import LogproofError
from logproof.eval.plan.method import requests
from logproof.eval.plan.prepare import load, prepare
from logproof.eval.score.outcome import Contexts, score
from logproof.eval.tasks.task import PplItem, Settings

TASKS = ("arc_easy_ppl", "hellaswag_ppl")
TOLERANCE = 1e-4
WORKER = Path(__file__).with_name("judge_worker.py")


class Scored(msgspec.Struct):
    """One option of one row. crossed: its row has a token across the join."""

    task: str
    row: str
    option: int
    context: str
    continuation: str
    ours: float
    crossed: bool


async def ours(url: str, data: str | None, limits: dict[str, str]) -> tuple[list[Scored], str, str | None]:
    """Our sums, the served name and the model's directory."""
    async with connect(url, Options(dialect="vllm_native", texts=False, concurrency=1)) as connection:
        scored = [s for task in TASKS for s in await _task(task, limits[task], data, connection)]
        return scored, connection.model, connection.facts.model_root


async def _task(task: str, limit: str, data: str | None, connection: Connection) -> list[Scored]:
    (job,) = await prepare(load([(task, Settings(limit=limit))], data), connection)
    found = []
    for doc in job.docs():
        item = job.item(doc)
        if not isinstance(item, PplItem) or connection.tokenizer is None:
            raise LogproofError(f"{task} is no task of scored options, or the endpoint has no tokenizer")
        replies = {part: (await connection.client.call(r)).response for part, r in requests(item, job.plan)}
        outcome = score(item, job.plan, replies, Contexts(await connection.tokenizer.encode(item.context)))
        crossed = outcome.output["span"].crossings > 0
        for i, total in enumerate(outcome.output["sums"]):
            found.append(Scored(task, doc.where, i, item.context, item.continuations[i], total, crossed))
    return found


def theirs(python: str, url: str, name: str, tokenizer: str, scored: list[Scored]) -> list[float]:
    """lm-eval's sums of the same pairs."""
    pairs = json.dumps([[s.context, s.continuation] for s in scored])
    command = [python, str(WORKER), url, name, tokenizer]
    done = subprocess.run(command, input=pairs, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LogproofError(f"lm-eval failed: {done.stderr.strip().splitlines()[-1:]}")
    return [float(total) for total in json.loads(done.stdout)["sums"]]


def report(scored: list[Scored], judged: list[float]) -> int:
    """Print one line a task; 1 where a sum of a plain row is off."""
    off = []
    for task in TASKS:
        rows = [(s, j) for s, j in zip(scored, judged, strict=True) if s.task == task]
        plain = [(s, j) for s, j in rows if not s.crossed]
        worst = max((abs(s.ours - j) for s, j in plain), default=0.0)
        off += [s for s, j in plain if abs(s.ours - j) > TOLERANCE]
        print(f"{task}: {len(plain)} options split alike, max |difference| {worst:.2e} nat", end="; ")
        print(f"{len(rows) - len(plain)} options in rows whose tokens cross the join")
        for s, j in rows:
            if s.crossed and abs(s.ours - j) > TOLERANCE:
                print(f"  {s.row} option {s.option}: {s.ours:.4f} over the widened span, lm-eval {j:.4f}")
    for s in off:
        print(f"DISAGREES {s.task} {s.row} option {s.option}")
    return 1 if off else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="URL")
    parser.add_argument("--data", default=None, metavar="DIR")
    parser.add_argument("--limit", default=None, help="rows a task (default 30 and 20)")
    parser.add_argument("--judge", default=".venv-judge/bin/python", help="interpreter that has lm_eval")
    given = parser.parse_args()
    limits = {TASKS[0]: given.limit or "30", TASKS[1]: given.limit or "20"}
    if given.data is None:
        limits = dict.fromkeys(TASKS, given.limit or "24")
    try:
        scored, name, root = asyncio.run(ours(given.model, given.data, limits))
        judged = theirs(given.judge, given.model, name, root or name, scored)
    except LogproofError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return report(scored, judged)


if __name__ == "__main__":
    sys.exit(main())
