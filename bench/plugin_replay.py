"""Two ways to verify a 200-token completion: enforced decode, and one prefill pass that scores prompt + completion.

    python bench/plugin_replay.py [--rounds 3]

Offline engine as in plugin_overhead.py. Printed is decode / prefill in wall and CPU time, for one request and for
eight at once. Enforced decode gives what prefill cannot: processed logprobs, grammar masks, the decode kernels'
own numbers.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import plugin_overhead as base

COMPLETION = [(i * 7919) % 40000 for i in range(200)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    llm = base.load()
    print(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for count in (1, 8):
        decode = base.generate(llm, count, len(COMPLETION), logprobs=5, extra_args={"enforced_token_ids": COMPLETION})
        base.report(f"{count} at once: enforced decode / prefill pass", decode, prefill(llm, count), options.rounds)


def prefill(llm: Any, count: int) -> base.Work:
    """One pass over prompt and completion that reports five logprobs a position."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=1, prompt_logprobs=5, detokenize=False)
    prompts = [{"prompt_token_ids": [*base.PROMPT, i, *COMPLETION]} for i in range(count)]
    return lambda: llm.generate(prompts, params, use_tqdm=False)


if __name__ == "__main__":
    main()
