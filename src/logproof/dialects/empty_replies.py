"""A note on a checked response: tokens were sampled that left no text, though nothing in the reply is wrong."""

from __future__ import annotations

from logproof.ir.response import Choice, Response


def lost_texts(response: Response) -> tuple[str, ...]:
    """A note for each choice whose tokens left no trace in the reply.

    An empty text is whole where at most one token was sampled, the end mark, and where all the others are those of a
    matched stop, each at least a byte long, or of reasoning that the server counts and does not show.
    """
    usage, alone = response.usage, len(response.choices) == 1
    hidden = (usage.reasoning or 0) if alone else 0
    reported = usage.completion if alone else None
    spent = [(c.index, _spent(c, reported) - hidden) for c in response.choices if _mute(c)]
    room = {c.index: _room(c) for c in response.choices}
    return tuple(f"choice {i}: {n} tokens were sampled, yet the reply holds no text" for i, n in spent if n > room[i])


def _mute(choice: Choice) -> bool:
    return not (choice.text or choice.reasoning or choice.refusal or choice.tool_calls)


def _spent(choice: Choice, reported: int | None) -> int:
    scored = choice.token_ids if choice.token_ids is not None else choice.tokens
    return len(scored) if scored is not None else reported or 0


def _room(choice: Choice) -> int:
    matched = choice.finish.matched
    return 1 + (len(matched.encode()) if isinstance(matched, str) else 0)
