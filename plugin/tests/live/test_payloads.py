"""Five hundred generated bodies over HTTP: each a 400 or an exact replay, and nobody else is harmed."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from plugin_wire import CHAT, IDS, MESSAGES, PROMPT, TEXT, VOCAB, ask, get, ids_of, post

pytestmark = pytest.mark.live

COUNT = 500
NASTY: list[Any] = [None, True, -1, VOCAB, 2**31, 2**63, 1.5, "5", "", [], {}, "token_id:7", "٣"]


def an_id(source: random.Random) -> Any:
    return source.choice(NASTY) if source.random() < 0.2 else source.randrange(VOCAB)


def make(source: random.Random) -> tuple[str, dict[str, Any], list[int] | None]:
    """A path, a body, and the ids a replay must begin with (None: a text whose ids are not known here)."""
    path = source.choice([TEXT, CHAT, IDS])
    ids = [an_id(source) for _ in range(source.randrange(4))]
    body: dict[str, Any] = {"enforced_token_ids": ids}
    known = ids
    if source.random() < 0.3:
        body = {"enforced_tokens": {"tokens": [{"token": source.choice([f"token_id:{i}", str(i), i])} for i in ids]}}
        known = ids if all(type(i) is int for i in ids) else None
    for name, values in EXTRAS.items():
        if source.random() < 0.12:
            body[name] = source.choice(values)
    return path, body, known


EXTRAS: dict[str, list[Any]] = {
    "logprobs_mode": ["raw_logprobs", "processed_logprobs", "x", 1, None], "enforced_append_eos": [True, False, 0],
    "n": [1, 2], "max_tokens": [1, 5, 0, None], "enforced_str": ["", "a", 5, None], "temperature": [0, 1, 2],
    "seed": [1], "top_k": [1, 5], "stop": ["a"], "structured_outputs": [{"regex": "[0-9]{3}"}],
}  # fmt: skip


def shoot(server: str, path: str, body: dict[str, Any], known: list[int] | None) -> None:
    full = dict(body)
    if path == IDS:
        ours = ("enforced_token_ids", "enforced_tokens", "enforced_str", "enforced_append_eos", "logprobs_mode")
        inner = {key: full.pop(key) for key in list(full) if key not in ours}
        full |= {"token_ids": [504, 3575], "sampling_params": inner}
    else:
        full |= {"return_token_ids": True} | ({"prompt": PROMPT} if path == TEXT else {"messages": MESSAGES})
    status, reply = post(server, path, **full)
    assert status in (200, 400), (path, body, reply)
    if status == 200 and known:
        assert ids_of(reply)[: len(known)] == known, (path, body)
        assert reply["logproof"]["enforced"] == len(known) + reply["logproof"]["eos_appended"]


def test_five_hundred_bodies(server: str) -> None:
    source = random.Random(20)
    cases = [make(source) for _ in range(COUNT)]
    plain = {"prompt": PROMPT, "temperature": 0, "max_tokens": 3, "return_token_ids": True}
    before = ids_of(ask(server, TEXT, **plain))
    with ThreadPoolExecutor(8) as pool:
        shots = [pool.submit(shoot, server, *case) for case in cases]
        others = [pool.submit(ask, server, TEXT, **plain) for _ in range(10)]
        for shot in shots:
            shot.result()
        assert all(ids_of(other.result()) == before for other in others)
    get(server, "/health")
