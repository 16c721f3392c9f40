"""What the replies of OpenAI's wires share: choices in order, finish reasons, usage, citations, forced calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol, TypeVar

import msgspec

from logproof.errors import BadReply, MissingChannel
from logproof.ir.request import Request
from logproof.ir.response import Choice, Citation, Finish, FinishReason, Usage

Count = Annotated[int, msgspec.Meta(ge=0)]

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "abort": "error",
    "error": "error",
}


class OpenAIUsage(msgspec.Struct, gc=False):
    """Token counts of the completions and the chat wire; SGLang reports reasoning tokens at the top."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    prompt_tokens_details: dict[str, object] | None = None
    completion_tokens_details: dict[str, object] | None = None

    def lifted(self) -> Usage:
        """Usage of the IR; unreported counts stay None. Raises BadReply for a detail that is no count."""
        counts, details = breakdown(self.prompt_tokens_details, self.completion_tokens_details)
        return Usage(
            prompt=self.prompt_tokens,
            completion=self.completion_tokens,
            total=self.total_tokens,
            cached=counts.get("cached"),
            cache_write=counts.get("cache_write"),
            reasoning=counts.get("reasoning", self.reasoning_tokens),
            details=details,
        )


class IndexedChoice(Protocol):
    """A choice of either wire, as far as both name things alike. matched_stop: SGLang's name of stop_reason."""

    index: int | None
    finish_reason: str | None
    stop_reason: str | int | None
    matched_stop: str | int | msgspec.UnsetType | None


_Choice = TypeVar("_Choice", bound=IndexedChoice)


def put_in_order(choices: list[_Choice]) -> None:
    """Sort the choices of a reply by index. Raises BadReply for one without index among several."""
    if len(choices) == 1 and choices[0].index is None:
        choices[0].index = 0
    if any(c.index is None for c in choices):
        raise BadReply("a choice without index among several", path="/choices")
    choices.sort(key=lambda c: c.index or 0)


def lift_finish(wire: IndexedChoice) -> Finish:
    """The normalised reason beside the raw one. Raises BadReply for a choice that the engine ended by an error."""
    reason = _REASONS.get(wire.finish_reason or "", "other")
    if reason == "error":
        raise BadReply(f"the engine ended this choice with {wire.finish_reason!r}", path=f"/choices/{wire.index}")
    matched = wire.stop_reason if wire.stop_reason is not None else wire.matched_stop
    return Finish(reason, wire.finish_reason, None if matched is msgspec.UNSET else matched)


def check_forced(request: Request, choice: Choice, path: str) -> None:
    """A server without a tool parser may answer a forced call with plain text."""
    wanted = request.tools.choice or ""
    if choice.refusal or choice.finish.reason in ("length", "content_filter"):
        return
    name = wanted.removeprefix("function:")
    if name != wanted and {c.name for c in choice.tool_calls} != {name}:
        raise MissingChannel(f"a call of {name} was forced and did not come", path=path)
    if wanted == "required" and not choice.tool_calls:
        raise MissingChannel("a tool call was required and did not come", path=path)


def lift_citation(kind: str, fields: Mapping[str, object], item: object, offset: int = 0) -> Citation:
    """A citation out of its fields; one of an unexpected type stays in `item` alone.

    offset: characters of the choice's text before the piece that is cited.
    """
    url, title, start, end = (fields.get(n) for n in ("url", "title", "start_index", "end_index"))
    return Citation(
        kind=kind,
        url=url if isinstance(url, str) else None,
        title=title if isinstance(title, str) else None,
        start=start + offset if isinstance(start, int) else None,
        end=end + offset if isinstance(end, int) else None,
        item=item,
    )


def breakdown(
    prompt: Mapping[str, object] | None, completion: Mapping[str, object] | None
) -> tuple[dict[str, int], dict[str, object] | None]:
    """({cached, cache_write, reasoning: count} as reported, all details that were reported or None)."""
    names = {
        "cached": (prompt, "cached_tokens"),
        "cache_write": (prompt, "cache_write_tokens"),
        "reasoning": (completion, "reasoning_tokens"),
    }
    counts = {name: _count(details, key) for name, (details, key) in names.items()}
    if counts["cache_write"] is None:
        counts["cache_write"] = _count(prompt, "created_cache_tokens")
    kept = {
        side: {k: v for k, v in details.items() if v is not None}
        for side, details in (("prompt", prompt), ("completion", completion))
        if details is not None
    }
    told: dict[str, object] = {side: details for side, details in kept.items() if details}
    return {name: n for name, n in counts.items() if n is not None}, told or None


def _count(details: Mapping[str, object] | None, key: str) -> int | None:
    value = (details or {}).get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadReply(f"{key} is {value!r}, no count", path="/usage")
    return value
