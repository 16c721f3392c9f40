"""lm-evaluation-harness's `local-completions` as a worker of bench/scoring.py, in an environment of its own.

    python bench/scoring_lm_eval.py PORT TOKENIZER_DIR < rounds > figures

Asks what it asks for the same question: one echoed loglikelihood for a scored prompt, four for four labels (one
an option), `generate_until` for a generation, which brings no logprobs. See scoring_clients.py for the lines.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

REPLIES = Path(__file__).with_name("replies")


def instances(kind: str, count: int) -> list[Instance]:
    """The requests of `count` samples; a number in front keeps them distinct."""
    found = []
    for i in range(count):
        if kind == "score":
            words = (REPLIES / "score.txt").read_text().split(" ")
            arguments = [(" ".join(words[:760]), " " + " ".join(words[760:]))]
        elif kind == "labels":
            question = (REPLIES / "labels.txt").read_text()
            arguments = [(question, f" {letter}") for letter in "ABCD"]
        else:
            story = "Once upon a time there was a small harbour town, and"
            arguments = [(story, {"until": [], "max_gen_toks": 256})]
        found += [
            Instance(
                request_type="generate_until" if kind == "generate" else "loglikelihood", doc={}, arguments=a, idx=i
            )
            for a in arguments
        ]
    return found


def run(port: str, tokenizer: str, kind: str, count: int, concurrency: int) -> dict[str, float]:
    reply = {"score": "echo", "labels": "echo_short", "generate": "plain"}[kind]
    model = LocalCompletionsAPI(
        base_url=f"http://127.0.0.1:{port}/{reply}/v1/completions",
        model="smollm2",
        tokenizer=tokenizer,
        tokenizer_backend="huggingface",
        num_concurrent=concurrency,
        max_length=2048,
    )
    asked = instances(kind, count)
    wall, cpu = time.perf_counter(), time.process_time()
    (model.generate_until if kind == "generate" else model.loglikelihood)(asked, disable_tqdm=True)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def main(port: str, tokenizer: str) -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        kind, count, concurrency = json.loads(line)
        print(json.dumps(run(port, tokenizer, kind, count, concurrency)), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
