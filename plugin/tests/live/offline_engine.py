"""One engine inside this process, with or without the plugin; what it did goes to a JSON file.

    python offline_engine.py stock|plugin OUT

One thread, float32, no multiprocessing, every grammar compiled before its request is queued: the batch of each step is
the same in both runs, so rows that do not use the plugin can be compared bit by bit. The cache is too small for all
requests of the second scene, and a step takes fewer tokens than one prompt has: they are preempted and prefilled in
pieces. Floats are written as hexadecimal.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

WITH_PLUGIN = sys.argv[1] == "plugin"
os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_PLUGINS": "logproof" if WITH_PLUGIN else "", "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "ERROR",
}  # fmt: skip

import torch  # noqa: E402
from plugin_engine import MODEL  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.sampling_params import StructuredOutputsParams  # noqa: E402

STEPS = 12
LONG = [[500 + row, *(300 + (row * 37 + i) % 900 for i in range(119))] for row in range(8)]
IDS = [[(row * 131 + i * 7919) % 40000 for i in range(24)] for row in range(8)]
DIGITS = "[0-9]{40}"


def load(**changes: Any) -> Any:
    base: dict[str, Any] = {
        "dtype": "float32", "enforce_eager": True, "max_model_len": 512, "max_logprobs": 100, "max_num_seqs": 16,
        "num_gpu_blocks_override": 10, "max_num_batched_tokens": 64, "disable_log_stats": False,
    }  # fmt: skip
    llm = LLM(MODEL, **(base | changes))
    llm.llm_engine.engine_core.engine_core.structured_output_manager._use_async_grammar_compilation = False
    if WITH_PLUGIN:
        from logproof_vllm import canary
        from logproof_vllm.runtime import STATUS

        canary.run_offline(llm)
        assert llm.llm_engine.vllm_config.speculative_config or STATUS.refusal() is None, STATUS.refusal()
    return llm


def sampling(**values: Any) -> Any:
    grammar = values.pop("regex", None)
    ids, mode = values.pop("ids", None), values.pop("mode", None)
    extra = {"enforced_token_ids": ids, "logprobs_mode": mode} if WITH_PLUGIN else {}
    return SamplingParams(
        **{"max_tokens": STEPS, "ignore_eos": True, "logprobs": 3, **values},
        structured_outputs=StructuredOutputsParams(regex=grammar) if grammar else None,
        extra_args={name: value for name, value in extra.items() if value is not None} or None,
    )


ORDINARY: list[dict[str, Any]] = [
    {"temperature": 0.0}, {"seed": 7, "top_p": 0.9, "top_k": 20}, {"temperature": 0.0, "regex": DIGITS},
    {"temperature": 0.8, "min_p": 0.05, "repetition_penalty": 1.3},
]  # fmt: skip
SPECIAL: list[dict[str, Any]] = [
    {"ids": [100, 2, 30000, 17, 4000, 45000, 6, 1], "mode": "raw_logprobs"},
    {"ids": [100, 2, 30000, 17, 4000, 45000, 6, 1], "mode": "processed_logprobs", "top_k": 5},
    {"seed": 5, "top_p": 0.8, "mode": "processed_logprobs"},
    {"ids": [5, 6, 7], "regex": DIGITS},
]  # fmt: skip


def told(output: Any) -> dict[str, Any]:
    """Everything a reply is made of, bit for bit."""
    one = output.outputs[0]
    rows = [[[i, float(v.logprob).hex(), v.rank, v.decoded_token] for i, v in step.items()] for step in one.logprobs]
    return {"ids": list(one.token_ids), "text": one.text, "logprobs": rows, "finish": one.finish_reason}


def run(llm: Any, prompts: list[list[int]], params: list[Any]) -> dict[str, Any]:
    """Replies in order, and the number of tokens of each request in each step."""
    steps: list[list[int]] = []
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    schedule = scheduler.schedule

    def counted(*args: Any, **kwargs: Any) -> Any:
        made = schedule(*args, **kwargs)
        steps.append(list(made.num_scheduled_tokens.values()))
        return made

    scheduler.schedule = counted
    torch.manual_seed(0)
    try:
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
    finally:
        scheduler.schedule = schedule
    return {"replies": [told(output) for output in outputs], "steps": steps}


def mixed(llm: Any) -> dict[str, Any]:
    """Four ordinary requests beside four of the plugin's; without the plugin those four are ordinary too."""
    return run(llm, [[504, 3575, 282 + row] for row in range(8)], [sampling(**one) for one in (*ORDINARY, *SPECIAL)])


def pressed(llm: Any) -> dict[str, Any]:
    """Eight long prompts in a cache for four; then the same ids scored by prefill."""
    before = preemptions(llm)
    modes = [None, None, "processed_logprobs", None, None, None, "raw_logprobs", None]
    params = [sampling(ids=ids, mode=mode, max_tokens=len(ids) + 2) for ids, mode in zip(IDS, modes, strict=True)]
    found = run(llm, LONG, params)
    count = preemptions(llm) - before
    score = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0.0)
    scored = llm.generate(
        [{"prompt_token_ids": [*prompt, *ids]} for prompt, ids in zip(LONG, IDS, strict=True)], score, use_tqdm=False
    )
    values = [
        [row[i].logprob for row, i in zip(one.prompt_logprobs[len(LONG[0]) :], ids, strict=True)]
        for one, ids in zip(scored, IDS, strict=True)
    ]
    return {**found, "preemptions": count, "prefill": values, "enforced": IDS, "modes": modes}


def preemptions(llm: Any) -> int:
    return sum(int(metric.value) for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions")


def speculative() -> dict[str, Any]:
    """Drafts from the prompt's own n-grams: ordinary requests, and what the plugin says to its own.

    Greedy ones only: on the CPU vLLM's rejection sampler gives sampled requests other tokens each run, seeded or not.
    """
    llm = load(speculative_config={"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2})
    repeat = [[504, 3575, 282 + row] * 6 for row in range(3)]
    found = run(llm, repeat, [sampling(temperature=0.0)] * 3)
    refused: list[str] = []
    for asked in ({"ids": [5]}, {"mode": "processed_logprobs"}) if WITH_PLUGIN else ():
        try:
            llm.generate([{"prompt_token_ids": [1]}], sampling(**asked), use_tqdm=False)
        except Exception as error:
            refused.append(f"{type(error).__name__}: {error}")
    return {**found, "refused": refused}


def main() -> None:
    llm = load()
    found = {"mixed": mixed(llm)}
    if WITH_PLUGIN:
        found["pressed"] = pressed(llm)
    del llm
    from vllm.distributed import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()
    found["speculative"] = speculative()
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
