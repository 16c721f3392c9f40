"""A fake vLLM made of recordings: what the probe asks, the two completions wires, and the tokenizer routes."""

from __future__ import annotations

import json
from typing import Any

from dialects.wires import REPLIES, load
from fakes.server import FakeServer, Reply, Seen

ROUTE = "/v1/completions"


def answer(seen: Seen) -> Reply:
    """The recorded reply that fits the body: scoring, echo, labels or a sample."""
    body = seen.json()
    if body.get("logprobs") == 1_000_000:
        return Reply(400, json={"error": {"message": "greater than max allowed: 100"}})
    if body.get("logit_bias") == {"2000000000": 1}:
        return Reply(400, json={"error": {"message": "Vocabulary size: 49152"}})
    if body.get("top_k") == 1:
        return Reply(json=load("vllm_native", "comp_lp0_ids").json())
    if "prompt_logprobs" in body:
        return Reply(json=load("vllm_native", f"comp_score_en_pl{body['prompt_logprobs']}_ids").json())
    if body.get("echo"):
        return Reply(json=load("openai_completions", "comp_echo_en_lp0").json())
    if body.get("stream"):
        return Reply(body=load("openai_completions", "comp_stream_lp3_ids").body, headers=STREAM)
    if "structured_outputs" in body:
        return Reply(json=load("vllm_native", "comp_so_json").json())
    return Reply(json=load("vllm_native", "comp_as_ids_lp3_rti").json())


STREAM = {"content-type": "text/event-stream"}


FIRST = {504: "The"}
"""Texts of the ids with which the recorded prompts begin."""


def detokenize(seen: Seen) -> dict[str, Any]:
    """A text for each id."""
    return {"prompt": "".join(FIRST.get(i, f"<{i}>") for i in seen.json()["tokens"])}


def vllm(server: FakeServer, *, models: tuple[str, ...] = ("smollm2",)) -> FakeServer:
    """Serve everything of a vLLM that serves these names."""
    known = json.loads((REPLIES / "probe" / "vllm.json").read_text(encoding="utf-8"))
    entry = known["/v1/models"]["data"][0]
    known["/v1/models"]["data"] = [{**entry, "id": name} for name in models]
    for path, found in known.items():
        server.on(path, found)
    server.on(ROUTE, answer)
    server.on("/detokenize", detokenize)
    server.on("/tokenize", {"tokens": [504]})
    return server


def sent(server: FakeServer) -> list[dict[str, Any]]:
    """Bodies of the completions requests that were no question of the probe."""
    bodies = [s.json() for s in server.seen if s.path == ROUTE]
    return [b for b in bodies if b.get("prompt") != "a"]
