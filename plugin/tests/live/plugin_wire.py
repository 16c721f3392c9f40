"""HTTP helpers and the plain requests whose replies must not change."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CHAT, TEXT, IDS = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
PROMPT = "The capital of France is"
MESSAGES = [{"role": "user", "content": "Name three colours."}]
VOCAB = 49152
SECONDS = 900
"""Ends a hang; nothing is measured by it."""


def send(url: str, path: str, body: object) -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            return int(reply.status), reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def post(url: str, path: str, **body: Any) -> tuple[int, Any]:
    """Status and parsed reply."""
    status, text = send(url, path, {"model": "smollm2", **body})
    return status, json.loads(text)


def ask(url: str, path: str, **body: Any) -> Any:
    """The parsed reply of a request that must succeed."""
    status, reply = post(url, path, **body)
    assert status == 200, reply
    return reply


def together(url: str, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Replies of requests sent at the same moment."""
    with ThreadPoolExecutor(len(requests)) as pool:
        waiting = [pool.submit(ask, url, path, **body) for path, body in requests]
        return [job.result() for job in waiting]


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=60) as reply:
        return json.loads(reply.read() or b"null")


def healthy(url: str) -> None:
    """The server lives and answers an ordinary request."""
    get(url, "/health")
    assert ids_of(ask(url, TEXT, prompt=PROMPT, max_tokens=1, temperature=0, return_token_ids=True))


def ids_of(reply: Any) -> list[int]:
    return list(reply["choices"][0]["token_ids"])


def logprobs_of(reply: Any) -> list[float]:
    """Logprobs of the emitted tokens on any of the three routes."""
    found = reply["choices"][0]["logprobs"]
    if "content" in found:
        return [entry["logprob"] for entry in found["content"]]
    return list(found["token_logprobs"])


COMMON: dict[str, Any] = {"max_tokens": 12, "return_token_ids": True}
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (TEXT, {"prompt": PROMPT, "temperature": 0, "logprobs": 3, **COMMON}),
    "greedy ids": (TEXT, {"prompt": PROMPT, "temperature": 0, "logprobs": 3, "return_tokens_as_token_ids": True,
                          **COMMON}),
    "seed": (TEXT, {"prompt": PROMPT, "temperature": 1.0, "seed": 7, "top_p": 0.9, "top_k": 20, "logprobs": 2,
                    **COMMON}),
    "penalties": (TEXT, {"prompt": PROMPT, "seed": 3, "min_p": 0.05, "repetition_penalty": 1.3, "logprobs": 1,
                         **COMMON}),
    "stop": (TEXT, {"prompt": PROMPT, "temperature": 0, "stop": ["."], "logprobs": 1, **COMMON}),
    "echo": (TEXT, {"prompt": PROMPT, "temperature": 0, "echo": True, "logprobs": 2, "max_tokens": 4}),
    "chat": (CHAT, {"messages": MESSAGES, "temperature": 0, "logprobs": True, "top_logprobs": 4, **COMMON}),
    "chat ids": (CHAT, {"messages": MESSAGES, "seed": 11, "logprobs": True, "top_logprobs": 2,
                        "return_tokens_as_token_ids": True, **COMMON}),
    "grammar": (TEXT, {"prompt": "Number: ", "temperature": 0, "structured_outputs": {"regex": "[0-9]{4}-[a-f]{3}"},
                       **COMMON}),
    "stream": (TEXT, {"prompt": PROMPT, "temperature": 0, "stream": True, "logprobs": 2, "max_tokens": 6}),
    "bad": (TEXT, {"prompt": PROMPT, "max_tokens": -1}),
}  # fmt: skip
VOLATILE = ("id", "created", "system_fingerprint", "request_id")


def normal(text: bytes) -> list[Any]:
    """A reply without what differs between any two runs; a stream as the list of its events."""
    if text.startswith(b"data: "):
        parts = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: {")]
    else:
        parts = [text]
    return [{k: v for k, v in json.loads(part).items() if k not in VOLATILE} for part in parts]


def record(url: str) -> dict[str, list[Any]]:
    """The normalised replies to all plain requests, one at a time."""
    return {name: normal(send(url, path, {"model": "smollm2", **body})[1]) for name, (path, body) in PLAIN.items()}


ENFORCED = [100, 2, 30000, 17, 4000, 45000, 6, 1]
SPECIAL: list[tuple[str, dict[str, Any]]] = [
    (TEXT, {"prompt": PROMPT, "enforced_token_ids": ENFORCED, "logprobs": 1, **COMMON}),
    (TEXT, {"prompt": PROMPT, "enforced_token_ids": ENFORCED, "logprobs_mode": "processed_logprobs", "top_k": 5,
            "logprobs": 1, **COMMON}),
    (TEXT, {"prompt": PROMPT, "seed": 5, "top_p": 0.8, "logprobs_mode": "processed_logprobs", "logprobs": 2, **COMMON}),
    (TEXT, {"prompt": "Number: ", "enforced_token_ids": [5, 6, 7], "structured_outputs": {"regex": "[0-9]{30}"},
            **COMMON}),
]  # fmt: skip
# Replies to these must not depend on what the other four of the batch are.
ORDINARY = [PLAIN["greedy"], PLAIN["seed"], PLAIN["penalties"], PLAIN["grammar"]]


def stock_batch() -> list[tuple[str, dict[str, Any]]]:
    """Four ordinary requests beside four plain ones of the same lengths."""
    filler = (TEXT, {"prompt": PROMPT, "temperature": 0, "logprobs": 1, **COMMON})
    return [*ORDINARY, filler, filler, filler, filler]


def plugin_batch() -> list[tuple[str, dict[str, Any]]]:
    """The same four beside enforced, processed and broken-grammar requests."""
    return [*ORDINARY, *SPECIAL]
