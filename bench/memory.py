"""Peak memory and rate of the real evaluation runner: 20,000 rows against 200,000, each in a process of its own.

    python bench/memory.py [--rows 20000 200000] [--resume 100000] [--json FILE]

An engine inside the process answers each label request at once with a recorded reply, so the whole path runs (rows
from a file, prompts, lowering, lifting, checks, scores, records into a store on disk, report) but for HTTP. The aims:
peak memory flat within 10 % and under 400 MB; a run that finds so many samples done reports again in under 5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import replay_server

from logproof.client.client import Client
from logproof.client.connect import Connection
from logproof.client.pool import Pool
from logproof.dialects.registry import get_dialect
from logproof.eval.plan.prepare import load, prepare
from logproof.eval.plan.run_identity import provenance
from logproof.eval.run.run import Order, execute
from logproof.eval.run.runner import RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.http.endpoint import endpoint
from logproof.http.exchange import WireReply, WireRequest
from logproof.ir.facts import Facts
from logproof.store.records import SampleRecord
from logproof.store.run_store import RunStore

TASK = "mmlu_clp"
FLAT = 1.1
LIMIT_MB = 400.0
RESUME_S = 5.0
WORDS = ["harbour", "light", "old", "dog", "morning", "stone", "quick", "seven", "sail", "ship", "grey", "tall", "fox"]
LABELS = {" A": 330, " B": 389, " C": 340, " D": 422}
PIECE = re.compile(r"\s?[^\W\d]+|\s?\d|\s?[^\w\s]|\s")
"""Numbers are spelt digit by digit, so the vocabulary stays small whatever the number of rows."""


class Words:
    """A tokenizer of words: what the task asks of one before the run."""

    def __init__(self) -> None:
        self._ids = dict(LABELS)

    def ids(self, text: str) -> list[int]:
        return [self._ids.setdefault(piece, 1000 + len(self._ids)) for piece in PIECE.findall(text)]

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.ids(text))

    def known(self, text: str) -> tuple[int, ...] | None:
        return None

    async def decode(self, ids: Sequence[int]) -> str:
        texts = {number: text for text, number in self._ids.items()}
        return "".join(texts[number] for number in ids)

    async def text(self, token_id: int) -> str:
        return await self.decode([token_id])


class Instant:
    """Both the sender and the transport of the connection: the recorded reply, about the prompt that was sent."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._reply = json.loads(replay_server.reply("labels"))

    async def send(self, request: WireRequest) -> WireReply:
        await asyncio.sleep(0)
        prompt = self._words.ids(msgspec.json.decode(request.body)["prompt"])
        self._reply["choices"][0]["prompt_token_ids"] = prompt
        self._reply["usage"] = {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": len(prompt) + 1}
        return WireReply(status=200, headers=(), body=msgspec.json.encode(self._reply), seconds=0.001, attempts=1)


def write_rows(path: Path, count: int) -> None:
    """Rows in the shape of MMLU."""
    rng = random.Random(5)
    with path.open("w") as file:
        for i in range(count):
            texts = [" ".join(rng.choices(WORDS, k=4)) for _ in "ABCD"]
            row = {
                "question": f"{i}: {' '.join(rng.choices(WORDS, k=40))}?",
                "subject": "harbours",
                "choices": texts,
                "answer": rng.randrange(4),
            }
            file.write(json.dumps(row) + "\n")


def connection() -> Connection:
    """A connection to the instant engine."""
    fields = {"/v1/completions": ("logprob_token_ids", "return_token_ids", "prompt_logprobs")}
    facts = Facts(engine="vllm", version="0.32.0", models=("smollm2",), fields=fields, max_logprobs=100)
    words = Words()
    engine = Instant(words)
    client = Client(engine, get_dialect("vllm_native"), facts)
    return Connection(client, endpoint("http://127.0.0.1:1"), facts, engine, words, "smollm2")


def order(folder: str, *, resume: bool = False) -> Order:
    """The run over the rows in a folder, into that folder."""
    entries = [(TASK, Settings(shots=0))]
    return Order(
        entries=entries, source=folder, out=Path(folder) / "run", policy=RunPolicy(concurrency=32), resume=resume
    )


def run(count: int) -> dict[str, float]:
    """One run; peak MB of this process and samples/s."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "mmlu.test.jsonl", count)
        start = time.perf_counter()
        finished = asyncio.run(execute(order(folder), Pool([connection()])))
        seconds = time.perf_counter() - start
    if finished.ended.ran != count or finished.ended.failed:
        ended = finished.ended
        raise SystemExit(f"{ended.ran} of {count} rows ran, {ended.failed} failed: {ended.reason}")
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "rate": count / seconds}


def resume(done: int) -> dict[str, float]:
    """Seconds, and CPU seconds, of a whole run that finds all of its samples done: rows, store and report."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "mmlu.test.jsonl", done)
        asked, place = order(folder, resume=True), connection()
        (job,) = jobs = asyncio.run(prepare(load(asked.entries, folder), place))
        scheduling = {"concurrency": asked.policy.concurrency, "max_failures": None}
        output = {"chosen": {"acc": 1}, "tied": [], "labels": dict.fromkeys(LABELS, -1.5), "flags": []}
        with RunStore.create(asked.out, provenance(jobs, [place], scheduling)) as store:
            for doc in job.docs():
                key, scores = job.key(doc, 0), {"acc": 1.0, "label_mass": 0.5}
                sample = SampleRecord(key=key, task=TASK, row_id=doc.where, index=doc.index, status="ok", scores=scores)
                store.put_sample(msgspec.structs.replace(sample, gold=1, output=output))
        start, cpu = time.perf_counter(), time.process_time()
        finished = asyncio.run(execute(asked, Pool([place])))
        took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    if finished.ended.skipped != done or finished.ended.ran:
        raise SystemExit(f"{finished.ended.ran} samples ran again, {finished.ended.skipped} of {done} were found done")
    return took


def alone(option: str, count: int) -> dict[str, float]:
    """Figures of one run in a process of its own."""
    done = subprocess.run([sys.executable, __file__, option, str(count)], stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--resume", type=int, default=100_000)
    parser.add_argument("--one-run", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--one-resume", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    if args.one_run or args.one_resume:
        print(json.dumps(run(args.one_run) if args.one_run else resume(args.one_resume)))
        return 0
    found = {count: alone("--one-run", count) for count in args.rows}
    again = alone("--one-resume", args.resume)
    print("| rows | peak MB | samples/s |\n|---|---|---|")
    for count, figures in found.items():
        print(f"| {count:,} | {figures['peak']:.0f} | {figures['rate']:,.0f} |")
    peaks = [figures["peak"] for figures in found.values()]
    grown = max(peaks) / min(peaks)
    flat, quick = grown <= FLAT and max(peaks) <= LIMIT_MB, again["seconds"] <= RESUME_S
    words = {True: "met", False: "not met"}
    print(f"\npeak memory grows {grown:.2f} times (aim: at most {FLAT}, under {LIMIT_MB:.0f} MB): {words[flat]}")
    took = f"{again['seconds']:.1f} s, CPU {again['cpu']:.1f} s"
    print(f"a run that finds {args.resume:,} samples done: {took} (aim: at most {RESUME_S:g} s): {words[quick]}")
    if args.json:
        args.json.write_text(json.dumps({"rows": found, "resume": again}, indent=2))
    return 0 if flat and quick else 1


if __name__ == "__main__":
    sys.exit(main())
