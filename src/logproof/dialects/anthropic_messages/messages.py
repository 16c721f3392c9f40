"""From chat messages and tools to the blocks of the Messages wire.

Turns alternate between user and assistant; answers to tool calls stand in a user turn, all answers of one turn
together. What this wire would change in silence (two turns of one role, which it merges) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from logproof.dialects.common.message_parts import (
    Fault,
    argument_faults,
    bare_turn_faults,
    blob_faults,
    cover,
    json_object,
    lone_system_faults,
    refuse,
    walk,
    without_dropped,
)
from logproof.dialects.ledger import Ledger
from logproof.ir.message import (
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from logproof.ir.request import Function, Hosted, Tools

DIALECT = "anthropic_messages"
SIGNATURE, CITATIONS, CALL = "signature", "citations", "tool_use"
"""Kinds of blobs that a part carries: a thinking block's signature, a text's citations, a call's other fields."""

_HOSTED = re.compile(
    r"(bash|browser_toolset|code_execution|computer_toolset|memory|text_editor|tool_search_tool_bm25"
    r"|tool_search_tool_regex|web_fetch|web_search)_(20\d{6})"
)
_NAMES = {"browser_toolset": None, "computer_toolset": None, "text_editor": "str_replace_based_edit_tool"}
"""Names of provider tools where they are not the kind without its date; None: the wire takes no name."""


def lower_messages(messages: Sequence[Message], ledger: Ledger) -> None:
    """Put messages into the body and decide `input.messages` with all its features."""
    lead = [m for m in messages if m.role == "system"]
    turns = [m for m in messages if m.role != "system"]
    refuse(lone_system_faults(messages, lead, "this wire has one system text, before all turns"), ledger)
    refuse(_order_faults(turns), ledger)
    refuse(walk(turns, _turn_faults, _part_faults), ledger)
    if turns and turns[-1].role == "assistant" and turns[-1].text != turns[-1].text.rstrip():
        refuse([("prefill", "this wire takes no prefill that ends in white space")], ledger)
    if lead:
        texts = [p.text for m in lead for p in m.content or () if isinstance(p, TextPart)]
        value = texts[0] if len(texts) == 1 else [{"type": "text", "text": t} for t in texts]
        ledger.send("input.messages.system", "/system", value)
    lowered = _turns(without_dropped(turns, ledger))
    if not lowered and any(m.content for m in turns):
        ledger.refuse("input.messages", "no turn is left of the messages")
    ledger.send("input.messages", "/messages", lowered)
    cover(ledger, "/messages")


def _order_faults(turns: Sequence[Message]) -> Iterator[Fault]:
    if not turns or _wire_role(turns[0]) != "user":
        yield "", "the first turn on this wire is the user's"
    for before, message in pairwise(turns):
        if _wire_role(before) == _wire_role(message) and before.role != "tool":
            yield "", f"two {message.role} turns in a row are one turn on this wire: join them"


def _turn_faults(message: Message) -> Iterator[Fault]:
    if message.role == "developer":
        yield "developer", "this wire has no developer role; use system"
    yield from bare_turn_faults(message)


def _part_faults(part: Part, message: Message) -> Iterator[Fault]:
    match part:
        case ImagePart():
            if message.role != "user":
                yield "image", "images stand in user turns on this wire"
            if part.detail is not None:
                yield "image_detail", "this wire has no image detail"
            if part.url is None and (part.data is None or part.media_type is None):
                yield "image", "an image needs a url, or data with its media_type"
        case ToolCallPart():
            yield from argument_faults(part)
        case ReasoningPart() if part.opaque is None:
            yield "reasoning", "thinking goes back only with its signature"
        case _:
            pass
    yield from blob_faults(part, DIALECT)


def _wire_role(message: Message) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _turns(messages: Sequence[Message]) -> list[dict[str, object]]:
    """Wire turns; answers to tool calls, and what the user says after them, share one."""
    turns: list[dict[str, object]] = []
    after_tool = False
    for message in messages:
        blocks = [_block(p) for p in message.content or () if not (isinstance(p, ReasoningPart) and p.opaque is None)]
        if not blocks:
            continue
        earlier = turns[-1]["content"] if turns and after_tool and message.role != "assistant" else None
        if isinstance(earlier, list):
            earlier += blocks
        else:
            turns.append({"role": _wire_role(message), "content": blocks})
        after_tool = message.role == "tool"
    return turns


