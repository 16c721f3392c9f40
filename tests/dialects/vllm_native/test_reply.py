"""vllm_native: a prompt channel or label scores that are not whole are refused, each for its reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dialects import wires
from logproof.dialects.vllm_native import VLLMNative
from logproof.errors import BadReply, MissingChannel
from logproof.http.exchange import SseEvent
from logproof.ir.request import Input, Request, Sampling, Scoring

DIALECT = VLLMNative()
FOLDER = "vllm_native"


def ask(scoring: Scoring) -> Request:
    return Request("m", Input(text="Hi"), sampling=Sampling(max_tokens=4), scoring=scoring)


def score(entries: Any, ids: Any, usage: int | None = None, width: int = 1) -> Any:
    request = ask(Scoring(prompt=width))
    choice = {"index": 0, "text": "x", "finish_reason": "length", "prompt_logprobs": entries, "prompt_token_ids": ids}
    reply: dict[str, object] = {"choices": [choice]}
    if usage is not None:
        reply["usage"] = {"prompt_tokens": usage}
    return wires.read(DIALECT, request, reply).prompt


def entry(logprob: float, rank: int | None = None, text: str | None = None) -> dict[str, object]:
    return {"logprob": logprob, "rank": rank, "decoded_token": text}


ROW = {"8": entry(-0.5, 1, "b"), "9": entry(-3.0, 7, "c")}


@pytest.mark.parametrize(
    ("entries", "ids", "usage", "reason"),
    [
        ([None], [5, 8], None, "1 entries for 2 prompt token ids"),
        ([None], [5], 12, "12"),
        ([None, ROW], [5, 9], 3, "usage says 3"),
        ([None, {"8": entry(-0.5, 1)}, None], [5, 8, 9], None, "token 9 is not among"),
        ([{"5": entry(-1.0, 1)}, {"8": entry(-0.5, 1)}], [5, 8], None, "first prompt token"),
        ([None, {"7": entry(-0.5, 1)}], [5, 8], None, "token 8 is not among"),
        ([None, {"8": entry(-0.5, 1), "9": entry(-1, 2), "7": entry(-2, 3)}], [5, 8], None, "3 entries for a top 1"),
        ([None, {"8": entry(-0.5, 1), "9": entry(-1.0, 2)}], [5, 8], None, "scored token is not the last"),
        ([None, {"8": entry(0.5, 1)}], [5, 8], None, "rank 1 does not go with"),
        ([None, {"8": entry(0.5)}], [5, 8], None, "0.5 is no logprob"),
        ([None, {"8": entry(-0.5, 0)}], [5, 8], None, "rank 0 does not go with"),
        ([None, {"8": entry(-9999.0, 1)}], [5, 8], None, "rank 1 does not go with"),
        ([None, {"8": entry(-0.5, 3)}], [5, 8], None, "rank 3 does not go with"),
        ([None, {"8": entry(-0.9, 1), "9": entry(-0.8, 2)}], [5, 8], None, "different orders"),
        ([], [], None, "first prompt token"),
        ([None, {"8": entry(-0.5, 1)}], [5, -8], None, "is no token id"),
        ([None, {"8": entry(-0.5, 1)}], [5, 2**31], None, "is no token id"),
        ([None, {"8": entry(-0.5, 1)}], [5, 2**70], None, "bad reply"),
    ],
)
def test_a_prompt_channel_that_is_not_whole_is_refused(entries: Any, ids: Any, usage: int | None, reason: str) -> None:
    with pytest.raises(BadReply, match=reason):
        score(entries, ids, usage)


def test_at_width_0_a_position_holds_its_token_alone() -> None:
    with pytest.raises(BadReply, match="2 entries where one was asked"):
        score([None, ROW], [5, 9], 2, width=0)
    assert score([None, {"9": entry(-3.0, 7)}], [5, 9], 2, width=0).texts == (None, None)


def test_an_impossible_prompt_token_is_minus_infinity() -> None:
    prompt = score([None, {"8": entry(-9999.0, 900, "b")}], [5, 8], 2)
    assert prompt.logprobs[1] == -math.inf


def test_choices_that_name_different_prompts_are_refused() -> None:
    exchange = wires.load(FOLDER, "comp_n2_ids_lp3")
    reply = exchange.json()
    reply["choices"][1]["prompt_token_ids"] = [1]
    with pytest.raises(BadReply, match="different prompts"):
        wires.read(DIALECT, wires.request_of(exchange.request), reply)


def label_reply(top: Any, tokens: Any = ("token_id:7",), values: Any = (-0.25,)) -> Any:
    logprobs = {"tokens": tokens, "token_logprobs": values, "top_logprobs": top}
    return {"choices": [{"index": 0, "text": "x", "finish_reason": "length", "logprobs": logprobs, "token_ids": [7]}]}


def test_label_scores_are_exact_and_each_label_is_there() -> None:
    request = ask(Scoring(label_ids=(5, 7)))
    top = [{"token_id:7": -0.25, "token_id:5": -3.0}]
    labels = wires.read(DIALECT, request, label_reply(top)).choices[0].labels
    assert labels is not None
    assert (labels.ids.tolist(), labels.logprobs.tolist(), labels.meaning) == ([5, 7], [[-3.0, -0.25]], "raw")
    for damaged, reason in (([{"token_id:7": -0.25}], r"label ids \[5\]"), (None, "label scores were asked")):
        with pytest.raises(MissingChannel, match=reason):
            wires.read(DIALECT, request, label_reply(damaged))


def test_label_scores_without_any_position_are_missing() -> None:
    request = ask(Scoring(label_ids=(5,)))
    with pytest.raises(MissingChannel):
        wires.read(DIALECT, request, label_reply([], (), ()))


def test_a_dialect_without_streams_refuses_events() -> None:
    with pytest.raises(BadReply, match="no streamed form, yet 1 events came"):
        DIALECT.assemble((SseEvent(None, "[DONE]"),))
