"""Ids of a chat choice that a tool parser held back in part: such a list stands for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.ir.request import Request
from logproof.ir.response import Choice, Usage


def without_partial_ids(request: Request, choices: Sequence[Choice], usage: Usage) -> tuple[list[Choice], list[str]]:
    """Choices without ids where a stream gave only some of them and nothing that was asked depends on them.

    vLLM's tool parser holds back the ids of a streamed call.
    """
    needed = request.scoring.sampled is not None or request.scoring.label_ids or request.replay.token_ids
    counted = sum(len(c.token_ids) for c in choices if c.token_ids is not None)
    if not request.schedule.stream or needed or usage.completion in (None, counted):
        return list(choices), []
    return (
        [msgspec.structs.replace(c, token_ids=None) for c in choices],
        [f"the stream named {counted} of {usage.completion} token ids: ask without streaming"] if counted else [],
    )
