"""What the plugin costs: plain requests with and without it, and enforced decode against plain decode.

    python bench/plugin_overhead.py [--pairs 15]

One engine in this process (SmolLM2, float32, CPU, one thread). The two sides of a pair run right after each other,
their order alternating; printed are the median of the pairs' ratios and their quartiles, in wall time and in CPU
time. Without the plugin means the stock sampler functions; the rows processor stays in the list.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_PLUGINS": "logproof", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}  # fmt: skip
MODEL = os.environ.get("LOGPROOF_MODEL", str(Path.home() / ".cache" / "logproof" / "models" / "smollm2"))
PROMPT = list(range(300, 364))
Work = Callable[[], None]


def load() -> Any:
    """An offline engine that proved the plugin."""
    from vllm import LLM

    from logproof_vllm import canary
    from logproof_vllm.runtime import STATUS

    llm = LLM(MODEL, dtype="float32", enforce_eager=True, max_model_len=1024, max_logprobs=100, max_num_seqs=32)
    canary.run_offline(llm)
    reason = STATUS.refusal()
    if reason is not None:
        raise SystemExit(reason)
    return llm


def generate(llm: Any, count: int, tokens: int, **sampling: Any) -> Work:
    """`count` concurrent requests of `tokens` tokens."""
    from vllm import SamplingParams

    params = SamplingParams(**{"max_tokens": tokens, "ignore_eos": True, "detokenize": False, **sampling})
    prompts = [{"prompt_token_ids": [*PROMPT, i]} for i in range(count)]
    return lambda: llm.generate(prompts, params, use_tqdm=False)


def stock(work: Work) -> Work:
    """`work` with the stock sampler functions."""
    from vllm.v1.sample.sampler import Sampler

    def run() -> None:
        hooked = Sampler.forward, Sampler.sample
        Sampler.forward, Sampler.sample = (function.__wrapped__ for function in hooked)
        try:
            work()
        finally:
            Sampler.forward, Sampler.sample = hooked

    return run


def timed(work: Work) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def ratios(one: Work, other: Work, pairs: int) -> tuple[list[float], list[float]]:
    """one / other for each pair: wall, CPU."""
    one(), other()
    wall: list[float] = []
    cpu: list[float] = []
    for pair in range(pairs):
        first, second = (timed(one), timed(other)) if pair % 2 else reversed((timed(other), timed(one)))
        wall.append(first[0] / second[0])
        cpu.append(first[1] / second[1])
    return wall, cpu


def line(name: str, values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{name:58} {middle:7.3f}   quartiles {low:.3f} to {high:.3f}   {len(values)} pairs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=16)
    options = parser.parse_args()
    llm = load()
    print(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    greedy: dict[str, Any] = {"temperature": 0.0}
    random_: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "logprobs": 5}
    scored: dict[str, Any] = {"temperature": 1.0, "logprobs": 5}
    for name, sampling in (("8 greedy", greedy), ("8 random, top_p, logprobs 5", random_)):
        work = generate(llm, 8, options.tokens, **sampling)
        report(f"plain, {name}: with / without the plugin", work, stock(work), options.pairs)
    ids = [(i * 7919) % 40000 for i in range(options.tokens)]
    enforced = generate(llm, 8, options.tokens, **scored, extra_args={"enforced_token_ids": ids})
    plain = generate(llm, 8, options.tokens, **scored)
    report("8 enforced / 8 plain, logprobs 5", enforced, plain, options.pairs)


def report(name: str, one: Work, other: Work, pairs: int) -> None:
    wall, cpu = ratios(one, other, pairs)
    print(line(f"{name}, wall time", wall))
    print(line(f"{name}, CPU time", cpu))


if __name__ == "__main__":
    main()
