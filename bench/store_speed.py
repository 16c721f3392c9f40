"""The run store against two floors, in one run, interleaved: python bench/store_speed.py [--records N] [--rounds R].

Writing, records/s (medians): building the record only; building it and its row (keys, canonical JSON, packed
columns; nothing written); rows as JSON lines with one fsync each 100 ms; the store. A record is what a scoring
call leaves: about 4 kB of request, reply summary and four columns of 60 positions. The longest time from arrival
to durable is measured with records that arrive at a steady `--rate`: a producer without pause shows how fast the
disk is, not how long a record waits. The aim is 5,000 records/s, each durable within 100 ms.
Resuming: time to open a store with `--done` finished samples and read their keys; the aim is under 5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from logproof.store.digest import call_key, sample_key
from logproof.store.packed_columns import Column
from logproof.store.records import CallRecord, RunProvenance, SampleRecord
from logproof.store.run_store import RunStore
from logproof.store.schema import RecordEncoder, TableRow

PROVENANCE = RunProvenance(config={"bench": True}, model={"name": "none"}, tasks={"bench": "1"})
PROMPT = "The quick brown fox jumps over the lazy dog. " * 50
POSITIONS = 60
LABELS = {
    "floor": "building the record",
    "rows": "and its row",
    "jsonl": "JSON lines, fsync each 100 ms",
    "store": "run store",
}
AIM_RATE = 5000
AIM_DURABLE = 0.1
AIM_RESUME = 5.0


def columns(seed: int) -> dict[str, Column]:
    rng = np.random.default_rng(seed)
    return {
        "ids": rng.integers(0, 49_152, POSITIONS),
        "logprobs": (-rng.random(POSITIONS)).astype(np.float32).astype(np.float64),  # engines report float32 values
        "ranks": rng.integers(1, 100, POSITIONS),
        "texts": [f"tok{i}" for i in range(POSITIONS)],
    }


COLUMNS = [columns(seed) for seed in range(64)]


def record(number: int) -> CallRecord:
    request = {"prompt": f"{number} {PROMPT}", "scoring": {"prompt": 0}, "sampling": {"temperature": 0.0}}
    return CallRecord(
        key=call_key(request, "none", "vllm_native"),
        sample_key=sample_key("bench", str(number)),
        dialect="vllm_native",
        status="ok",
        request=request,
        response={"text": "yes", "finish": "stop", "usage": {"prompt": POSITIONS, "completion": 1}},
        columns=COLUMNS[number % len(COLUMNS)],
    )


def build(count: int, into: Callable[[TableRow], None]) -> float:
    """Seconds to build `count` records and their rows, each handed on."""
    encoder = RecordEncoder()
    start = time.perf_counter()
    for number in range(count):
        into(encoder.row(record(number)))
    return time.perf_counter() - start


def floor(count: int, folder: Path) -> float:
    start = time.perf_counter()
    for number in range(count):
        record(number)
    return time.perf_counter() - start


def rows_only(count: int, folder: Path) -> float:
    return build(count, lambda row: None)


def json_lines(count: int, folder: Path) -> float:
    start = time.perf_counter()
    with (folder / "calls.jsonl").open("wb") as file:
        synced = time.perf_counter()

        def write(row: TableRow) -> None:
            nonlocal synced
            cells = [cell.hex() if isinstance(cell, bytes) else cell for cell in row.cells]
            file.write(json.dumps(cells).encode() + b"\n")
            if time.perf_counter() - synced >= AIM_DURABLE:
                file.flush()
                os.fsync(file.fileno())
                synced = time.perf_counter()

        build(count, write)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def store(count: int, folder: Path) -> float:
    start = time.perf_counter()
    with RunStore.create(folder / "run", PROVENANCE) as run:
        for number in range(count):
            run.put_call(record(number))
        run.flush()
        return time.perf_counter() - start


def steady(count: int, rate: float, folder: Path) -> tuple[float, float]:
    """Records/s that arrived and became durable at a steady rate, and the longest wait in seconds."""
    prepared = [record(number) for number in range(count)]
    with RunStore.create(folder / "run", PROVENANCE) as run:
        start = time.perf_counter()
        for number, call in enumerate(prepared):
            ahead = start + number / rate - time.perf_counter()
            if ahead > 0.002:
                time.sleep(ahead)
            run.put_call(call)
        run.flush()
        return count / (time.perf_counter() - start), run.stats.longest


def resume(done: int, rounds: int, folder: Path) -> float:
    """Median seconds to open a store with so many finished samples and read their keys."""
    with RunStore.create(folder / "run", PROVENANCE) as run:
        for number in range(done):
            key = sample_key("bench", str(number))
            run.put_sample(
                SampleRecord(key=key, task="bench", row_id=str(number), index=number, status="ok", scores={"acc": 1.0})
            )
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        with RunStore.resume(folder / "run", PROVENANCE) as run:
            if len(run.done()) != done:
                raise SystemExit("the store lost samples")
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def in_folder(way: Callable[[int, Path], float], count: int, root: Path) -> float:
    folder = Path(tempfile.mkdtemp(dir=root))
    try:
        return way(count, folder)
    finally:
        shutil.rmtree(folder)


def measure(args: argparse.Namespace, root: Path) -> dict[str, float]:
    ways = {"floor": floor, "rows": rows_only, "jsonl": json_lines, "store": store}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, way in ways.items():
            seconds[name].append(in_folder(way, args.records, root))
    result = {name: args.records / statistics.median(times) for name, times in seconds.items()}
    runs = [steady(args.records, args.rate, Path(tempfile.mkdtemp(dir=root))) for _ in range(args.rounds)]
    result["steady"] = statistics.median(rate for rate, _ in runs)
    result["longest"] = statistics.median(longest for _, longest in runs)
    result["resume"] = resume(args.done, args.rounds, Path(tempfile.mkdtemp(dir=root)))
    return result


def show(result: dict[str, float], done: int) -> None:
    for name, label in LABELS.items():
        print(f"{label:<32}{result[name]:>10,.0f} records/s   {result['store'] / result[name]:.2f} store/this")
    wait = f"longest wait {result['longest']:.3f} s"
    print(f"{'run store, steady arrival':<32}{result['steady']:>10,.0f} records/s   {wait}")
    print(f"{f'resume with {done:,} done':<32}{result['resume']:>10.3f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=AIM_RATE)
    parser.add_argument("--done", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, help="where to write; a real disk, not memory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as root:
        result = measure(args, Path(root))
    show(result, args.done)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2))
    met = result["store"] >= AIM_RATE and result["longest"] <= AIM_DURABLE and result["resume"] <= AIM_RESUME
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
