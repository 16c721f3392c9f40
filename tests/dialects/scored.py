"""Every recorded reply that holds scores, with the request that it answers, over all wires that give logprobs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dialects import damage, wires
from dialects.openai_chat import chat_wires
from dialects.openai_responses import responses_wires
from dialects.sglang_native import sglang_wires
from logproof.client.client import Client
from logproof.dialects.registry import get_dialect
from logproof.errors import LogproofError
from logproof.http.exchange import SseEvent, WireReply
from logproof.ir.facts import Facts
from logproof.ir.message import text_message
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.ir.response import Labels, Response, Tokens

SKIPPED_SIZE = 60_000
"""Recordings above this many bytes are left to the others, which have the same shape."""


@dataclass(frozen=True)
class Case:
    """One scored reply. reply: its JSON, or the list of a stream's events."""

    dialect: str
    name: str
    request: Request
    reply: Any
    stream: bool

    def outcome(self, reply: Any) -> dict[str, Any] | None:
        """Everything that a damaged form of the reply returns of tokens and scores, or None where it is refused."""
        client = Client(wires.NoSender(), get_dialect(self.dialect), FACTS.get(self.dialect))
        try:
            return flat(client.read(self.request, self.wire(reply)))
        except LogproofError:
            return None

    def wire(self, reply: Any) -> WireReply:
        if not self.stream:
            return WireReply(200, (), reply if isinstance(reply, bytes) else damage.encode(reply))
        events = [SseEvent(None, json.dumps(e, ensure_ascii=False)) for e in reply] if isinstance(reply, list) else []
        return WireReply(200, (), b"", (*events, SseEvent(None, "[DONE]")))


FACTS = {"sglang_native": Facts(engine="sglang", vocab_size=49152, max_model_len=2048)}


def flat(response: Response) -> dict[str, Any]:
    """Everything that a response returns of tokens and scores, as plain values."""
    usage = response.usage
    out: dict[str, Any] = {"usage": (usage.prompt, usage.completion, usage.total)}
    out["prompt_ids"] = None if response.prompt_ids is None else response.prompt_ids.tolist()
    for name, channel in [("prompt", response.prompt), *((str(c.index), c.tokens) for c in response.choices)]:
        out.update({f"{name}.{k}": v for k, v in channel_values(channel).items()})
    for choice in response.choices:
        ids = choice.token_ids
        out[f"{choice.index}.choice"] = (choice.text, None if ids is None else ids.tolist(), choice.finish.reason)
        if isinstance(choice.labels, Labels):
            out[f"{choice.index}.labels"] = choice.labels.logprobs.tolist()
    return out


def channel_values(tokens: Tokens | None) -> dict[str, Any]:
    if tokens is None:
        return {}
    unscored = ["unscored" if math.isnan(v) else v for v in tokens.logprobs.tolist()]
    values: dict[str, Any] = {"logprobs": unscored, "texts": tokens.texts}
    values["ids"] = None if tokens.ids is None else tokens.ids.tolist()
    values["ranks"] = None if tokens.ranks is None else tokens.ranks.tolist()
    if tokens.top is not None:
        keyed = tokens.top.by_text if tokens.top.ids is None else tokens.top.by_id
        values["top"] = [sorted(keyed(i).items()) for i in range(len(tokens))]
    return values


def _chat(body: dict[str, Any]) -> Iterator[Request]:
    yield from _narrower(body.get("top_logprobs"), lambda width: chat_wires.request_of(body, sampled=width))


def _responses(body: dict[str, Any]) -> Iterator[Request]:
    yield from _narrower(body.get("top_logprobs"), lambda width: responses_wires.request_of(body, sampled=width))


def _narrower(width: int | None, made: Callable[[int], Request]) -> Iterator[Request]:
    """Requests for ever fewer rivals: a list of k is certain for k or fewer."""
    yield from (made(k) for k in range(width or 0, -1, -1))


REQUESTS: dict[str, Callable[[dict[str, Any]], Iterator[Request]]] = {
    "vllm_native": lambda body: iter([wires.request_of(body)]),
    "openai_completions": lambda body: iter([wires.request_of(body)]),
    "openai_chat": _chat,
    "openai_responses": _responses,
    "sglang_native": lambda body: iter([sglang_wires.request_of(body)]),
}
"""Dialect -> the requests that a recorded body may stand for, the widest first."""


def _sglang(name: str) -> tuple[dict[str, Any], str, bool]:
    """Body, reply and whether it streamed, of a recording in either form of that folder."""
    held = json.loads((wires.REPLIES / "sglang_native" / f"{name}.json").read_text(encoding="utf-8"))
    request = held["request"] or {}
    streamed = isinstance(held["response"], str)
    reply = held["response"] if streamed else json.dumps(held["response"])
    return request.get("body", request), reply, streamed


def _recorded(dialect: str, name: str) -> tuple[dict[str, Any], str, bool]:
    if dialect == "sglang_native":
        return _sglang(name)
    exchange = wires.load(dialect, name)
    return exchange.request, exchange.body.decode(), exchange.stream


def _found(dialect: str) -> Iterator[Case]:
    for name in wires.names(dialect):
        body, text, streamed = _recorded(dialect, name)
        if not body or len(text) > SKIPPED_SIZE:
            continue
        data = [e.data for e in wires.events_of(text.encode())] if streamed else []
        reply = [json.loads(d) for d in data if d != "[DONE]"] if streamed else json.loads(text)
        case = _scored(dialect, name, body, reply, streamed)
        if case is not None:
            yield case


def _scored(dialect: str, name: str, body: dict[str, Any], reply: Any, streamed: bool) -> Case | None:
    try:
        asked = list(REQUESTS[dialect](body))
    except (KeyError, TypeError, ValueError):
        return None
    for request in asked:
        scoring = request.scoring
        case = Case(dialect, name, request, reply, streamed)
        if {scoring.prompt, scoring.sampled, scoring.label_ids} != {None} and case.outcome(reply) is not None:
            return case
    return None


def _gemini() -> Case:
    """No server here gives logprobs on this wire: a reply in the form that its documents show."""

    def token(token_id: int, text: str, value: float) -> dict[str, object]:
        return {"tokenId": token_id, "token": text, "logProbability": value}

    result = {
        "chosenCandidates": [token(5, "The", -0.5), token(6, " sky", -2.0), token(7, " is", -0.25)],
        "topCandidates": [
            {"candidates": [token(5, "The", -0.5), token(7, "A", -1.5)]},
            {"candidates": [token(8, " sea", -0.7), token(9, " sun", -1.25)]},
            {"candidates": [token(7, " is", -0.25), token(9, " sun", -3.0)]},
        ],
        "logProbabilitySum": -2.75,
    }
    candidate = {"content": {"role": "model", "parts": [{"text": "The sky is"}]}, "finishReason": "MAX_TOKENS"}
    usage = {"promptTokenCount": 4, "candidatesTokenCount": 3, "totalTokenCount": 7}
    reply = {"candidates": [{"index": 0, **candidate, "logprobsResult": result}], "usageMetadata": usage}
    asked = Request("g", Input(messages=(text_message("user", "Hi"),)), Sampling(max_tokens=3), Scoring(sampled=2))
    return Case("google_genai", "documented", asked, reply, stream=False)


CASES = (*(case for dialect in REQUESTS for case in _found(dialect)), _gemini())
"""All of them."""
