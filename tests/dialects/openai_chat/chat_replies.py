"""Invented chat replies of one choice."""

from __future__ import annotations

import json
from typing import Any

from dialects.openai_chat.chat_cases import ask
from logproof.ir.request import Scoring


def made(message: dict[str, Any] | None = None, usage: dict[str, Any] | None = None, **choice: Any) -> bytes:
    """An invented reply of one choice."""
    shown = {"role": "assistant", "content": "Hi", **(message or {})}
    first = {"index": 0, "message": shown, "finish_reason": "stop", **choice}
    return json.dumps({"id": "x", "model": "m", "choices": [first], "usage": usage}).encode()


def logprobs(*entries: tuple[str, float]) -> dict[str, Any]:
    content = [
        {"token": t, "logprob": v, "bytes": list(t.encode()), "top_logprobs": [{"token": t, "logprob": v}]}
        for t, v in entries
    ]
    return {"content": content}


SCORED = ask(scoring=Scoring(sampled=0))
