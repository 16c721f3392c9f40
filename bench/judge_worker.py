"""Runs lm-evaluation-harness's `local-completions` on (context, continuation) pairs; its own environment.

    python bench/judge_worker.py BASE_URL SERVED_NAME TOKENIZER_DIR [CONCURRENCY] < pairs.json > sums.json

Reads a JSON list of [context, continuation]; writes a JSON object {"sums": [...], "started": when scoring
began on the clock of `time.perf_counter`, "seconds": wall time of scoring}.
"""

from __future__ import annotations

import json
import sys
import time

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI


def main(base_url: str, name: str, tokenizer: str, concurrency: str = "1") -> None:
    pairs = json.load(sys.stdin)
    model = LocalCompletionsAPI(
        base_url=f"{base_url}/v1/completions",
        model=name,
        tokenizer=tokenizer,
        tokenizer_backend="huggingface",
        num_concurrent=int(concurrency),
        max_length=2048,
    )
    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=(context, continuation), idx=i)
        for i, (context, continuation) in enumerate(pairs)
    ]
    started = time.perf_counter()
    results = model.loglikelihood(requests, disable_tqdm=True)
    seconds = time.perf_counter() - started
    json.dump({"sums": [float(total) for total, _ in results], "started": started, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
