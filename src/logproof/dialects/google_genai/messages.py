"""From chat messages and tools to the contents of the generateContent wire.

Turns are contents of role user or model. Answers to tool calls are functionResponse parts, which need the
function's name: from the answer, or from the call of the same id earlier in the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    Opaque,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from logproof.ir.request import Function, Tools

DIALECT = "google_genai"
SIGNATURE = "thoughtSignature"
UNNAMED = "unnamed-call-"
"""Prefix of the ids that `lift` gives to calls which came without one; they never go out."""

HOSTED = (
    "googleSearch",
    "urlContext",
    "codeExecution",
    "fileSearch",
    "googleMaps",
    "computerUse",
    "mcpServers",
    "googleSearchRetrieval",
    "enterpriseWebSearch",
)
"""Tools that the provider runs, by the wire's field names."""

_RESOLUTIONS = {"low": "MEDIA_RESOLUTION_LOW", "medium": "MEDIA_RESOLUTION_MEDIUM", "high": "MEDIA_RESOLUTION_HIGH"}


def lower_messages(messages: Sequence[Message], ledger: Ledger) -> None:
    """Put messages into the body and decide `input.messages` with all its features."""
    lead = [m for m in messages if m.role in ("system", "developer")]
    turns = [m for m in messages if m.role not in ("system", "developer")]
    names = {p.id: p.name for m in turns for p in m.content or () if isinstance(p, ToolCallPart)}
    refuse(lone_system_faults(messages, lead, "this wire has one system instruction, before all turns"), ledger)
    if not turns:
        refuse([("", "this wire needs a turn beside the system instruction")], ledger)
    refuse(walk(turns, bare_turn_faults, lambda part, _: _part_faults(part, names)), ledger)
    texts = [{"text": p.text} for m in lead for p in m.content or () if isinstance(p, TextPart)]
    ledger.send("input.messages.system", "/systemInstruction/parts", texts)
    ledger.send("input.messages.developer", "/systemInstruction/parts", texts)
    lowered = _contents(without_dropped(turns, ledger), names)
    if not lowered and any(m.content for m in turns):
        ledger.refuse("input.messages", "no turn is left of the messages")
    ledger.send("input.messages", "/contents", lowered)
    cover(ledger, "/contents")


def _part_faults(part: Part, names: Mapping[str, str]) -> Iterator[Fault]:
    match part:
        case ImagePart():
            if part.media_type is None or (part.url is None and part.data is None):
                yield "image", "an image on this wire needs its media_type, and a url or data"
            if part.detail is not None and part.detail not in _RESOLUTIONS:
                yield "image_detail", f"this wire knows {', '.join(_RESOLUTIONS)}"
        case ToolCallPart():
            yield from argument_faults(part)
        case ToolResultPart() if part.name is None and part.call_id not in names:
            yield "tool_result", f"no name: no earlier call has the id {part.call_id!r}"
        case _:
            pass
    yield from blob_faults(part, DIALECT)


def _contents(turns: Sequence[Message], names: Mapping[str, str]) -> list[dict[str, object]]:
    """Wire turns; answers to calls that were made in one turn share one."""
    contents: list[dict[str, object]] = []
    role_before = ""
    for message in turns:
        parts = [_part(p, names) for p in message.content or ()]
        if not parts:
            continue
        shared = contents[-1]["parts"] if message.role == role_before == "tool" else None
        if isinstance(shared, list):
            shared += parts
        else:
            contents.append({"role": "model" if message.role == "assistant" else "user", "parts": parts})
        role_before = message.role
    return contents


def _part(part: Part, names: Mapping[str, str]) -> object:
    match part:
        case TextPart():
            return {"text": part.text, **_signature(part.opaque)}
        case ReasoningPart():
            return {"text": part.text, "thought": True, **_signature(part.opaque)}
        case ImagePart():
            return _image(part)
        case ToolCallPart():
            call: dict[str, object] = {"name": part.name, "args": json_object(part.arguments) or {}}
            named = {} if part.id.startswith(UNNAMED) else {"id": part.id}
            return {"functionCall": {**named, **call}, **_signature(part.opaque)}
        case ToolResultPart():
            named = {} if part.call_id.startswith(UNNAMED) else {"id": part.call_id}
            answer = {"error" if part.is_error else "output": part.content}
            return {"functionResponse": {**named, "name": part.name or names.get(part.call_id), "response": answer}}
        case OpaquePart():
            return part.opaque.blob


def _signature(opaque: Opaque | None) -> dict[str, object]:
    return {SIGNATURE: opaque.blob} if opaque is not None else {}


def _image(part: ImagePart) -> dict[str, object]:
    level = _RESOLUTIONS.get(part.detail or "")
    detail: dict[str, object] = {"mediaResolution": {"level": level}} if level else {}
    if part.url is not None:
        return {"fileData": {"fileUri": part.url, "mimeType": part.media_type}, **detail}
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}, **detail}


def lower_tools(tools: Tools, ledger: Ledger) -> None:
    """Put tools and their choice into the body."""
    if any(f.strict for f in tools.functions or ()):
        ledger.refuse("tools.functions", "this wire has no strict functions")
    unknown = [h.kind for h in tools.hosted or () if h.kind not in HOSTED]
    if unknown:
        ledger.refuse("tools.hosted", f"no tool of this wire: {unknown[0]}; it knows {', '.join(HOSTED)}")
    functions = () if ledger.stopped("tools.functions") else tools.functions or ()
    hosted = () if ledger.stopped("tools.hosted") else tools.hosted or ()
    listed: list[dict[str, object]] = [{h.kind: h.config} for h in hosted]
    if functions:
        listed.insert(0, {"functionDeclarations": [_function(f) for f in functions]})
    ledger.send("tools.functions", "/tools", listed)
    ledger.send("tools.hosted", "/tools", listed)
    _lower_choice(tools.choice, [f.name for f in functions], ledger)
    if tools.parallel is False:
        ledger.refuse("tools.parallel", "this wire cannot forbid parallel calls")
    ledger.noop("tools.parallel", "parallel calls are this wire's default")


def _lower_choice(choice: str | None, names: Sequence[str], ledger: Ledger) -> None:
    at = "/toolConfig/functionCallingConfig"
    mode = {"auto": "AUTO", "none": "NONE", "required": "ANY"}.get(choice or "")
    named = choice.removeprefix("function:") if choice is not None and choice.startswith("function:") else None
    if not names:
        ledger.refuse("tools.choice", "no functions are given")
    if mode is None and named not in names:
        ledger.refuse("tools.choice", "auto, none, required, or function:NAME of a given function")
    if ledger.stopped("tools.choice"):
        return
    if named is not None:
        ledger.constant(f"{at}/mode", "ANY", "one function is named")
        ledger.send("tools.choice", f"{at}/allowedFunctionNames", [named])
    else:
        ledger.send("tools.choice", f"{at}/mode", mode)


def _function(function: Function) -> dict[str, object]:
    found: dict[str, object] = {"name": function.name}
    if function.description is not None:
        found["description"] = function.description
    if function.parameters is not None:
        found["parametersJsonSchema"] = function.parameters
    return found
