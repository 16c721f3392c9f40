"""The client's whole path against a real socket: refuse before sending, send, lift, check, mark."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec
import pytest

from client.asked import RECORDED, SCORE, call
from dialects import wires
from fakes.server import FakeServer, Reply
from logproof.client import client as client_module
from logproof.client.client import Client
from logproof.dialects.lower import lower
from logproof.dialects.registry import dialect_ids, get_dialect
from logproof.dialects.vllm_native import VLLMNative
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
from logproof.ir.request import Input, Replay, Sampling, Scoring

ROUTE = "/v1/completions"


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
    assert (done.dialect, done.attempts, done.notes) == ("vllm_native", 1, ())
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
    notes = call(fake, SCORE, Facts(models=("other", "more"), fingerprint="build-1")).notes
    assert notes[0] == "the reply names model 'smollm2', the probe saw other, more"
    assert "differs from the probe's 'build-1'" in notes[1]
    same = Facts(models=("smollm2",), fingerprint=wires.load("vllm_native", RECORDED.stem).json()["system_fingerprint"])
    assert call(fake, SCORE, same).notes == ()


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
