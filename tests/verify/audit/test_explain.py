"""Explanations of rejected records, and text that is made ids again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.errors import EndpointError
from logproof.ir.facts import Facts
from logproof.ir.request import Input
from logproof.verify.artifact.artifact import Artifact
from logproof.verify.audit import explain as cf
from logproof.verify.audit.verify import verify
from logproof.verify.record.capture import capture_one
from logproof.verify.record.prompts import Prompt
from logproof.verify.replay.retokenise import retokenise
from logproof.verify.verdict import Verdict
from verify.builders import FLAT, PLAIN, change, draw, logits, noisy, own_request, record
from verify.parts import PINS, TINY_POLICY, claim
from verify.tiny import FACTS, Tiny, open_tiny, serve

replace = msgspec.structs.replace
SYSTEM, USER = "be kind", "hi"
SEEN = (9, 11, 13)
"""What the cheating executor's model saw."""
LEFT_OUT = (21, 22, 23)


TABLE = {SYSTEM: LEFT_OUT, USER: SEEN, f"{SYSTEM}\n{USER}": (30, 31), "": (), "ab": (3,)}
TEXTS = {LEFT_OUT: SYSTEM, SEEN: USER, (3,): "ab", (1, 2): "ab", (30, 31): "other"}


class Words:
    """A tokenizer with an id a text, a start token, and one pair that merges: "a" "b" decode to the text of "ab"."""

    def __init__(self, start: tuple[int, ...] = (), broken: bool = False) -> None:
        self.start, self.broken = start, broken

    async def encode(self, text: str) -> tuple[int, ...]:
        if self.broken:
            raise EndpointError("the tokenizer is gone")
        return self.start + TABLE[text]

    def known(self, text: str) -> tuple[int, ...] | None:
        return None

    async def decode(self, ids: Sequence[int]) -> str:
        return TEXTS[tuple(ids)]

    async def text(self, token_id: int) -> str:
        return str(token_id)


def test_windows_leave_something_out_and_something_over() -> None:
    assert [(a.name, a.prompt_ids) for a in cf.windows((1, 2, 3, 4))] == [
        ("the last 75% of the prompt", (2, 3, 4)),
        ("the last 50% of the prompt", (3, 4)),
        ("the last 25% of the prompt", (4,)),
    ]
    assert cf.windows((1,)) == []


@pytest.mark.parametrize(
    ("part", "left"),
    [((2, 3), (1, 4, 2, 3)), ((1,), (2, 3, 4, 2, 3)), ((9,), None), ((), None), ((1, 2, 3, 4, 2, 3), None)],
)
def test_a_part_of_a_prompt_is_taken_out_once(part: tuple[int, ...], left: tuple[int, ...] | None) -> None:
    assert cf.without((1, 2, 3, 4, 2, 3), part) == left


def chat(made: Artifact, body: object) -> Artifact:
    """The record with a chat request of the same sampling."""
    assert isinstance(made.request.body, dict)
    assert made.logprobs is not None
    fields = {k: v for k, v in made.request.body.items() if k not in ("prompt", "messages")}
    if isinstance(body, dict):
        body = {**fields, "logprobs": True, "top_logprobs": made.logprobs.k + 1, **body}
    return change(made, request=replace(made.request, dialect="openai_chat", path="/v1/chat/completions", body=body))


MESSAGES = {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}], "model": "tiny"}


def claimed_prompt(fake: FakeServer, seen: tuple[int, ...], told: tuple[int, ...]) -> Artifact:
    """A record of an executor whose model saw one prompt and that claims another."""

    async def work() -> Artifact:
        async with open_tiny(fake) as connection:
            return (await capture_one(connection, Prompt("p0", Input(token_ids=seen)), PINS, claim()))[0]

    made = asyncio.run(work())
    usage = replace(made.end.usage, prompt=len(told))
    return chat(
        change(made, tokens=replace(made.tokens, prompt_ids=told), end=replace(made.end, usage=usage)), MESSAGES
    )


def explained(fake: FakeServer, made: Artifact, tokenizer: Words | None = None, known: Facts = FACTS) -> Verdict:
    """The verdict of an engine whose prompt ids cannot be made, so that the record's own are replayed."""
    fake.on("/tokenize", Reply(404, json={"error": {"message": "no"}}))

    async def work() -> Verdict:
        async with open_tiny(fake, known) as connection:
            trusted = replace(connection, tokenizer=tokenizer)
            return (await verify(trusted, made, TINY_POLICY, explain=True, known=own_request(made)))[1]

    return asyncio.run(work())


def test_a_cut_context_is_named(fake: FakeServer) -> None:
    serve(fake, Tiny())
    got = explained(fake, claimed_prompt(fake, SEEN, LEFT_OUT + SEEN))
    assert (got.status, got.findings[-1].test, got.findings[-1].outcome) == ("invalid", "S5", "note")
    assert "with the last 50% of the prompt the distance would be 0.000 instead of" in got.findings[-1].detail
    assert got.findings[-1].statistic["gain with the last 50% of the prompt"] == got.findings[-1].statistic["tz"] > 1.0


def test_an_emptied_system_message_is_named(fake: FakeServer) -> None:
    serve(fake, Tiny())
    made = claimed_prompt(fake, (5, *SEEN), (5, *LEFT_OUT, *SEEN))
    got = explained(fake, made, Words(start=(1,)))
    assert "with an empty system message the distance would be 0.000" in got.findings[-1].detail
    assert "gain with the messages without a template" in got.findings[-1].statistic
    without = explained(fake, made, Words(broken=True)).findings[-1]
    assert not any("system" in name for name in without.statistic)