def _block(part: Part) -> object:
    match part:
        case TextPart():
            cited = {"citations": part.opaque.blob} if part.opaque is not None else {}
            return {"type": "text", "text": part.text, **cited}
        case ImagePart():
            return {"type": "image", "source": _source(part)}
        case ToolCallPart():
            more = part.opaque.blob if part.opaque is not None and isinstance(part.opaque.blob, dict) else {}
            return {
                "type": "tool_use",
                "id": part.id,
                "name": part.name,
                "input": json_object(part.arguments) or {},
                **more,
            }
        case ToolResultPart():
            failed = {"is_error": part.is_error} if part.is_error is not None else {}
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": part.content, **failed}
        case ReasoningPart():
            signature = part.opaque.blob if part.opaque is not None else None
            return {"type": "thinking", "thinking": part.text, "signature": signature}
        case OpaquePart():
            return part.opaque.blob


def _source(part: ImagePart) -> dict[str, object]:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": part.data}


def lower_tools(tools: Tools, ledger: Ledger, *, hosts: bool) -> None:
    """Put tools and their choice into the body. hosts: whether the endpoint runs tools of its own."""
    if any((f.parameters or {}).get("type", "object") != "object" for f in tools.functions or ()):
        ledger.refuse("tools.functions", "parameters on this wire are a schema of type object")
    unknown = [h.kind for h in tools.hosted or () if _HOSTED.fullmatch(h.kind) is None]
    if unknown:
        ledger.refuse("tools.hosted", f"no tool of this wire: {unknown[0]}; kinds carry a date (web_search_20250305)")
    if tools.hosted and not hosts:
        ledger.refuse("tools.hosted", "this server runs no tools of its own")
    functions = () if ledger.stopped("tools.functions") else tools.functions or ()
    hosted = () if ledger.stopped("tools.hosted") else tools.hosted or ()
    listed = [*map(_function, functions), *map(_hosted, hosted)]
    ledger.send("tools.functions", "/tools", listed)
    ledger.send("tools.hosted", "/tools", listed)
    _lower_choice(tools.choice, tools.parallel, listed, ledger)


def _lower_choice(
    choice: str | None, parallel: bool | None, listed: Sequence[dict[str, object]], ledger: Ledger
) -> None:
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    named = choice.removeprefix("function:") if choice is not None and choice.startswith("function:") else None
    if not listed:
        for leaf in ("tools.choice", "tools.parallel"):
            ledger.refuse(leaf, "no tools are given")
    if choice is not None and choice not in kinds and named not in {tool.get("name") for tool in listed}:
        ledger.refuse("tools.choice", "auto, none, required, or function:NAME of a given function")
    if choice == "none":
        ledger.noop("tools.parallel", "no tool is called")
    elif choice is None or ledger.stopped("tools.choice"):
        if parallel is not None and not ledger.stopped("tools.parallel"):
            ledger.constant("/tool_choice/type", "auto", "parallel calls are a field of the choice")
    elif named is not None:
        ledger.constant("/tool_choice/type", "tool", "a tool is named")
    if named is not None:
        ledger.send("tools.choice", "/tool_choice/name", named)
    else:
        ledger.send("tools.choice", "/tool_choice/type", kinds.get(choice or ""))
    if choice != "none":
        ledger.send("tools.parallel", "/tool_choice/disable_parallel_tool_use", not parallel)


def _function(function: Function) -> dict[str, object]:
    found: dict[str, object] = {
        "name": function.name,
        "input_schema": {"type": "object", **(function.parameters or {"properties": {}})},
    }
    if function.description is not None:
        found["description"] = function.description
    if function.strict is not None:
        found["strict"] = function.strict
    return found


def _hosted(tool: Hosted) -> dict[str, object]:
    match = _HOSTED.fullmatch(tool.kind)
    base = match[1] if match else tool.kind
    name = _NAMES.get(base, base)
    return {"type": tool.kind, **({"name": name} if name is not None else {}), **tool.config}
