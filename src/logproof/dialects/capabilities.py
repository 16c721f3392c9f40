"""Capabilities: sixteen keys that say what a caller needs, as named sets of leaves and channels.

A task or `--require` names keys, with a width where one counts (`top_logprobs=100`). `plan` answers before a
run starts whether this dialect at this endpoint gives them: it lowers a sample request that uses the key's
leaves, so the answer is the dialect's own and cannot drift from what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from logproof.dialects.dialect import Dialect
from logproof.dialects.lower import lower
from logproof.errors import InvalidRequest, PlanRefused, RequestRefused, UsageError
from logproof.ir.facts import Facts
from logproof.ir.message import ImagePart, Message, Opaque, OpaquePart, TextPart, text_message
from logproof.ir.request import (
    Function,
    Hosted,
    Input,
    Output,
    Reasoning,
    Replay,
    Request,
    Sampling,
    Scoring,
    Session,
    Tools,
)

_USER = text_message("user", "Hi")
_SAMPLING = Sampling(max_tokens=16)


class Capability(msgspec.Struct, frozen=True):
    """One key. meaning: in words. channel: what `lift` must deliver, if any. sample: requests that use it.

    A dialect has the capability when it lowers at least one of the sample requests and, where a channel is
    named, declares that channel. sample takes the dialect and the width.
    """

    meaning: str
    sample: Callable[[Dialect, int], Iterable[Request]]
    channel: str | None = None
    counted: bool = False


def _inputs(**groups: msgspec.Struct) -> list[Request]:
    """The same request over each kind of input, so that a wire is judged on the input it takes."""
    inputs = (Input(text="Hi"), Input(messages=(_USER,)), Input(token_ids=(1, 2)))
    records = {"sampling": _SAMPLING, **groups}
    return [msgspec.structs.replace(Request("m", i), **records) for i in inputs]


def _chat(*messages: Message, **groups: msgspec.Struct) -> list[Request]:
    return [msgspec.structs.replace(Request("m", Input(messages=messages), sampling=_SAMPLING), **groups)]


_HOSTED_KINDS = ("web_search", "web_search_20250305", "googleSearch")
_OPAQUE_KINDS = {
    "openai_responses": ("reasoning", {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}),
    "anthropic_messages": ("redacted_thinking", {"type": "redacted_thinking", "data": "e"}),
    "google_genai": ("thoughtSignature", "c2ln"),
}


def _opaque(dialect: Dialect, _: int) -> list[Request]:
    kind, blob = _OPAQUE_KINDS.get(dialect.id, ("reasoning", "e"))
    opaque = Opaque(dialect.id, kind, blob)
    parts = (OpaquePart(opaque), TextPart("Yes")) if not isinstance(blob, str) else (TextPart("Yes", opaque),)
    return _chat(_USER, Message("assistant", parts), _USER)


CAPABILITIES: Mapping[str, Capability] = {
    "input_scoring": Capability(
        "logprobs of the prompt's own tokens", lambda d, k: _inputs(scoring=Scoring(prompt=0)), "prompt_logprobs"
    ),
    "sampled_logprobs": Capability(
        "logprobs of sampled tokens", lambda d, k: _inputs(scoring=Scoring(sampled=0)), "sampled_logprobs"
    ),
    "top_logprobs": Capability(
        "the k best at each sampled position",
        lambda d, k: _inputs(scoring=Scoring(sampled=k)),
        "sampled_top",
        counted=True,
    ),
    "label_scoring": Capability(
        "exact logprobs of named ids", lambda d, k: _inputs(scoring=Scoring(label_ids=(1, 2))), "label_scores"
    ),
    "token_input": Capability("prompts of token ids", lambda d, k: _inputs()[2:]),
    "fim": Capability("text with a gap", lambda d, k: [Request("m", Input(text="a", suffix="b"), sampling=_SAMPLING)]),
    "prefill": Capability("an assistant turn to continue", lambda d, k: _chat(_USER, text_message("assistant", "Yes"))),
    "multimodal_input": Capability(
        "images", lambda d, k: _chat(Message("user", (ImagePart(data="aGk=", media_type="image/png"),)))
    ),
    "reasoning": Capability(
        "reasoning control and its text", lambda d, k: _inputs(reasoning=Reasoning(effort="high")), "reasoning"
    ),
    "function_tools": Capability(
        "function calls",
        lambda d, k: _chat(_USER, tools=Tools(functions=(Function("f", "d", {"type": "object"}),))),
        "tool_calls",
    ),
    "hosted_tools": Capability(
        "tools that the provider runs",
        lambda d, k: [r for kind in _HOSTED_KINDS for r in _chat(_USER, tools=Tools(hosted=(Hosted(kind),)))],
        "hosted_uses",
    ),
    "structured_output": Capability(
        "JSON by schema, validated here", lambda d, k: _inputs(output=Output(json_schema={"type": "object"})), "parsed"
    ),
    "stateful_session": Capability(
        "a turn that continues a stored one",
        lambda d, k: _inputs(session=Session(previous_response_id="resp_1")),
        "session_id",
    ),
    "opaque_continuation": Capability("blobs that go back unchanged", _opaque),
    "enforced_replay": Capability(
        "given ids emitted with the model's own logprobs",
        lambda d, k: _inputs(replay=Replay(token_ids=(1, 2)), scoring=Scoring(sampled=0)),
        "replay",
    ),
    "logprobs_mode": Capability(
        "raw or processed logprobs by request", lambda d, k: _inputs(replay=Replay(logprobs_mode="processed"))
    ),
}
"""The sixteen keys, in the order in which tables show them."""


def parse_requirement(text: str) -> tuple[str, int]:
    """`key` or `key=k` -> (key, k). Raises UsageError for an unknown key or a width that is no number."""
    key, _, width = text.partition("=")
    if key not in CAPABILITIES:
        raise UsageError(f"unknown capability {key!r}", hint=f"one of: {', '.join(CAPABILITIES)}")
    counted = CAPABILITIES[key].counted
    if (width and not counted) or (width and not width.isdecimal()):
        raise UsageError(f"{text!r}: {'a number is needed behind =' if counted else f'{key} takes no number'}")
    return key, int(width) if width else 1


def missing(dialect: Dialect, facts: Facts, key: str, width: int = 1) -> str | None:
    """Why this dialect at this endpoint lacks a capability, or None where it has it."""
    capability = CAPABILITIES[key]
    if capability.channel is not None and capability.channel not in dialect.channels:
        return f"{dialect.id} has no channel for it"
    reasons: list[str] = []
    for sample in capability.sample(dialect, width):
        request = msgspec.structs.replace(sample, model=facts.models[0]) if facts.models else sample
        try:
            lower(request, dialect, facts)
        except RequestRefused as refused:
            reasons.append("; ".join(f"{leaf}: {why}" for leaf, why in refused.refusals))
        except InvalidRequest as invalid:
            reasons.append(str(invalid))
        else:
            return None
    return min(reasons, key=len, default="no request can ask for it")


def plan(needs: Mapping[str, int], dialect: Dialect, facts: Facts, others: Iterable[Dialect] = ()) -> None:
    """Raise PlanRefused naming every lacking capability and the other dialects that give all of them."""
    lacks = {key: why for key, k in needs.items() if (why := missing(dialect, facts, key, k)) is not None}
    if not lacks:
        return
    rest = [d for d in others if d.id != dialect.id]
    giving = [d.id for d in rest if not any(missing(d, facts, k, w) for k, w in needs.items())]
    named = "; ".join(f"{_shown(key, needs[key])} ({why})" for key, why in lacks.items())
    hint = f"this endpoint gives it through: {', '.join(giving)}" if giving else "no known dialect gives all of it here"
    raise PlanRefused(f"{dialect.id} cannot give {named}", hint=hint)


def _shown(key: str, width: int) -> str:
    return f"{key}={width}" if CAPABILITIES[key].counted else key