def rendering(fake: FakeServer, ids: tuple[int, ...]) -> None:
    """A chat route that renders the messages it is asked without a system one to these ids."""

    def answer(seen: Seen) -> Reply | dict[str, object]:
        if seen.json()["messages"] != [{"role": "user", "content": USER}]:
            return Reply(400, json={"error": {"message": "no"}})
        entry = {"token": "token_id:7", "logprob": -0.5, "bytes": None, "top_logprobs": []}
        choice = {
            "index": 0, "message": {"role": "assistant", "content": "x"}, "logprobs": {"content": [entry]},
            "finish_reason": "length", "token_ids": [7],
        }  # fmt: skip
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
        return {"id": "c", "model": "tiny", "choices": [choice], "prompt_token_ids": list(ids), "usage": usage}

    fake.on("/v1/chat/completions", answer)


LISTED = {**FACTS.fields, "/v1/chat/completions": ("return_token_ids", "return_tokens_as_token_ids")}


def test_a_missing_system_message_is_named_though_the_template_puts_another(fake: FakeServer) -> None:
    """What the model saw holds the template's own system prompt (8, 8), which no part of the claimed prompt is."""
    serve(fake, Tiny())
    made = claimed_prompt(fake, (8, 8, *SEEN), (5, *LEFT_OUT, *SEEN))
    rendering(fake, (8, 8, *SEEN))
    got = explained(fake, made, Words(), replace(FACTS, fields=LISTED)).findings[-1]
    assert "with no system message the distance would be 0.000" in got.detail
    tool = chat(made, {"messages": [*MESSAGES["messages"], {"role": "tool", "content": "sunny"}]})
    assert not any("no system" in n for n in explained(fake, tool, None).findings[-1].statistic)


def test_another_model_fits_badly_under_every_prompt(fake: FakeServer) -> None:
    serve(fake, Tiny(weights=1))
    made = claimed_prompt(fake, SEEN, SEEN)
    serve(fake, Tiny())
    got = explained(fake, made).findings[-1]
    assert (got.test, got.outcome) == ("S5", "note")
    assert "none of 2 other prompts fits much better" in got.detail


def test_honest_records_need_no_explanation(fake: FakeServer) -> None:
    serve(fake, Tiny())
    got = explained(fake, claimed_prompt(fake, SEEN, SEEN))
    assert (got.status, got.level) == ("inconclusive", "distribution")
    assert not any(f.test == "S5" for f in got.findings)


def test_an_engine_that_fails_on_another_prompt_leaves_it_out(fake: FakeServer) -> None:
    engine = serve(fake, Tiny())
    made = claimed_prompt(fake, SEEN, LEFT_OUT + SEEN)
    whole = len(made.tokens.prompt_ids or ()) + len(made.tokens.completion_ids or ())

    def fail(body: dict[str, object], reply: dict[str, object]) -> dict[str, object]:
        prompt = body["prompt"]
        return reply if isinstance(prompt, list) and len(prompt) == whole else {"error": "broken"}

    engine.edit = fail
    assert explained(fake, made).findings[-1].detail == "no other prompt could be tried"


@pytest.mark.parametrize("body", [None, {"prompt": "x"}, {"messages": [{"role": "user", "content": [{"type": "x"}]}]}])
def test_records_without_plain_messages_have_windows_only(fake: FakeServer, body: object) -> None:
    serve(fake, Tiny())
    made = chat(claimed_prompt(fake, SEEN, SEEN), body)

    async def tried() -> list[cf.Alternative]:
        async with open_tiny(fake) as connection:
            return await cf.alternatives(made, replace(connection, tokenizer=Words()))

    assert asyncio.run(tried()) == cf.windows(SEEN)


def test_gains_are_falls_of_the_distance() -> None:
    z = logits(30, 3)
    ids = draw(z, PLAIN, 3)
    own = record(z, ids, 10)
    near, far = record(noisy(z, 1, 0.05), ids, 20), record(noisy(z, 2, 1.0), ids, 20)
    got = cf.explanation(own, far, {"a": near, "b": far}, FLAT)
    assert got.statistic["gain with b"] == 0.0
    assert 0.0 < got.statistic["gain with a"] < got.statistic["tz"]
    assert got.detail.startswith("with a the distance would be")


@pytest.mark.parametrize(
    ("recorded", "drift", "certain", "words"),
    [
        ((3,), None, True, "all 1 ids are the recorded ones"),
        ((1, 2), 0, False, "1 ids against 2 recorded, different from token 0 on"),
        ((3, 4), 1, False, "1 ids against 2 recorded, different from token 1 on"),
        (None, None, False, "1 ids were made from text and decode to the same text; the sampled ids are not known"),
    ],
)
def test_retokenised_text_says_how_far_it_drifted(
    recorded: tuple[int, ...] | None, drift: int | None, certain: bool, words: str
) -> None:
    """The text of ids (1, 2) comes back as id 3: decoding and encoding are no bijection."""
    got = asyncio.run(retokenise(Words(start=(7,)), "ab", recorded))
    assert (got.ids, got.whole, got.drift, got.certain, got.words) == ((3,), True, drift, certain, words)


def test_text_that_does_not_come_back_says_so() -> None:
    got = asyncio.run(retokenise(Words(), f"{SYSTEM}\n{USER}"))
    assert not got.whole
    assert "decode to another text" in got.words
    assert asyncio.run(retokenise(Words(), "")).whole
