"""Paired timing for the plugin's benches: what one piece of work costs in units of another.

A round runs A B B A (the next one B A A B), so that a drift of the machine's speed cancels; its ratio is the sum of
A's times over the sum of B's. Printed are the median of the rounds' ratios and an interval that holds the true median
with at least 95 % (order statistics, no assumption about the noise; below six rounds their whole range), in CPU time
of the process and in wall time. The garbage collector is off inside a round.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_PLUGINS": "logproof", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}  # fmt: skip
MODEL = os.environ.get("LOGPROOF_MODEL", str(Path.home() / ".cache" / "logproof" / "models" / "smollm2"))
PROMPT = list(range(300, 364))
QUIET = 0.7
"""Load average a core above which wall times mean little."""

Work = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds of one run."""

    wall: float
    cpu: float

    def __add__(self, other: Times) -> Times:
        return Times(self.wall + other.wall, self.cpu + other.cpu)


def timed(work: Work) -> Times:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Times(time.perf_counter() - wall, time.process_time() - cpu)


def rounds(one: Work, other: Work, count: int) -> list[tuple[Times, Times]]:
    """Times of both sides in each round; each side runs once before, unmeasured."""
    one()
    other()
    out: list[tuple[Times, Times]] = []
    for number in range(count):
        gc.collect()
        gc.disable()
        first, second = (one, other) if number % 2 else (other, one)
        a, b, c, d = timed(first), timed(second), timed(second), timed(first)
        gc.enable()
        outer, inner = a + d, b + c
        out.append((outer, inner) if number % 2 else (inner, outer))
    return out


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Bounds of the median by the binomial of how many values lie below it: at least 95 % from six values on."""
    ordered, count = sorted(values), len(values)
    tail, low = 0.0, 0
    while low < count // 2 and (tail := tail + math.comb(count, low) / 2**count) <= 0.025:
        low += 1
    low = max(low - 1, 0)
    return ordered[low], ordered[count - 1 - low]


def report(name: str, one: Work, other: Work, count: int) -> None:
    """Run the rounds and print one line for CPU time and one for wall time."""
    found = rounds(one, other, count)
    for kind in ("cpu", "wall"):
        ratios = [getattr(a, kind) / getattr(b, kind) for a, b in found]
        seconds = [statistics.median(getattr(side, kind) / 2 for side in sides) for sides in zip(*found, strict=True)]
        low, high = interval(ratios)
        middle = statistics.median(ratios)
        print(f"{name:46} {kind:4} {middle:7.3f} [{low:.3f}, {high:.3f}]  {count} rounds  "
              f"{seconds[0]:.2f} s / {seconds[1]:.2f} s", flush=True)  # fmt: skip


def note_load(when: str) -> None:
    """Say how busy the machine is, and when the wall times are to be left alone."""
    load = os.getloadavg()[0]
    busy = load > QUIET * (os.cpu_count() or 1) + 1
    print(f"load average {when}: {load:.1f} on {os.cpu_count()} cores{'; read the CPU times only' if busy else ''}")


def load(**changes: Any) -> Any:
    """An offline engine that proved the plugin: SmolLM2, float32, one thread."""
    os.environ |= ENVIRONMENT
    from vllm import LLM

    from logproof_vllm import canary
    from logproof_vllm.runtime import STATUS

    base: dict[str, Any] = {
        "dtype": "float32", "enforce_eager": True, "max_model_len": 1024, "max_logprobs": 100, "max_num_seqs": 32,
        "enable_prefix_caching": False,
    }  # fmt: skip
    llm = LLM(MODEL, **(base | changes))
    canary.run_offline(llm)
    reason = STATUS.refusal()
    if reason is not None:
        raise SystemExit(reason)
    return llm


def generate(llm: Any, count: int, tokens: int, prompt: Sequence[int] = PROMPT, **sampling: Any) -> Work:
    """`count` concurrent requests of `tokens` tokens, each after `prompt` and one id of its own."""
    from vllm import SamplingParams

    params = SamplingParams(**{"max_tokens": tokens, "ignore_eos": True, "detokenize": False, **sampling})
    prompts = [{"prompt_token_ids": [*prompt, i]} for i in range(count)]
    return lambda: llm.generate(prompts, params, use_tqdm=False)


def parser(text: str | None, count: int) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=count)
    return made
