"""The Request behind a recorded body of /v1/responses."""

from __future__ import annotations

from typing import Any

from logproof.ir.message import Message, TextPart, text_message
from logproof.ir.request import Function, Input, Output, Request, Sampling, Schedule, Scoring, Tools


def request_of(body: dict[str, Any], **scoring: Any) -> Request:
    """`scoring` replaces widths: what was sent as top_logprobs k is our k - 1, or k where the list is certain."""
    form = (body.get("text") or {}).get("format") or {}
    structure = body.get("structured_outputs") or {}
    sampled = body.get("top_logprobs", 0) if "message.output_text.logprobs" in body.get("include", ()) else None
    choice = body.get("tool_choice")
    return Request(
        body["model"],
        Input(messages=_messages(body["input"])),
        sampling=Sampling(max_tokens=body.get("max_output_tokens"), temperature=body.get("temperature")),
        scoring=Scoring(**{"sampled": sampled, **scoring}),
        output=Output(
            json_schema=form.get("schema") or structure.get("json"),
            json_object=True if form.get("type") == "json_object" else None,
            choice=tuple(structure["choice"]) if "choice" in structure else None,
        ),
        tools=Tools(
            functions=tuple(Function(t["name"], parameters=t.get("parameters")) for t in body.get("tools") or ())
            or None,
            choice=f"function:{choice['name']}" if isinstance(choice, dict) else choice,
        ),
        schedule=Schedule(stream=body.get("stream")),
    )


def _messages(given: Any) -> tuple[Message, ...]:
    if isinstance(given, str):
        return (text_message("user", given),)
    return tuple(Message(m["role"], _content(m["content"])) for m in given)


def _content(given: Any) -> tuple[TextPart, ...]:
    return (TextPart(given),) if isinstance(given, str) else tuple(TextPart(p["text"]) for p in given)
