from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dialects import wires
from logproof.dialects.empty_replies import lost_texts
from logproof.dialects.registry import get_dialect
from logproof.ir.message import ToolCallPart
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.ir.response import Choice, Finish, Response, Usage

NOTE = ("choice 0: 3 tokens were sampled, yet the reply holds no text",)
IDS = np.array([5, 6, 7])


def reply(usage: int | None = None, matched: str | int | None = None, **fields: Any) -> Response:
    return Response(
        (Choice(0, fields.pop("text", ""), Finish("stop", "stop", matched), **fields),), Usage(completion=usage)
    )


@pytest.mark.parametrize(
    ("response", "notes"),
    [
        (reply(token_ids=IDS), NOTE),
        (reply(3), NOTE),
        (reply(3, matched="x"), NOTE),
        (reply(3, matched="ab"), ()),
        (reply(3, matched=7), NOTE),
        (reply(1), ()),
        (reply(), ()),
        (reply(3, text=" "), ()),
        (reply(3, reasoning="so"), ()),
        (reply(3, refusal="no"), ()),
        (reply(3, tool_calls=(ToolCallPart("c", "f", "{}"),)), ()),
    ],
)
def test_tokens_that_left_no_text_are_noted(response: Response, notes: tuple[str, ...]) -> None:
    assert lost_texts(response) == notes


def test_of_several_choices_only_their_own_tokens_count() -> None:
    mute = Choice(0, "", Finish("stop", "stop"))
    assert lost_texts(Response((mute, mute), Usage(completion=9))) == ()


def test_hidden_reasoning_is_no_lost_text() -> None:
    hidden = Response((Choice(0, "", Finish("length", "length")),), Usage(completion=9, reasoning=9))
    assert lost_texts(hidden) == ()


def test_every_dialect_s_reply_is_noted_by_the_client() -> None:
    logprobs = {"tokens": ["a", "b", "c"], "token_logprobs": [-0.5, -0.5, -0.5], "top_logprobs": None}
    choice = {"index": 0, "text": "", "finish_reason": "length", "logprobs": logprobs}
    body = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}}
    request = Request("m", Input(text="a"), Sampling(max_tokens=3), Scoring(sampled=0))
    assert wires.read(get_dialect("openai_completions"), request, body).notes == NOTE
