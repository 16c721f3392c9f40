"""All benches one after the other, and one Markdown table of what they claim: python bench/run.py [--model URL]

Without --model an engine is started (SmolLM2, float32) for the benches that need one, and stopped at the end. The
table and every script's own output go to bench/results/bench.md; the table is printed too. Ends with 1 where an aim
is not met or a script fails. About 12 minutes on a quiet machine with two cores. Not among them, since they measure no
speed or take an engine of their own: kill_run.py, fault_run.py, judge_lm_eval.py and plugin_*.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
LOGPROOF = str(Path(sys.executable).with_name("logproof"))
TIME_LIMIT_S = 600

Row = tuple[str, str, str, bool]
"""claim, measured, aim, met."""


def scoring(found: dict[str, Any]) -> list[Row]:
    return [(claim, f"{value:,.2f}", aim, met) for claim, value, aim, met in found["claims"]]


def memory(found: dict[str, dict[str, Any]]) -> list[Row]:
    rows = found["rows"]
    peaks = [figures["peak"] for figures in rows.values()]
    sizes = " and ".join(f"{int(n):,}" for n in rows)
    return [
        at_most(f"memory: peak at {sizes} rows, larger / smaller", max(peaks) / min(peaks), 1.1),
        at_most("memory: peak MB", max(peaks), 400.0),
        ("memory: samples/s of the most rows", f"{list(rows.values())[-1]['rate']:,.0f}", "", True),
        at_most("resume: a whole run with 100,000 done, s", found["resume"]["seconds"], 5.0),
    ]


def store(found: dict[str, float]) -> list[Row]:
    return [
        at_least("store: records/s", found["store"], 5000.0),
        at_most("store: longest wait until durable, s", found["longest"], 0.1),
        at_most("store: open, and read 100,000 done keys, s", found["resume"], 5.0),
    ]


def end_to_end(found: dict[str, dict[str, float]]) -> list[Row]:
    ours, peer = found["logproof"], found["lm-eval"]
    busy = f"{ours['busy']:.0%} and {peer['busy']:.0%}"
    return [
        ("end to end: wall, lm-eval / logproof", f"{peer['seconds'] / ours['seconds']:.2f}", "", True),
        ("end to end: engine busy, logproof and lm-eval", busy, "", True),
    ]


def at_most(claim: str, value: float, aim: float) -> Row:
    return claim, f"{value:,.2f}", f"at most {aim:g}", value <= aim


def at_least(claim: str, value: float, aim: float) -> Row:
    return claim, f"{value:,.2f}", f"at least {aim:g}", value >= aim


FIGURES: dict[str, Callable[..., list[Row]]] = {
    "scoring": scoring,
    "memory": memory,
    "store_speed": store,
    "end_to_end": end_to_end,
}
"""Scripts that write their figures as JSON, and the rows of the table that these make."""

SMOKE = {
    "scoring": ["--rounds", "1"],
    "memory": ["--rows", "200", "400", "--resume", "500"],
    "store_speed": ["--records", "500", "--rounds", "1", "--done", "1000"],
    "end_to_end": ["--limit", "1", "--rounds", "1"],
}
"""Sizes that show that a script runs, and nothing else."""

OTHERS = ("proxy_overhead", "verify_statistics")
"""Scripts whose own words stand in the results; the table says how they ended."""


def run(name: str, options: list[str]) -> tuple[list[Row], str]:
    """Rows and output of one script."""
    figures = RESULTS / f"{name}.json"
    figures.unlink(missing_ok=True)
    written = ["--json", str(figures)] if name in FIGURES else []
    start = time.monotonic()
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py"), *options, *written],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=TIME_LIMIT_S,
        )
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        code, output = -1, f"stopped after {TIME_LIMIT_S} s\n"
    took = f"{time.monotonic() - start:.0f} s"
    if figures.exists():
        return FIGURES[name](json.loads(figures.read_text())), output
    return [(f"{name}: see below", took, "ends with 0", code == 0)], output


@contextmanager
def engine(url: str | None) -> Iterator[str]:
    """The engine at a URL, or one of our own while the context lasts."""
    if url is not None:
        yield url
        return
    name = f"bench-{os.getpid()}"
    start = [LOGPROOF, "engine", "start", "smollm2", "--name", name, "--dtype", "float32"]
    subprocess.run(start, check=True, stdout=sys.stderr)
    try:
        listed = subprocess.run([LOGPROOF, "engine", "list", "--json"], check=True, stdout=subprocess.PIPE, text=True)
        yield next(e["url"] for e in json.loads(listed.stdout) if e["name"] == name)
    finally:
        subprocess.run([LOGPROOF, "engine", "stop", name], check=False, stdout=sys.stderr)


def report(rows: list[Row]) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load} at the end.", ""]
    lines += ["| claim | measured | aim | |", "|---|---|---|---|"]
    lines += [f"| {claim} | {value} | {aim} | {'met' if met else 'not met'} |" for claim, value, aim, met in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="URL", help="a running engine that nobody else uses")
    parser.add_argument("--judge", default=".venv-judge/bin/python", help="interpreter that has lm_eval")
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", help="run these alone")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes: figures without meaning")
    args = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    judge = ["--judge", args.judge]
    wanted = args.only or [*FIGURES, *OTHERS]
    options = {"scoring": judge, "memory": [], "store_speed": ["--dir", str(RESULTS)]}
    smoke = SMOKE if args.smoke else {}
    rows: list[Row] = []
    outputs: dict[str, str] = {}
    for name in [n for n in wanted if n != "end_to_end"]:
        made, outputs[name] = run(name, [*options.get(name, []), *smoke.get(name, [])])
        rows += made
    if "end_to_end" in wanted:
        with engine(args.model) as url:
            made, outputs["end_to_end"] = run("end_to_end", ["--model", url, *judge, *smoke.get("end_to_end", [])])
        rows += made
    table = report(rows)
    parts = [f"## {name}\n\n{output.strip()}\n" for name, output in outputs.items()]
    (RESULTS / "bench.md").write_text("\n".join([table, *parts]))
    print(table)
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
