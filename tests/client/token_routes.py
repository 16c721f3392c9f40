"""A server's tokenizer routes for the tests of the client."""

from __future__ import annotations

import json
from typing import Any

from logproof.http.exchange import WireReply, WireRequest


class TokenRoutes:
    """A server's two tokenizer routes over a little vocabulary, in vLLM's shape or SGLang's."""

    def __init__(self, key: str = "prompt") -> None:
        self.asked: list[tuple[str, Any]] = []
        self.key = key

    async def send(self, request: WireRequest) -> WireReply:
        body = json.loads(request.body)
        self.asked.append((request.path, body))
        if request.path == "/tokenize":
            return WireReply(200, (), json.dumps({"tokens": [ord(c) for c in body["prompt"]], "count": 1}).encode())
        return WireReply(200, (), json.dumps({self.key: "".join(map(chr, body["tokens"]))}).encode())
