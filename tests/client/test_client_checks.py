"""What the client holds every response to: what was asked is there, whole, and of a stated meaning."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from client.asked import RECORDED, SCORE
from dialects import wires
from fakes.server import FakeServer
from logproof.client.client import Client
from logproof.dialects import reply_checks
from logproof.dialects.call import Call
from logproof.dialects.registry import get_dialect
from logproof.dialects.vllm_native import VLLMNative
from logproof.errors import (
    BadReply,
)
from logproof.http.endpoint import endpoint
from logproof.http.exchange import WireReply
from logproof.http.transport import Transport
from logproof.ir.facts import Facts
from logproof.ir.message import text_message
from logproof.ir.request import Input, Output, Replay, Request, Sampling, Scoring
from logproof.ir.response import Choice, Finish, Labels, Response, Tokens, TopK, Usage


def tokens(n: int = 2, *, meaning: Any = "raw", **columns: Any) -> Tokens:
    return Tokens(np.full(n, -1.0), meaning, **columns)


def choice(**parts: Any) -> Choice:
    return Choice(**{"index": 0, "text": "x", "finish": Finish("stop", "stop"), **parts})


def checked(request: Request, facts: Facts | None = None, usage: Usage | None = None, **parts: Any) -> None:
    response = parts.pop("response", {})
    made = Response((choice(**parts),), usage or Usage(), **response)
    reply_checks.check(request, made, facts or Facts())


PLAIN = Request("m", Input(text="x"))
SAMPLED = msgspec.structs.replace(PLAIN, scoring=Scoring(sampled=1))
PROMPT = msgspec.structs.replace(PLAIN, scoring=Scoring(prompt=0))
IDS = np.array([5, 6])
TOP = TopK(np.array([0, 1, 2]), np.array([-1.0, -1.0]), np.array([5, 6]))


@pytest.mark.parametrize(
    ("request_", "parts", "message"),
    [
        (SAMPLED, {}, "sampled logprobs were asked"),
        (SAMPLED, {"tokens": tokens()}, "top entries were asked"),
        (SAMPLED, {"tokens": tokens(top=TOP), "token_ids": np.array([5])}, "2 logprobs for 1 token ids"),
        (SAMPLED, {"tokens": tokens(3, top=TOP)}, "2 top positions for 3 tokens"),
        (SAMPLED, {"tokens": tokens(ids=np.array([1]), top=TOP)}, "1 ids for 2 logprobs"),
        (SAMPLED, {"tokens": tokens(texts=("a",), top=TOP)}, "1 texts for 2 logprobs"),
        (SAMPLED, {"tokens": Tokens(np.array([np.nan, -1.0]), "raw", top=TOP)}, "an unscored sampled token"),
        (SAMPLED, {"tokens": Tokens(np.array([-np.inf, -1.0]), "unknown", top=TOP)}, "probability zero"),
        (SAMPLED, {"tokens": tokens(top=TOP), "usage": Usage(completion=5)}, "2 sampled tokens, usage says 5"),
        (SAMPLED, {"tokens": tokens(top=TOP), "facts": Facts(vocab_size=6)}, "id 6 in a vocabulary of 6"),
        (PLAIN, {"usage": Usage(prompt=-1)}, "-1 prompt tokens"),
        (PLAIN, {"usage": Usage(cached=-2)}, "-2 cached tokens"),
        (SAMPLED, {"tokens": tokens(top=TOP), "usage": Usage(3, 2, 6)}, "3 and 2 tokens do not make 6"),
        (PLAIN, {"index": 1}, r"choices \[1\] for 1 asked"),
        (PROMPT, {}, "prompt logprobs were asked"),
        (PROMPT, {"response": {"prompt": tokens()}}, "nothing in the reply says how many"),
        (PROMPT, {"response": {"prompt": tokens()}, "usage": Usage(prompt=3)}, "usage.prompt_tokens says 3"),
        (PROMPT, {"response": {"prompt": tokens(3), "prompt_ids": IDS}}, "prompt token ids says 2"),
        (
            msgspec.structs.replace(PLAIN, scoring=Scoring(prompt=1)),
            {"response": {"prompt": tokens(), "prompt_ids": IDS}},
            "prompt's top entries",
        ),
        (
            PROMPT,
            {"response": {"prompt": Tokens(np.array([np.nan, np.nan]), "raw"), "prompt_ids": IDS}},
            "unscored position inside",
        ),
        (
            msgspec.structs.replace(PLAIN, input=Input(token_ids=(5, 7))),
            {"response": {"prompt_ids": IDS}},
            "another prompt than the ids that were sent",
        ),
        (PLAIN, {"response": {"prompt_ids": IDS}, "usage": Usage(prompt=3)}, "2 prompt token ids, usage says 3"),
        (msgspec.structs.replace(PLAIN, scoring=Scoring(label_ids=(1,))), {}, "label scores were asked"),
        (msgspec.structs.replace(PLAIN, output=Output(json_object=True)), {}, "structured output was asked"),
        (msgspec.structs.replace(PLAIN, replay=Replay((5, 6))), {}, "a replay needs the emitted ids"),
        (
            msgspec.structs.replace(PLAIN, replay=Replay((5, 7))),
            {"token_ids": IDS},
            "replay was not enforced",
        ),
    ],
)
def test_a_response_that_is_not_what_was_asked_is_refused(
    request_: Request, parts: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadReply, match=message):
        checked(request_, **parts)


def test_a_response_that_is_whole_passes() -> None:
    checked(SAMPLED, Facts(vocab_size=7), Usage(completion=2), tokens=tokens(ids=IDS, top=TOP), token_ids=IDS)
    checked(msgspec.structs.replace(PLAIN, replay=Replay((5, 6))), token_ids=np.array([5, 6, 7]))
    short = msgspec.structs.replace(PLAIN, replay=Replay((5, 6, 7)), sampling=Sampling(max_tokens=2))
    checked(short, token_ids=IDS)
    checked(msgspec.structs.replace(PLAIN, output=Output(json_schema={})), text=" null ", parsed=None)
    checked(SAMPLED, usage=Usage(completion=9, reasoning=7), tokens=tokens(top=TOP))


def test_impossible_rivals_stand_only_behind_a_mask() -> None:
    top = TopK(np.array([0, 0, 2]), np.array([-1.0, -np.inf]), np.array([5, 6]))
    with pytest.raises(BadReply, match="/choices/0/1: an impossible token among the best"):
        checked(SAMPLED, tokens=tokens(top=top))
    checked(SAMPLED, tokens=tokens(top=top, meaning="constrained"))


def served(logprob: float, rival: float) -> dict[str, object]:
    top = [{"token_id:7": logprob, "token_id:8": rival}]
    logprobs = {"tokens": ["token_id:7"], "token_logprobs": [logprob], "top_logprobs": top}
    return {"choices": [{"index": 0, "text": "x", "finish_reason": "length", "logprobs": logprobs, "token_ids": [7]}]}


def test_prompt_scores_stay_raw_whatever_the_server_reports_of_samples() -> None:
    exchange = wires.load("vllm_native", RECORDED.stem)
    prompt = wires.lifted(VLLMNative(), exchange, Facts(logprobs_mode="processed")).prompt
    assert prompt is not None
    assert prompt.meaning == "raw"


@pytest.mark.parametrize(
    ("mode", "asked", "meaning"),
    [("processed", None, "processed"), ("raw", None, "raw"), (None, None, "raw"), ("processed", "raw", "raw")],
)
def test_sampled_scores_bear_the_meaning_that_was_measured(mode: Any, asked: Any, meaning: str) -> None:
    request = msgspec.structs.replace(PLAIN, scoring=Scoring(sampled=2), replay=Replay(logprobs_mode=asked))
    lifted = wires.read(VLLMNative(), request, served(-0.5, -2.0), Facts(logprobs_mode=mode))
    assert lifted.choices[0].tokens is not None
    assert lifted.choices[0].tokens.meaning == meaning


@pytest.mark.parametrize("mode", ["raw", "processed", None])
def test_what_a_wire_does_not_tell_the_probe_may_know(mode: Any) -> None:
    request = msgspec.structs.replace(PLAIN, sampling=Sampling(temperature=0.0), scoring=Scoring(sampled=0))
    logprobs = {"tokens": ["x"], "token_logprobs": [-0.5], "top_logprobs": None}
    choice = {"index": 0, "text": "x", "finish_reason": "length", "logprobs": logprobs}
    reply = {"choices": [choice], "usage": {"completion_tokens": 1}}
    lifted = wires.read(get_dialect("openai_completions"), request, reply, Facts(logprobs_mode=mode))
    assert lifted.choices[0].tokens is not None
    assert lifted.choices[0].tokens.meaning == (mode or "unknown")


def test_masked_rivals_of_a_processed_server_are_lifted() -> None:
    request = msgspec.structs.replace(PLAIN, scoring=Scoring(sampled=2))
    lifted = wires.read(VLLMNative(), request, served(0.0, -9999.0), Facts(logprobs_mode="processed"))
    assert lifted.choices[0].tokens is not None
    with pytest.raises(BadReply, match="impossible"):
        wires.read(VLLMNative(), request, served(0.0, -9999.0), Facts(logprobs_mode="raw"))


def test_masked_rivals_of_a_processed_server_are_lifted_from_a_chat_too() -> None:
    """Its lists are read while they are lifted, so what the server reports has to be known there."""
    rivals = [{"token": f"token_id:{t}", "logprob": v} for t, v in ((7, 0.0), (8, -9999.0), (9, -9999.0))]
    entry = {"token": "token_id:7", "logprob": 0.0, "bytes": None, "top_logprobs": rivals}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}
    choice |= {"logprobs": {"content": [entry]}, "token_ids": [7]}
    reply = {"choices": [choice], "prompt_token_ids": [1, 2], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    request = Request("m", Input(messages=(text_message("user", "x"),)), scoring=Scoring(sampled=2))
    lifted = wires.read(get_dialect("openai_chat"), request, reply, Facts(engine="vllm", logprobs_mode="processed"))
    assert lifted.choices[0].tokens is not None
    assert lifted.choices[0].tokens.meaning == "processed"
    with pytest.raises(BadReply, match="impossible"):
        wires.read(get_dialect("openai_chat"), request, reply, Facts(engine="vllm", logprobs_mode="raw"))


def test_label_scores_bear_it_too() -> None:
    request = msgspec.structs.replace(PLAIN, scoring=Scoring(label_ids=(7, 8)))
    labels = wires.read(VLLMNative(), request, served(-0.5, -2.0), Facts(logprobs_mode="processed")).choices[0].labels
    assert isinstance(labels, Labels)
    assert labels.meaning == "processed"


def test_a_reply_is_read_without_a_server() -> None:
    exchange = wires.load("vllm_native", RECORDED.stem)
    client = Client(wires.NoSender(), VLLMNative())
    assert client.read(SCORE, WireReply(200, (), exchange.body)).model == "smollm2"


def test_a_dropped_leaf_is_neither_sent_nor_expected_back() -> None:
    facts = Facts(engine="vllm", max_logprobs=5)
    reply = {
        "choices": [{"index": 0, "text": "b", "finish_reason": "length", "token_ids": [1], "prompt_token_ids": [0]}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    request = Request("m", Input(text="a"), sampling=Sampling(max_tokens=1), scoring=Scoring(sampled=9))
    with FakeServer() as fake:
        fake.on("/v1/completions", reply)

        async def call() -> Call:
            async with Transport(endpoint(fake.url)) as transport:
                client = Client(transport, VLLMNative(), facts, drop=["scoring.sampled"])
                return await client.call(request)

        made = asyncio.run(call())
        assert "logprobs" not in fake.seen[0].json()
    assert made.response.choices[0].tokens is None
    assert {d.leaf: d.kind for d in made.decisions}["scoring.sampled"] == "dropped"
    assert made.request is request
