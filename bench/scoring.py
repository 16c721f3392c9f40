"""Client CPU and throughput on recorded replies, against two floors and lm-evaluation-harness, interleaved.

    python bench/scoring.py [--rounds 9] [--judge .venv-judge/bin/python] [--json FILE]

An instant server (replay_server.py) leaves only the client's time. Clients, each in a process of its own: `floor`
(raw sockets and a typed decode), `aiohttp` (bare, with the same decode), `logproof` (its Client with every check),
`lm-eval` (`local-completions` with its own requests for the same question, see scoring_lm_eval.py). Figures are
medians of CPU milliseconds a sample, ratios medians of each round's own ratio: what is compared ran within seconds.
CPU ratios hold on a loaded machine, requests/s do not.
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
    "ids": "800 positions, prompt as ids",
    "labels": "4 labels, one token",
    "generate": "256 tokens, top 5",
    "wide": "800 positions, top 20 (1.2 MB)",
}
CELLS = {
    ("score", 1): 60,
    ("score", 32): 192,
    ("ids", 32): 192,
    ("score", 128): 384,
    ("labels", 1): 100,
    ("labels", 32): 320,
    ("labels", 128): 640,
    ("generate", 1): 60,
    ("generate", 32): 160,
    ("generate", 128): 384,
    ("wide", 1): 16,
    ("wide", 32): 32,
}
"""(kind, concurrency) -> samples a round. What a claim compares stands side by side."""

JUDGED = {"score": 64, "labels": 32, "generate": 64}
"""kind -> samples a round of lm-eval, which is slow; at concurrency 1 a quarter of them, at 128 twice as many."""

AIMS = (
    ("scoring at 32: CPU, logproof / bare aiohttp", ("score/logproof/32", "score/aiohttp/32"), 1.35),
    ("scoring at 32: CPU, logproof / raw floor", ("score/logproof/32", "score/floor/32"), 2.0),
    ("scoring: CPU at 128 / at 1", ("score/logproof/128", "score/logproof/1"), 1.2),
    ("scoring at 32: CPU, prompt as ids / text", ("ids/logproof/32", "score/logproof/32"), 1.15),
    ("1.2 MB reply at 32: CPU, logproof / raw floor", ("wide/logproof/32", "wide/floor/32"), 1.62),
    ("1.2 MB reply at 32: CPU, logproof / bare aiohttp", ("wide/logproof/32", "wide/aiohttp/32"), 1.38),
)
"""(claim, the two figures, the most that their ratio may be). The aim for the large reply was set as 5.5 ms where the
floor took 3.4 and bare aiohttp 4.0, at 32."""

AIM_JUDGE = 10.0
"""How many times logproof's CPU lm-eval should take for a scored prompt, at least."""

Rounds = dict[str, list[float]]
"""kind/client/concurrency -> CPU milliseconds a sample, one a round."""

Claim = tuple[str, float, str, bool]
"""claim, measured, aim, met."""


class Worker:
    """A client process that runs one round a line."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def round(self, kind: str, count: int, concurrency: int) -> float:
        """CPU ms a sample."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([kind, count, concurrency]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} ended: run it by hand to see why")
        return float(json.loads(line)["cpu"]) / count * 1e3

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


def samples(name: str, kind: str, concurrency: int) -> int:
    """Samples of a client's round, 0 where it has none."""
    if name != "lm-eval":
        return CELLS[kind, concurrency]
    return JUDGED.get(kind, 0) * {1: 1, 32: 4, 128: 8}[concurrency] // 4


def measure(found: dict[str, Worker], count: int) -> Rounds:
    """`count` interleaved rounds after one that warms up."""
    taken: Rounds = {}
    for turn in range(count + 1):
        for kind, concurrency in CELLS:
            for name, worker in found.items():
                number = samples(name, kind, concurrency) // (1 if turn else 4)
                if number:
                    cpu = worker.round(kind, number, concurrency)
                    taken.setdefault(f"{kind}/{name}/{concurrency}", []).extend([cpu] if turn else [])
    return taken


def ratio(taken: Rounds, over: str, under: str) -> float:
    """Median of the rounds' ratios of two figures."""
    return statistics.median(a / b for a, b in zip(taken[over], taken[under], strict=True))


def table(taken: Rounds) -> list[str]:
    """Markdown lines: CPU ms a sample, and what logproof costs beside each peer."""
    lines = [
        "| request | concurrency | floor | aiohttp | logproof | lm-eval | logproof/floor | logproof/aiohttp "
        "| lm-eval/logproof |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, concurrency in CELLS:
        key = {name: f"{kind}/{name}/{concurrency}" for name in (*OURS, "lm-eval")}
        judged = key["lm-eval"] in taken
        cells = [f"{statistics.median(taken[k]):.2f}" if k in taken else "" for k in key.values()]
        cells += [f"{ratio(taken, key['logproof'], key[peer]):.2f}" for peer in ("floor", "aiohttp")]
        cells += [f"{ratio(taken, key['lm-eval'], key['logproof']):.1f}" if judged else ""]
        lines.append("| " + " | ".join([KINDS[kind], str(concurrency), *cells]) + " |")
    return lines


def claims(taken: Rounds) -> list[Claim]:
    """What is claimed of the rounds; of lm-eval only where it was measured."""
    found = [(name, value := ratio(taken, *keys), f"at most {aim:g}", value <= aim) for name, keys, aim in AIMS]
    if "score/lm-eval/32" in taken:
        value = ratio(taken, "score/lm-eval/32", "score/logproof/32")
        found.append(("scoring at 32: CPU, lm-eval / logproof", value, f"at least {AIM_JUDGE:g}", value >= AIM_JUDGE))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--judge", default=".venv-judge/bin/python", help="interpreter that has lm_eval")
    parser.add_argument("--tokenizer", default=str(models_dir() / "smollm2"), help="directory of the tokenizer")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    judge = args.judge if Path(args.judge).exists() else None
    with workers(judge, args.tokenizer) as found:
        taken = measure(found, args.rounds)
    print("CPU ms a sample, medians\n")
    print("\n".join(table(taken)))
    if judge is None:
        print("\nlm-eval was not measured: `make judge` builds its environment")
    made = claims(taken)
    print("\n| claim | measured | aim | |\n|---|---|---|---|")
    for name, value, aim, ok in made:
        print(f"| {name} | {value:.2f} | {aim} | {'met' if ok else 'not met'} |")
    if args.json:
        args.json.write_text(json.dumps({"claims": made, "rounds": taken}, indent=2))
    return 0 if all(ok for *_, ok in made) else 1


if __name__ == "__main__":
    sys.exit(main())
