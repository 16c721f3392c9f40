"""Two ways to verify a 200-token completion: enforced decode, and one prefill pass that scores prompt + completion.

    python bench/plugin_replay.py [--rounds 2]

Engine and rounds as in plugin_paired.py; decode / prefill, for one request and for eight at once. Enforced decode
gives what prefill cannot: processed logprobs, grammar masks, the decode kernels' own numbers.
"""

from __future__ import annotations

from typing import Any

from plugin_paired import PROMPT, Work, generate, load, note_load, parser, report

LENGTH = 200


def prefill(llm: Any, count: int, ids: list[int]) -> Work:
    """One pass over prompt and completion that reports five logprobs a position."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=1, prompt_logprobs=5, detokenize=False)
    prompts = [{"prompt_token_ids": [*PROMPT, i, *ids]} for i in range(count)]
    return lambda: llm.generate(prompts, params, use_tqdm=False)


def main() -> None:
    options = parser(__doc__, 2)
    options.add_argument("--length", type=int, default=LENGTH, help="tokens of the completion")
    given = options.parse_args()
    ids = [(i * 7919) % 40000 for i in range(given.length)]
    llm = load()
    note_load("at the start")
    for count in (1, 8):
        decode = generate(llm, count, len(ids), logprobs=5, extra_args={"enforced_token_ids": ids})
        report(f"{count} at once: enforced decode / prefill", decode, prefill(llm, count, ids), given.rounds)
    note_load("at the end")


if __name__ == "__main__":
    main()
