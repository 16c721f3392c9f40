"""The completions reply shared by two dialects: finish reasons, ids in texts, the first prompt text."""

from __future__ import annotations

import msgspec
import pytest

from dialects import wires
from logproof.dialects.common.completions import check_counted, check_offsets
from logproof.dialects.openai_completions import OpenAICompletions
from logproof.errors import BadReply
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Schedule, Scoring

DIALECT = OpenAICompletions()


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_choice_that_the_engine_ended_is_refused(reason: str) -> None:
    with pytest.raises(BadReply, match=f"ended this choice with '{reason}'"):
        wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a", "finish_reason": reason}]})


@pytest.mark.parametrize(
    ("raw", "reason"),
    [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("weird", "other"), (None, "other")],
)
def test_finish_reasons_are_normalised_and_kept(raw: str | None, reason: str) -> None:
    lifted = wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a", "finish_reason": raw}]})
    assert (lifted.choices[0].finish.reason, lifted.choices[0].finish.raw) == (reason, raw)


def test_ids_of_logprobs_and_of_the_choice_must_agree() -> None:
    logprobs = {"tokens": ["token_id:5"], "token_logprobs": [-1.0]}
    answer = {"choices": [{"text": "a", "logprobs": logprobs, "token_ids": [6]}]}
    request = wires.request_of({"model": "m", "prompt": "x", "logprobs": 0})
    with pytest.raises(BadReply, match="name different tokens"):
        wires.read(DIALECT, request, answer)
    logprobs["tokens"], answer["choices"][0]["token_ids"] = ["a"], [6, 7]  # type: ignore[index]
    with pytest.raises(BadReply, match="1 entries for 2 token ids"):
        wires.read(DIALECT, request, answer)


def test_a_text_key_among_ids_is_refused() -> None:
    logprobs = {"tokens": ["token_id:5"], "token_logprobs": [-1.0], "top_logprobs": [{"token_id:5": -1.0, " a": -2.0}]}
    request = wires.request_of({"model": "m", "prompt": "x", "logprobs": 2})
    with pytest.raises(BadReply, match="keyed by text among ids"):
        wires.read(DIALECT, request, {"choices": [{"text": "a", "logprobs": logprobs}]})


def test_cached_and_reasoning_counts_are_lifted() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    lifted = wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a"}], "usage": details})
    assert (lifted.usage.cached, lifted.usage.reasoning, lifted.usage.prompt) == (4, 2, None)
    assert (
        wires.read(DIALECT, Request("m", Input(text="x")), {"choices": [{"text": "a"}]}, Facts()).usage.cached is None
    )


@pytest.mark.parametrize(
    ("tokens", "offsets"),
    [
        (["a", " bc", "d"], [0, 1, 4]),
        (["猫", "é", "x"], [0, 1, 2]),
        (["猫", "é", "x"], [0, 3, 5]),
        (["", "", "🦊", "x"], [5, 5, 5, 6]),
        (["一", "", "", "的"], [6, 7, 7, 8]),
        (["\ufffd", "\ufffd", "a"], [0, 1, 1]),
        (["bytes:\\xe2\\x80", "bytes:\\x99", "a"], [0, 0, 1]),
        (["token_id:5", "token_id:6"], [0, 1]),
        (["a", "bc", "d"], [-1, -1, -1]),
        (["a", "bc", "d"], [0, 0, 0]),
        (["a"], [7]),
        (["a"], None),
        ([], []),
    ],
)
def test_offsets_that_fit(tokens: list[str], offsets: list[int] | None) -> None:
    check_offsets(tokens, offsets, "/x")


@pytest.mark.parametrize(
    ("tokens", "offsets", "said"),
    [
        (["a", " bc", "d"], [0, 2, 4], r"text_offset/1: the token 'a' takes 2"),
        (["a", "d", "d"], [0, 4, 4], "text_offset/1"),
        (["d", "d"], [4, 4], "text_offset/1"),
        (["a", "b"], [1, 0], r"text_offset/1: .* begins before"),
        (["token_id:5", "token_id:6"], [1, 0], "begins before"),
        (["a", "b"], [0], "1 entries for 2 tokens"),
    ],
)
def test_offsets_that_do_not(tokens: list[str], offsets: list[int], said: str) -> None:
    with pytest.raises(BadReply, match=said):
        check_offsets(tokens, offsets, "/x")


@pytest.mark.parametrize(
    ("reported", "named", "stream", "known"),
    [
        (3, False, False, True),
        (3, False, True, True),
        (0, False, False, True),
        (None, True, False, True),
        (None, True, True, False),
        (None, False, False, False),
    ],
)
def test_scored_tokens_are_counted_by_something_else(
    reported: int | None, named: bool, stream: bool, known: bool
) -> None:
    plain = Request("m", Input(text="x"), schedule=Schedule(stream=stream))
    check_counted(plain, reported, named=named)
    for scoring in (Scoring(sampled=0), Scoring(label_ids=(1,))):
        scored = msgspec.structs.replace(plain, scoring=scoring)
        if known:
            check_counted(scored, reported, named=named)
            continue
        with pytest.raises(BadReply, match="how many tokens were sampled"):
            check_counted(scored, reported, named=named)
