"""One engine in one process: draws completions and scores given ones, in batches, into .npz files.

Run as `python worker.py TASKS.json` by run.py. vLLM's own classes are used without a server, which gives the most
sequences a CPU minute; sampler and model code are those that a server runs. A task whose file exists is skipped, so a
stopped run continues.

Files: ids int32 [n, l, 1 + k] and logprobs float32 [n, l, 1 + k] (entry 0 of a position is the token itself, then the k
best) and tokens int32 [n, l].
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.update(
    OMP_NUM_THREADS="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    VLLM_CPU_KVCACHE_SPACE="2",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_PLUGINS="",
    VLLM_LOGGING_LEVEL="ERROR",
)

import msgspec
import numpy as np
from numpy.typing import NDArray
from vllm import LLM, SamplingParams

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


class Draw(msgspec.Struct, frozen=True, tag="draw"):
    """Completions of `length` tokens for each prompt. together: requests in flight. ban: ids that may not be drawn."""

    out: str
    prompts: tuple[tuple[int, ...], ...]
    seeds: tuple[int, ...]
    length: int
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    together: int = 128
    width: int = 20
    ban: tuple[int, ...] = ()


class Score(msgspec.Struct, frozen=True, tag="score"):
    """What the model says about the tokens of another file's rows after these prompts, by prefill."""

    out: str
    prompts: tuple[tuple[int, ...], ...]
    tokens: str
    width: int = 64


class Tasks(msgspec.Struct, frozen=True):
    """Everything one engine shall do."""

    model: str
    dtype: str
    tasks: tuple[Draw | Score, ...]


def main(path: str) -> None:
    """Do the tasks that are not done yet."""
    given = msgspec.json.decode(Path(path).read_bytes(), type=Tasks)
    left = [t for t in given.tasks if not Path(t.out).exists()]
    if not left:
        return
    engine = LLM(
        model=given.model,
        dtype=given.dtype,
        enforce_eager=True,
        max_model_len=1024,
        max_logprobs=100,
        enable_prefix_caching=False,
        disable_log_stats=True,
        max_num_seqs=128,
        max_num_batched_tokens=8192,
        enable_chunked_prefill=False,  # a CPU generator cannot go back, which a seeded request in chunks would need
    )
    for together, draws in _batches([t for t in left if isinstance(t, Draw)]):
        _draw(engine, draws, together)
    for task in left:
        if isinstance(task, Score):
            _score(engine, task)


def _batches(draws: list[Draw]) -> list[tuple[int, list[Draw]]]:
    """Draws that share their number of requests in flight, so that small ones fill a batch together."""
    return [(n, [d for d in draws if d.together == n]) for n in sorted({d.together for d in draws}, reverse=True)]


def _draw(engine: LLM, tasks: list[Draw], together: int) -> None:
    asked = [(t, p, _sampling(t, seed)) for t in tasks for p, seed in zip(t.prompts, t.seeds, strict=True)]
    found: dict[str, list[tuple[Ints, Floats]]] = {t.out: [] for t in tasks}
    for start in range(0, len(asked), together):
        wall, cpu = time.monotonic(), time.process_time()
        some = asked[start : start + together]
        prompts = [{"prompt_token_ids": list(p)} for _, p, _ in some]
        for (task, _, _), done in zip(
            some, engine.generate(prompts, [s for *_, s in some], use_tqdm=False), strict=True
        ):
            found[task.out].append(_rows(done.outputs[0].logprobs, 0, task.width))
        for task in {t.out: t for t, *_ in some}.values():
            if len(found[task.out]) == len(task.prompts):
                _save(Path(task.out), found.pop(task.out))
        _told(f"{len(some)} drawn together", wall, cpu)


def _sampling(task: Draw, seed: int) -> SamplingParams:
    return SamplingParams(
        temperature=task.temperature,
        top_k=task.top_k if task.temperature > 0 else 0,
        top_p=task.top_p,
        seed=seed,
        max_tokens=task.length,
        ignore_eos=True,
        logprobs=task.width,
        flat_logprobs=True,
        detokenize=False,
        logit_bias=dict.fromkeys(task.ban, -100.0) or None,
    )


def _told(what: str, wall: float, cpu: float) -> None:
    print(f"{what}: {time.monotonic() - wall:.0f} s, {time.process_time() - cpu:.0f} s of CPU", flush=True)


def _score(engine: LLM, task: Score) -> None:
    wall, cpu = time.monotonic(), time.process_time()
    with np.load(task.tokens) as file:
        tokens = file["tokens"]
    whole = [{"prompt_token_ids": [*p, *t.tolist()]} for p, t in zip(task.prompts, tokens, strict=True)]
    asked = SamplingParams(
        temperature=0.0, max_tokens=1, prompt_logprobs=task.width, flat_logprobs=True, detokenize=False
    )
    parts = [
        _rows(done.prompt_logprobs, len(prompt), task.width)
        for prompt, done in zip(task.prompts, engine.generate(whole, asked, use_tqdm=False), strict=True)
    ]
    _save(Path(task.out), parts)
    _told(f"{len(parts)} scored", wall, cpu)


def _rows(flat: object, start: int, width: int) -> tuple[Ints, Floats]:
    """Positions from `start` on, as [l, 1 + width]."""
    begin, end = np.asarray(flat.start_indices[start:]), np.asarray(flat.end_indices[start:])
    if not (end - begin == 1 + width).all():
        raise RuntimeError(f"the engine gave rows of {sorted(set((end - begin).tolist()))} entries, not {1 + width}")
    ids = np.asarray(flat.token_ids[begin[0] : end[-1]], np.int32).reshape(len(begin), 1 + width)
    return ids, np.asarray(flat.logprobs[begin[0] : end[-1]], np.float32).reshape(len(begin), 1 + width)


def _save(path: Path, parts: list[tuple[Ints, Floats]]) -> None:
    ids, logprobs = np.stack([p[0] for p in parts]), np.stack([p[1] for p in parts])
    part = path.with_suffix(".part.npz")
    np.savez(part, ids=ids, logprobs=logprobs, tokens=ids[:, :, 0])
    part.rename(path)


if __name__ == "__main__":
    main(sys.argv[1])
