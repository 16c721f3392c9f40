"""Client CPU and throughput on recorded replies, against two floors and lm-evaluation-harness, interleaved.

    python bench/scoring.py [--rounds 5] [--judge .venv-judge/bin/python] [--json FILE]

An instant server (replay_server.py) leaves only the client's time. Clients, each in a process of its own: `floor`
(raw sockets and a typed decode), `aiohttp` (bare, with the same decode), `logproof` (its Client with every check),
`lm-eval` (`local-completions` with its own requests for the same question, see scoring_lm_eval.py). Figures are
medians of CPU milliseconds a sample; CPU ratios hold on a loaded machine, requests/s do not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from logproof.launch.places import models_dir

HERE = Path(__file__).parent
OURS = ("floor", "aiohttp", "logproof")
KINDS = {
    "score": "800 prompt positions",
    "labels": "4 labels, one token",
    "generate": "256 tokens, top 5",
    "ids": "800 positions, prompt as ids",
    "wide": "800 positions, top 20 (1.2 MB)",
}
ROUNDS = {
    "score": ((1, 100), (32, 320), (128, 640)),
    "labels": ((1, 200), (32, 640), (128, 1280)),
    "generate": ((1, 100), (32, 320), (128, 640)),
    "ids": ((32, 320),),
    "wide": ((1, 16), (32, 32)),
}
"""kind -> (concurrency, samples a round)."""

JUDGED = {"score": 128, "labels": 64, "generate": 128}
"""kind -> samples a round of lm-eval, which is slow; at concurrency 1 an eighth of them."""

Key = tuple[str, str, int]


class Worker:
    """A client process that runs one round a line."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def round(self, kind: str, count: int, concurrency: int) -> tuple[float, float]:
        """(CPU ms a sample, samples/s)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, count, concurrency]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended: run it by hand to see why")
        found = json.loads(line)
        return found["cpu"] / count * 1e3, count / found["wall"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def workers(judge: str | None, tokenizer: str) -> Iterator[dict[str, Worker]]:
    """The instant server and one process a client."""
    server = subprocess.Popen(
        [sys.executable, str(HERE / "replay_server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    found = {name: Worker([sys.executable, str(HERE / "scoring_clients.py"), name, port]) for name in OURS}
    if judge is not None:
        found["lm-eval"] = Worker([judge, str(HERE / "scoring_lm_eval.py"), port, tokenizer])
    with ExitStack() as stack:
        stack.callback(server.wait)
        stack.callback(server.stdin.close)
        for worker in found.values():
            stack.callback(worker.close)
        yield found


def rounds(name: str, kind: str) -> Iterator[tuple[int, int]]:
    """(concurrency, samples) of a client's rounds."""
    if name != "lm-eval":
        yield from ROUNDS[kind]
    elif kind in JUDGED:
        yield from ((concurrency, JUDGED[kind] // (8 if concurrency == 1 else 1)) for concurrency, _ in ROUNDS[kind])


def measure(found: dict[str, Worker], count: int) -> dict[Key, tuple[float, float]]:
    """Medians of `count` interleaved rounds after one that warms up."""
    taken: dict[Key, list[tuple[float, float]]] = {}
    for turn in range(count + 1):
        for kind in ROUNDS:
            for name, worker in found.items():
                for concurrency, samples in rounds(name, kind):
                    figures = worker.round(kind, max(samples // (1 if turn else 4), 1), concurrency)
                    if turn:
                        taken.setdefault((kind, name, concurrency), []).append(figures)
    return {key: tuple(map(statistics.median, zip(*values, strict=True))) for key, values in taken.items()}


def table(result: dict[Key, tuple[float, float]]) -> list[str]:
    """Markdown lines: CPU ms a sample, and what logproof costs beside each peer."""
    lines = [
        "| request | concurrency | floor | aiohttp | logproof | lm-eval | logproof/floor | logproof/aiohttp "
        "| lm-eval/logproof |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, label in KINDS.items():
        for concurrency, _ in ROUNDS[kind]:
            cpu = {n: result[kind, n, concurrency][0] for n in (*OURS, "lm-eval") if (kind, n, concurrency) in result}
            judge = cpu.get("lm-eval")
            cells = [f"{cpu[n]:.2f}" for n in OURS] + ["" if judge is None else f"{judge:.2f}"]
            ratios = [f"{cpu['logproof'] / cpu['floor']:.2f}", f"{cpu['logproof'] / cpu['aiohttp']:.2f}"]
            ratios += ["" if judge is None else f"{judge / cpu['logproof']:.1f}"]
            lines.append("| " + " | ".join([label, str(concurrency), *cells, *ratios]) + " |")
    return lines


def claims(result: dict[Key, tuple[float, float]]) -> list[tuple[str, float, str, bool]]:
    """(claim, measured, aim, met)."""

    def cpu(kind: str, name: str, concurrency: int) -> float:
        return result[kind, name, concurrency][0]

    ours = cpu("score", "logproof", 32)
    found = [
        ("scoring, logproof/aiohttp at 32", ours / cpu("score", "aiohttp", 32), 1.35, "<="),
        ("scoring, logproof/floor at 32", ours / cpu("score", "floor", 32), 2.0, "<="),
        ("scoring at 128 / at 1", cpu("score", "logproof", 128) / cpu("score", "logproof", 1), 1.2, "<="),
        ("ids / text at 32", cpu("ids", "logproof", 32) / ours, 1.15, "<="),
        ("1.2 MB reply, CPU ms", cpu("wide", "logproof", 1), 5.5, "<="),
    ]
    if ("score", "lm-eval", 32) in result:
        found.append(("scoring, lm-eval/logproof at 32", cpu("score", "lm-eval", 32) / ours, 10.0, ">="))
    return [
        (name, value, f"{sign} {aim}", value <= aim if sign == "<=" else value >= aim)
        for name, value, aim, sign in found
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--judge", default=".venv-judge/bin/python", help="interpreter that has lm_eval")
    parser.add_argument("--tokenizer", default=str(models_dir() / "smollm2"), help="directory of the tokenizer")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    judge = args.judge if Path(args.judge).exists() else None
    with workers(judge, args.tokenizer) as found:
        result = measure(found, args.rounds)
    print("CPU ms a sample, medians\n")
    print("\n".join(table(result)))
    if judge is None:
        print("\nlm-eval was not measured: `make judge` builds its environment")
    met = claims(result)
    print("\n| claim | measured | aim | |\n|---|---|---|---|")
    for name, value, aim, ok in met:
        print(f"| {name} | {value:.2f} | {aim} | {'met' if ok else 'not met'} |")
    if args.json:
        args.json.write_text(json.dumps({"/".join(map(str, k)): v for k, v in result.items()}, indent=2))
    return 0 if all(ok for *_, ok in met) else 1


if __name__ == "__main__":
    sys.exit(main())
