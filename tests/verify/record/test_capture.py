"""Capture against a tiny engine of these tests' own, prompt files, and what captures are kept in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fakes.server import FakeServer, Reply
from logproof.errors import AuthError, BadReply, DatasetError, TransportError, UsageError
from logproof.ir.response import Tokens, TopK
from logproof.parallel import in_order
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact, Sent, artifact_digest, seal
from logproof.verify.artifact.columns import columns_of
from logproof.verify.artifact.seeds import derive_seed, seed_is_bound
from logproof.verify.record.capture import capture, capture_one, recorded_sampling
from logproof.verify.record.defaults import stated
from logproof.verify.record.prompts import prompts
from logproof.verify.stats.sampler import Sampler
from verify.builders import FLOAT32, LOOSE, finding, judged, policy, requires
from verify.parts import NOW, PINS, PROMPTS, TINY_POLICY, captured, claim, one, replayed, run
from verify.tiny import FACTS, ROUTE, TINY_VOCAB, Tiny, facts, open_tiny, serve


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no prompt"),
        (b"{", "x:1"),
        (b'{"text": "a"}\n{"prompt": "b"}', "x:2"),
        (b'{"id": "a"}', "exactly one"),
        (b'{"text": ""}', "exactly one"),
        (b'{"text": "a", "token_ids": [1]}', "exactly one"),
        (b'{"text": "a", "id": "q"}\n{"text": "b", "id": "q"}', "occurs twice"),
        (b'{"messages": [{"role": "robot", "content": "a"}]}', "x:1"),
        (b'{"text": "a", "output": {}}', "exactly one of json_schema"),
        (b'{"text": "a", "output": {"regex": "a", "choice": ["b"]}}', "exactly one of json_schema"),
        (b'{"text": "a", "output": {"json": {}}}', "exactly one of json_schema"),
        (b'{"text": "a", "output": {"regex": 3}}', "x:1: output"),
        (b"\xff", "x:1"),
    ],
)
def test_prompt_files_that_cannot_be_used(data: bytes, words: str) -> None:
    with pytest.raises((DatasetError, UsageError), match=words):
        prompts(data, "x")


def test_prompt_forms() -> None:
    found = prompts(
        '{"text": "猫"}\n\n{"token_ids": [1, 2]}\n{"messages": [{"role": "user", "content": "🦊"}]}'.encode()
    )
    assert [p.id for p in found] == ["1", "3", "4"]
    assert found[0].input.text == "猫"
    assert found[1].input.token_ids == (1, 2)
    assert found[2].input.messages is not None


def test_prompt_file_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logproof.verify.record.prompts.MAX_PROMPTS_BYTES", 3)
    with pytest.raises(UsageError, match="limit"):
        prompts(b'{"text": "a"}')


def test_a_capture_pins_every_sampling_leaf(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake, msgspec.structs.replace(PINS, sampler=Sampler(0.7, 8, 0.9, 0.01)))
    body = fake.seen[-1].json()
    assert {k: body[k] for k in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "n", "stop")} == {
        "temperature": 0.7,
        "top_k": 8,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.0,
        "n": 1,
        "stop": [],
    }
    assert made.sampling.unresolved() == ()
    assert seed_is_bound(made)
    assert body["seed"] == derive_seed("n", "p0")
    assert made.seal is not None
    assert made.seal.digest == artifact_digest(made)
    assert made.request.body == body
    assert len(made.tokens.completion_ids or ()) == made.end.usage.completion == 20
    assert made.provenance.fingerprint == "fp-tiny"
    assert made.claim.model.vocab_size == TINY_VOCAB


def test_top_k_off_is_sent_as_such(fake: FakeServer) -> None:
    serve(fake, Tiny())
    assert one(fake).sampling.top_k == 0
    assert fake.seen[-1].json()["top_k"] == -1
    assert one(fake, msgspec.structs.replace(PINS, nonce=None)).sampling.seed is None


def test_what_a_foreign_endpoint_cannot_pin_stays_unresolved(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake, PINS, facts(engine="openai"))
    assert "min_p" not in fake.seen[-1].json()
    assert {"top_k", "min_p", "repetition_penalty", "min_tokens"} <= set(made.sampling.unresolved())
    got = judged(made, run(replayed(fake, made)), TINY_POLICY, NOW)
    assert got.status == "inconclusive"
    assert "unresolved" in " ".join(got.reasons)
    off = {"bad_words": [], "allowed_ids": [], "stop_token_ids": [], "min_tokens": 0, "ignore_eos": False}
    told = stated({"top_k": 0, "min_p": 0, "repetition_penalty": 1, **off})
    whole = one(fake, msgspec.structs.replace(PINS, defaults=told), facts(engine="openai"))
    assert (whole.sampling.unresolved(), whole.sampling.sources["min_p"]) == ((), "operator")
    assert judged(whole, run(replayed(fake, whole)), policy(k=10, requires=LOOSE), NOW).status == "valid"


def test_a_record_states_what_left_not_what_was_wanted() -> None:
    """A leaf that was dropped from the body is unresolved, and so is all of a body that cannot be read."""
    pins = msgspec.structs.replace(PINS, defaults=stated({"min_p": 0.0}))
    sent = Sent(dialect="vllm_native", path=ROUTE, body={"temperature": 0.5, "seed": 3})
    made = recorded_sampling(sent, PROMPTS[0], pins, "vllm")
    assert (made.temperature, made.top_p, made.min_p, made.stop) == (0.5, None, 0.0, ())
    assert made.seed is not None
    assert (made.seed.value, made.seed.origin) == (3, "derived")
    unseeded = recorded_sampling(msgspec.structs.replace(sent, body={"temperature": 0.5}), PROMPTS[0], pins, "vllm")
    assert unseeded.seed is None
    other = recorded_sampling(msgspec.structs.replace(sent, dialect="toy"), PROMPTS[0], pins, "vllm")
    assert (other.temperature, other.min_p, other.sources) == (None, 0.0, {"min_p": "operator"})


def test_fixed_format_is_recorded_with_its_step(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = one(fake, msgspec.structs.replace(PINS, denominator=1024))
    assert made.logprobs is not None
    assert 0 < made.logprobs.step <= 0.5 / 1024
    replay = run(replayed(fake, made))
    assert judged(made, replay, TINY_POLICY, NOW).status == "valid"
    other = judged(made, replay, policy(k=10, requires=requires(numbers=(FLOAT32,))), NOW)
    assert (other.status, finding(other, "policy").reason) == ("inconclusive", "number_format")


def test_a_prompt_that_fails_is_kept_apart(fake: FakeServer) -> None:
    engine = serve(fake, Tiny())
    engine.edit = lambda body, reply: Reply(500, json={"error": "no"}) if body["prompt"] == "prompt 1" else reply
    found = run(captured(fake, count=3))
    assert [c.artifact is None for c in found] == [False, True, False]
    assert found[1].error is not None
    engine.edit = lambda body, reply: Reply(401, json={"error": "no key"})
    with pytest.raises(AuthError):
        run(captured(fake))


@pytest.mark.parametrize("output", [{"regex": "(((("}, {"choice": []}])
def test_nothing_is_sent_before_every_prompt_can_be(fake: FakeServer, output: dict[str, object]) -> None:
    serve(fake, Tiny())
    known = facts(fields={ROUTE: (*FACTS.fields[ROUTE], "structured_outputs")})
    given = prompts(b'{"text": "a"}\n' + json.dumps({"text": "b", "output": output}).encode(), "x.jsonl")

    async def work() -> None:
        async with open_tiny(fake, known) as connection:
            async for _ in capture(connection, given, PINS, claim()):
                pass

    with pytest.raises(UsageError, match=r"^x\.jsonl:2: "):
        run(work())
    assert fake.seen == []


def test_impossible_tokens_are_left_out() -> None:
    top = TopK(offsets=np.array([0, 3]), logprobs=np.array([-0.1, -np.inf, -9999.0]), ids=np.array([4, 5, 6]))
    tokens = Tokens(logprobs=np.array([-0.1]), meaning="raw", ids=np.array([4]), top=top)
    assert columns_of(tokens).ids.tolist()[0][:1] == [4]
    assert columns_of(tokens).present.sum() == 1
    bare = msgspec.structs.replace(tokens, top=None)
    assert columns_of(bare).width == 0
    for broken in (
        msgspec.structs.replace(tokens, ids=None),
        msgspec.structs.replace(tokens, top=msgspec.structs.replace(top, ids=None)),
    ):
        with pytest.raises(BadReply, match="without ids"):
            columns_of(broken)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("denominator", [None, 1024])
def test_files_keep_artifacts_to_the_last_bit(
    fake: FakeServer, tmp_path: Path, suffix: str, denominator: int | None
) -> None:
    serve(fake, Tiny())
    pins = msgspec.structs.replace(PINS, denominator=denominator)
    made = [c.artifact for c in run(captured(fake, pins, 3)) if c.artifact is not None]
    bare = seal(msgspec.structs.replace(made[0], positions=None, logprobs=None))
    path = tmp_path / f"a{suffix}"
    assert artifact_files.write(path, [*made, bare]) == 4
    back = list(artifact_files.read(path))
    assert back == [*made, bare]
    assert [artifact_digest(a) for a in back] == [artifact_digest(a) for a in (*made, bare)]


def test_a_single_call(fake: FakeServer) -> None:
    serve(fake, Tiny())

    async def work() -> Artifact:
        async with open_tiny(fake) as connection:
            return (await capture_one(connection, PROMPTS[0], PINS, claim()))[0]

    assert run(work()).tokens == one(fake).tokens


def test_in_order_keeps_order_and_cancels() -> None:
    running = []

    async def job(i: int) -> int:
        running.append(i)
        await asyncio.sleep(0.001 * (3 - i))
        if i == 9:
            raise TransportError("no")
        return i

    async def work(count: list[int]) -> list[int]:
        return await in_order([lambda i=i: job(i) for i in count], 2)

    assert run(work([0, 1, 2])) == [0, 1, 2]
    with pytest.raises(TransportError):
        run(work([9, 0, 1]))
    assert np.isfinite(running).all()
