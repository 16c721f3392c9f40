"""Peak memory and rate of the real evaluation runner: 20,000 rows against 200,000, each in a process of its own.

    python bench/memory.py [--rows 20000 200000] [--json FILE]

An engine inside the process answers each label request at once with a recorded reply, so the whole path runs (rows
from a file, prompts, lowering, lifting, checks, scores, records into a store on disk, report) but for HTTP. The aim:
peak memory flat within 10 % and under 400 MB.
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

from logproof.eval.pool import Pool
from logproof.eval.runner import Policy
from logproof.eval.session import Order, execute
from logproof.eval.task import Settings
from logproof.ir.facts import Facts
from logproof.models.client import Client
from logproof.models.connect import Connection
from logproof.models.dialects import get_dialect
from logproof.wire.endpoint import endpoint
from logproof.wire.message import WireReply, WireRequest

TASK = "mmlu_clp"
FLAT = 1.1
LIMIT_MB = 400.0
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


def run(count: int) -> dict[str, float]:
    """One run; peak MB of this process and samples/s."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "mmlu.test.jsonl", count)
        fields = {"/v1/completions": ("logprob_token_ids", "return_token_ids", "prompt_logprobs")}
        facts = Facts(engine="vllm", version="0.32.0", models=("smollm2",), fields=fields, max_logprobs=100)
        words = Words()
        engine = Instant(words)
        client = Client(engine, get_dialect("vllm_native"), facts)
        connection = Connection(client, endpoint("http://127.0.0.1:1"), facts, engine, words, "smollm2")
        order = Order(
            entries=[(TASK, Settings(shots=0))], source=folder, out=Path(folder) / "run", policy=Policy(concurrency=32)
        )
        start = time.perf_counter()
        finished = asyncio.run(execute(order, Pool([connection])))
        seconds = time.perf_counter() - start
    if finished.ended.ran != count or finished.ended.failed:
        ended = finished.ended
        raise SystemExit(f"{ended.ran} of {count} rows ran, {ended.failed} failed: {ended.reason}")
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "rate": count / seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    if args.one is not None:
        print(msgspec.json.encode(run(args.one)).decode())
        return 0
    found = {}
    for count in args.rows:
        done = subprocess.run([sys.executable, __file__, "--one", str(count)], stdout=subprocess.PIPE, check=True)
        found[count] = json.loads(done.stdout.splitlines()[-1])
    print("| rows | peak MB | samples/s |\n|---|---|---|")
    for count, figures in found.items():
        print(f"| {count:,} | {figures['peak']:.0f} | {figures['rate']:,.0f} |")
    peaks = [figures["peak"] for figures in found.values()]
    flat = max(peaks) / min(peaks)
    met = flat <= FLAT and max(peaks) <= LIMIT_MB
    aim = f"aim: at most {FLAT}, under {LIMIT_MB:.0f} MB"
    print(f"\npeak memory grows {flat:.2f} times ({aim}): {'met' if met else 'not met'}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
