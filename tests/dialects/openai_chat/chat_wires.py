"""The Request behind a recorded body of /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from logproof.ir.message import ImagePart, Message, Part, TextPart, ToolCallPart, ToolResultPart
from logproof.ir.request import Function, Input, Output, Request, Sampling, Schedule, Scoring, Tools


def request_of(body: dict[str, Any], **scoring: Any) -> Request:
    """`scoring` replaces widths: what was sent as top_logprobs k is our k - 1, or k where the list is certain."""
    structure = body.get("structured_outputs") or {}
    form = body.get("response_format") or {}
    sampled = body.get("top_logprobs", 0) if body.get("logprobs") else None
    choice = body.get("tool_choice")
    named = {n: body.get(n) for n in ("temperature", "top_p", "seed", "n")}
    stop = body.get("stop")
    return Request(
        body["model"],
        Input(messages=tuple(m for w in body["messages"] for m in (message_of(w),))),
        sampling=Sampling(max_tokens=body.get("max_tokens"), stop=tuple(stop) if stop else None, **named),
        scoring=Scoring(**{"prompt": body.get("prompt_logprobs"), "sampled": sampled, **scoring}),
        output=Output(
            json_schema=structure.get("json") or form.get("json_schema", {}).get("schema") or form.get("schema"),
            json_object=True if form.get("type") == "json_object" and "schema" not in form else None,
            choice=tuple(structure["choice"]) if "choice" in structure else None,
        ),
        tools=Tools(
            functions=tuple(
                Function(f["name"], parameters=f.get("parameters"), strict=f.get("strict"))
                for f in (t["function"] for t in body.get("tools") or ())
            )
            or None,
            choice=f"function:{choice['function']['name']}" if isinstance(choice, dict) else choice,
        ),
        schedule=Schedule(stream=body.get("stream")),
    )


def message_of(wire: dict[str, Any]) -> Message:
    """One message of a recorded body."""
    content = wire.get("content")
    if wire["role"] == "tool":
        return Message("tool", (ToolResultPart(wire["tool_call_id"], str(content)),))
    parts: list[Part] = [TextPart(content)] if isinstance(content, str) else []
    if isinstance(content, list):
        parts = [TextPart(p["text"]) if p["type"] == "text" else ImagePart(url=p["image_url"]["url"]) for p in content]
    for call in wire.get("tool_calls") or ():
        parts.append(ToolCallPart(call["id"], call["function"]["name"], call["function"]["arguments"]))
    return Message(wire["role"], tuple(parts) or None)
