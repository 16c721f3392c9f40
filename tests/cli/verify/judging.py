"""What tests of `capture`, `verify`, `calibrate` and `audit` share: a tiny engine behind a fake server, and files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.cli.main import run
from logproof.verify.policy import dump
from verify.builders import policy
from verify.tiny import ROUTE, TINY_VOCAB, Tiny, serve

FIELDS = ("min_p", "repetition_penalty", "ignore_eos", "min_tokens", "stop_token_ids", "top_k")


def start(fake: FakeServer, engine: Tiny) -> Tiny:
    """A tiny engine with the routes that the probe asks."""
    serve(fake, engine)
    fake.on("/version", {"version": "0.32.0"})
    fake.on("/v1/models", {"object": "list", "data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": 4096}]})
    schema = {"properties": {name: {} for name in FIELDS}}
    fake.on(
        "/openapi.json",
        {
            "paths": {
                ROUTE: {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}},
                "/tokenize": {},
                "/detokenize": {},
            }
        },
    )
    fake.on("/detokenize", lambda seen: {"prompt": "<" + "".join(map(str, seen.json()["tokens"])) + ">"})

    def limits(seen: Seen) -> Reply | dict[str, Any]:
        body = seen.json()
        if body.get("logprobs") == 1_000_000:
            return Reply(400, json={"error": {"message": "max allowed: 40"}})
        if body.get("logit_bias"):
            return Reply(400, json={"error": {"message": f"Vocabulary size: {TINY_VOCAB}"}})
        return engine.answer(seen)

    fake.on(ROUTE, limits)
    return engine


CLAIM = ("--dtype", "float32", "--runner", "v1", "--device", "cpu")
SHORT = ("--max-tokens", "20", *CLAIM)


def invoke(*args: object) -> int:
    return run([str(a) for a in args])


def captured(fake: FakeServer, prompts: Path, name: str = "a.jsonl") -> Path:
    """A file of artifacts; what was requested lies beside it, see `requests_of`."""
    path = prompts.with_name(name)
    base = ("capture", prompts, "-m", fake.url, "-o", path, "-k", 10, "--eos-id", 0, "--nonce", "n", *SHORT)
    assert invoke(*base, "--requests", requests_of(path)) == 0
    return path


def requests_of(path: Path) -> Path:
    """Where `captured` keeps what was requested."""
    return path.with_suffix(".requests")


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        start(server, Tiny())
        yield server


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"text": f"prompt {i}"}) + "\n" for i in range(14)))
    return path


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_bytes(dump(policy(k=10)))
    return path
