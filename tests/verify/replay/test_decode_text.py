"""Completions as text on a trusted engine."""

from __future__ import annotations

import pytest

from fakes.server import FakeServer, Reply
from logproof.verify.artifact.completion_text import CompletionText
from logproof.verify.replay.decode_text import ROUTE, completion_text
from verify.builders import artifact, logits, record
from verify.parts import run
from verify.tiny import Tiny, facts, open_tiny, serve

MADE = artifact(record(logits(3, 1), [3, 4, 5], 3), k=3)


async def decoded(fake: FakeServer, **known: object) -> CompletionText | None:
    async with open_tiny(fake, facts(**known)) as trusted:
        return await completion_text(trusted, MADE)


def test_the_engine_decodes_all_tokens_and_all_but_the_last(fake: FakeServer) -> None:
    serve(fake, Tiny())
    assert run(decoded(fake)) == CompletionText(whole="def", before="de")
    assert fake.seen[0].json() == {"model": "tiny", "tokens": [3, 4, 5]}
    fake.on(ROUTE, {"text": "x"})
    assert run(decoded(fake, engine="sglang")) == CompletionText(whole="x", before="x")


@pytest.mark.parametrize("reply", [Reply(status=404), Reply(status=500), {"prompt": 3}, {"text": "x"}, Reply(body="{")])
def test_an_engine_that_gives_no_text_is_no_error(fake: FakeServer, reply: Reply | dict[str, object]) -> None:
    fake.on(ROUTE, reply)
    assert run(decoded(fake)) is None


def test_an_engine_of_another_kind_is_not_asked(fake: FakeServer) -> None:
    assert run(decoded(fake, engine="llama.cpp")) is None
    assert fake.seen == []
