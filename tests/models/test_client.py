"""The client's whole path against a real socket: refuse before sending, send, lift, check, mark."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from fakes.server import FakeServer, Reply
from logproof.errors import (
    AuthError,
    BadReply,
    ContextOverflow,
    EndpointError,
    InvalidRequest,
    MissingChannel,
    ModelNotFound,
    RateLimited,
    RequestRefused,
    ServerFault,
    StatusError,
    TransportError,
)
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Output, Replay, Request, Sampling, Scoring
from logproof.ir.response import Choice, Finish, Labels, Response, Tokens, TopK, Usage
from logproof.models import channels
from logproof.models import client as client_module
from logproof.models.client import Call, Client, lower
from logproof.models.dialects import dialect_ids, get_dialect
from logproof.models.dialects.openai_completions import OpenAICompletions
from logproof.models.dialects.vllm_native import VLLMNative
from logproof.wire.endpoint import endpoint
from logproof.wire.message import WireReply
from logproof.wire.retry import RetryPolicy
from logproof.wire.transport import Transport
from models import wires

ROUTE = "/v1/completions"
SCORE = Request("smollm2", Input(text="The capital of France is"), sampling=Sampling(1, 0.0), scoring=Scoring(prompt=3))
RECORDED = wires.REPLIES / "vllm_native" / "comp_score_en_pl3_ids.json"


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def call(
    fake: FakeServer, request: Request, facts: Facts | None = None, *, drop: tuple[str, ...] = (), echo: bool = False
) -> Call:
    async def run() -> Call:
        place = endpoint(fake.url, key="sk-test-ABC123", env={})
        async with Transport(place, policy=RetryPolicy(attempts=1)) as transport:
            dialect = OpenAICompletions() if echo else VLLMNative()
            return await Client(transport, dialect, facts, drop=drop).call(request)

    return asyncio.run(run())


def test_the_whole_path(fake: FakeServer) -> None:
    fake.recorded(RECORDED)
    done = call(fake, SCORE)
    assert done.response.prompt is not None
    assert len(done.response.prompt) == 5
    (seen,) = fake.seen
    assert seen.json() == {
        "model": "smollm2",
        "prompt": "The capital of France is",
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": 3,
        "return_token_ids": True,
    }
    assert {d.leaf: d.pointer for d in done.decisions} == {
        "model": "/model",
        "input.text": "/prompt",
        "sampling.max_tokens": "/max_tokens",
        "sampling.temperature": "/temperature",
        "scoring.prompt": "/prompt_logprobs",
    }
    assert done.reply_digest == hashlib.sha256(done.reply.body).hexdigest()
    assert (done.dialect, done.attempts, done.marks) == ("vllm_native", 1, ())
    assert b"sk-test" not in msgspec.json.encode(done.wire)


def test_every_refusal_comes_at_once_and_before_anything_is_sent(fake: FakeServer) -> None:
    request = msgspec.structs.replace(
        SCORE,
        input=Input(text="a", suffix="b"),
        sampling=Sampling(max_tokens=0, seed=-1),
        options={"guided_json": {}},
    )
    with pytest.raises(RequestRefused) as caught:
        call(fake, request)
    leaves = [leaf for leaf, _ in caught.value.refusals]
    assert leaves == ["input.suffix", "sampling.max_tokens", "sampling.seed", "options.guided_json"]
    with pytest.raises(InvalidRequest):
        call(fake, msgspec.structs.replace(SCORE, scoring=Scoring(prompt=True)))
    assert fake.seen == []


@pytest.mark.parametrize(
    ("groups", "leaf"),
    [
        ({"input": Input(token_ids=(1, 9)), "scoring": Scoring()}, "input.token_ids"),
        ({"scoring": Scoring(label_ids=(9,))}, "scoring.label_ids"),
        ({"replay": Replay((1, 9))}, "replay.token_ids"),
        ({"sampling": Sampling(logit_bias={9: 1.0})}, "sampling.logit_bias"),
        ({"options": {"stop_token_ids": [9]}}, "options.stop_token_ids"),
        ({"options": {"allowed_token_ids": [9]}}, "options.allowed_token_ids"),
    ],
)
@pytest.mark.parametrize("dialect", dialect_ids())
def test_an_id_outside_the_vocabulary_is_never_sent(dialect: str, groups: dict[str, Any], leaf: str) -> None:
    facts = Facts(engine="vllm", vocab_size=9, fields={ROUTE: ("stop_token_ids", "allowed_token_ids")})
    with pytest.raises(RequestRefused) as caught:
        lower(msgspec.structs.replace(SCORE, **groups), get_dialect(dialect), facts)
    assert dict(caught.value.refusals)[leaf] == "id 9 is outside the vocabulary of 9"


class Letters:
    """A tokenizer of one id a letter."""

    async def encode(self, text: str) -> tuple[int, ...]:
        return self.known(text)

    def known(self, text: str) -> tuple[int, ...]:
        return tuple(ord(c) for c in text)

    async def decode(self, ids: Any) -> str:
        return "".join(map(chr, ids))

    async def text(self, token_id: int) -> str:
        return chr(token_id)


@pytest.mark.parametrize(
    ("given", "tokenizer", "said"),
    [
        (Input(text="a" * 6), Letters(), "of 6 tokens"),
        (Input(text="a" * 6), None, "no tokenizer to count"),
        (Input(token_ids=(1,) * 6), None, "of 6 tokens"),
    ],
)
def test_a_scored_prompt_above_the_limit_is_never_sent(
    given: Input, tokenizer: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_SCORED_TOKENS", 5)
    client = Client(wires.NoSender(), VLLMNative(), tokenizer=tokenizer)
    with pytest.raises(InvalidRequest, match=said):
        asyncio.run(client.call(msgspec.structs.replace(SCORE, input=given)))
    unscored = msgspec.structs.replace(SCORE, input=given, scoring=Scoring())
    with pytest.raises(AssertionError, match="was sent"):
        asyncio.run(client.call(unscored))


def test_a_bad_reply_names_the_server_that_gave_it() -> None:
    lacking = {"choices": [{"index": 0, "text": "x", "prompt_logprobs": [None], "prompt_token_ids": [5] * 12}]}
    with pytest.raises(BadReply, match="1 entries for 12") as caught:
        wires.read(VLLMNative(), SCORE, lacking, Facts(engine="vllm", version="0.11.0"))
    assert caught.value.hint == "the server is vllm 0.11.0"
    with pytest.raises(BadReply) as caught:
        wires.read(VLLMNative(), SCORE, lacking)
    assert caught.value.hint is None


def test_a_dropped_leaf_is_left_out_and_stays_on_record(fake: FakeServer) -> None:
    fake.recorded(RECORDED)
    done = call(fake, msgspec.structs.replace(SCORE, options={"frob": 1}), drop=("options.frob",))
    assert [d.kind for d in done.decisions if d.leaf == "options.frob"] == ["dropped"]
    assert "frob" not in fake.seen[0].json()


def test_a_reply_of_another_model_or_build_is_marked(fake: FakeServer) -> None:
    fake.recorded(RECORDED)
    marks = call(fake, SCORE, Facts(models=("other", "more"), fingerprint="build-1")).marks
    assert marks[0] == "the reply names model 'smollm2', the probe saw other, more"
    assert "differs from the probe's 'build-1'" in marks[1]
    same = Facts(models=("smollm2",), fingerprint=wires.load("vllm_native", RECORDED.stem).json()["system_fingerprint"])
    assert call(fake, SCORE, same).marks == ()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(401, json={"error": {"message": "no key"}}), AuthError),
        (Reply(404, json={"error": {"message": "The model `x` does not exist."}}), ModelNotFound),
        (Reply(404, json={"detail": "Not Found"}), StatusError),
        (Reply(429, json={"error": {"message": "slow down"}}), RateLimited),
        (Reply(500, json={"error": {"message": "broken"}}), ServerFault),
        (Reply(400, json={"error": {"message": "maximum context length is 2048"}}), ContextOverflow),
        (Reply(body="<html><title>Login</title></html>", headers={"content-type": "text/html"}), BadReply),
        (Reply(body='{"choices": [{"te', headers={"content-type": "application/json"}), BadReply),
        (Reply(body='{"choices": [], "usage": {"prompt_tokens": NaN}}'), BadReply),
        (Reply(json={"choices": [], "usage": None}), BadReply),
        (Reply(json=[]), BadReply),
        (Reply(json={"error": {"message": "broken inside", "code": 500}}), StatusError),
        (Reply(json={"choices": [{"index": 0, "text": "x"}]}), MissingChannel),
        (Reply(json={"choices": []}, cut=5), TransportError),
        (Reply(drop=True), TransportError),
    ],
)
def test_every_fault_of_the_other_side_is_typed(fake: FakeServer, reply: Reply, kind: type[EndpointError]) -> None:
    fake.on(ROUTE, reply)
    with pytest.raises(kind) as caught:
        call(fake, SCORE)
    assert "sk-test" not in str(caught.value)
    assert len(str(caught.value)) < 900


def test_an_echoed_key_is_masked(fake: FakeServer) -> None:
    fake.on(ROUTE, lambda seen: Reply(422, json={"detail": f"bad header {seen.headers['authorization']}"}))
    with pytest.raises(StatusError) as caught:
        call(fake, SCORE)
    assert "ABC123" not in f"{caught.value}{caught.value.hint}"


def test_each_reply_is_checked_on_its_own(fake: FakeServer) -> None:
    whole = wires.load("vllm_native", RECORDED.stem).json()
    lacking = {**whole, "choices": [{**whole["choices"][0], "prompt_logprobs": None}]}
    fake.on(ROUTE, whole, lacking, whole)
    assert call(fake, SCORE).response.prompt is not None
    with pytest.raises(MissingChannel):
        call(fake, SCORE)
    assert call(fake, SCORE).response.prompt is not None


def test_a_stream_goes_through_the_same_lift(fake: FakeServer) -> None:
    file = wires.REPLIES / "openai_completions" / "comp_stream_lp3_ids.json"
    fake.recorded(file)
    request = wires.request_of(wires.load("openai_completions", file.stem).request)
    done = call(fake, request, echo=True)
    assert done.reply.events is not None
    assert done.response.choices[0].tokens is not None
    assert fake.seen[0].json()["stream"] is True


def test_a_stream_with_an_error_inside_is_the_servers_error(fake: FakeServer) -> None:
    chunk = {"choices": [{"index": 0, "text": "a"}]}
    fake.on(ROUTE, Reply(events=[chunk, {"error": {"message": "engine died", "code": 500}}]))
    request = wires.request_of(wires.load("openai_completions", "comp_stream_plain").request)
    with pytest.raises(StatusError, match="engine died"):
        call(fake, request, echo=True)


def tokens(n: int = 2, *, meaning: Any = "raw", **columns: Any) -> Tokens:
    return Tokens(np.full(n, -1.0), meaning, **columns)


def choice(**parts: Any) -> Choice:
    return Choice(**{"index": 0, "text": "x", "finish": Finish("stop", "stop"), **parts})


def checked(request: Request, facts: Facts | None = None, usage: Usage | None = None, **parts: Any) -> None:
    response = parts.pop("response", {})
    made = Response((choice(**parts),), usage or Usage(), **response)
    channels.check(request, made, facts or Facts())


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
