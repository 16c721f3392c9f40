"""The start-up canary: a few random ids through the whole chain before any enforced request is served.

It proves API server, engine core and worker together, so it catches what no check of signatures can: workers without
the plugin, another runner, a platform's own sampler. The list holds an EOS in its middle; one more token than the
list is asked for. Good when the ids come back, exactly one more token follows, and every logprob is finite.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Sequence
from typing import Any

from logproof_vllm import canonical
from logproof_vllm.runtime import PASSED, STATUS, binding_of

LENGTH = 4
TAG = secrets.token_hex(16)
"""A random mark that only this process knows: lets the canary through before the plugin is declared good."""


def pick(size: int, eos: int | None, source: random.Random) -> list[int]:
    """Random ids in [0, size) with the EOS in second place."""
    ids = [source.randrange(size) for _ in range(LENGTH)]
    if eos is not None and eos < size:
        ids[1] = eos
    return ids


def verdict(ids: Sequence[int], got: Sequence[int], logprobs: Sequence[float]) -> str:
    """:data:`PASSED`, or what was wrong."""
    if list(got[: len(ids)]) != list(ids):
        return f"asked for ids {list(ids)}, got {list(got)}: the engine did not enforce them"
    if len(got) != len(ids) + 1:
        return f"{len(got) - len(ids)} tokens followed the list instead of one"
    if len(logprobs) != len(got) or not all(math.isfinite(value) and value <= 0 for value in logprobs):
        return f"logprobs {list(logprobs)} are not {len(got)} finite values"
    return PASSED


def _request(config: Any, tokenizer: Any) -> tuple[list[int], Any, list[int]]:
    """Prompt ids, sampling parameters and enforced ids of one canary."""
    from vllm import SamplingParams

    binding = binding_of(config, tokenizer)
    vocabulary = binding.vocabulary
    ids = pick(vocabulary.size, vocabulary.eos, random.Random())  # noqa: S311
    entry = canonical.entry_of(ids, None, TAG)
    params = SamplingParams(
        max_tokens=LENGTH + 1, temperature=1.0, logprobs=1, detokenize=False, extra_args={canonical.KEY: entry}
    )
    return [ids[0]], params, ids


def _conclude(ids: Sequence[int], output: Any) -> None:
    got = list(output.token_ids)
    values = [step[token].logprob for step, token in zip(output.logprobs or [], got, strict=False)]
    STATUS.canary = verdict(ids, got, values)
    STATUS.canary_details = {"enforced": list(ids), "returned": got}


async def run(engine: Any, tokenizer: Any) -> None:
    """Run against an ``AsyncLLM`` and write the result into the status. Raises nothing for a failed canary."""
    try:
        prompt, params, ids = _request(engine.vllm_config, tokenizer)
        last = None
        async for reply in engine.generate({"prompt_token_ids": prompt}, params, "logproof-canary"):
            last = reply
        if last is None:
            raise RuntimeError("the engine gave no reply")
        _conclude(ids, last.outputs[0])
    except Exception as error:
        STATUS.canary = f"{type(error).__name__}: {error}"


def run_offline(llm: Any) -> None:
    """Run against an offline ``LLM``; its enforced requests are refused until this passed. Raises nothing either."""
    try:
        prompt, params, ids = _request(llm.llm_engine.vllm_config, llm.get_tokenizer())
        replies = llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
        _conclude(ids, replies[0].outputs[0])
    except Exception as error:
        STATUS.canary = f"{type(error).__name__}: {error}"
