from __future__ import annotations

import pytest

from logproof.proxy import strip
from logproof.proxy.event_blocks import Blocks
from proxy.pairs import NAMES, pair

ALL = frozenset({"token_ids", "prompt_token_ids", "logprobs"})


@pytest.mark.parametrize("name", [n for n in NAMES if not pair(n).streamed])
def test_a_plain_reply_becomes_the_direct_one(name: str) -> None:
    assert strip.reply(pair(name).asked.encode(), ALL) == pair(name).direct.encode()


@pytest.mark.parametrize("name", [n for n in NAMES if pair(n).streamed])
def test_a_stream_becomes_the_direct_one_event_by_event(name: str) -> None:
    asked, direct = Blocks(1 << 20).feed(pair(name).asked.encode()), Blocks(1 << 20).feed(pair(name).direct.encode())
    assert [strip.event(block, ALL) for block in asked] == direct


def test_only_hidden_fields_go() -> None:
    body = b'{"choices":[{"logprobs":{"content":[]},"token_ids":[1],"x":"token_ids"}],"prompt_token_ids":[2]}'
    kept = strip.reply(body, frozenset({"logprobs"}))
    assert kept == body.replace(b'{"content":[]}', b"null")
    assert strip.reply(body, frozenset()) == body


def test_what_lies_deeper_stays() -> None:
    body = b'{"choices":[{"message":{"content":"","logprobs":1}}],"usage":{"token_ids":3},"error":{"logprobs":2}}'
    assert strip.reply(body, ALL) == body


@pytest.mark.parametrize("body", [b'{"error":{"message":"no"}}', b'{"choices":null}', b'{"choices":7}', b"{}"])
def test_a_reply_without_choices_passes(body: bytes) -> None:
    assert strip.reply(body, ALL) == body


HELD = b'data: {"choices":[{"index":0,"delta":{},"logprobs":{"content":[]},"finish_reason":null,"token_ids":[5]}]}\n\n'


def test_an_event_that_a_direct_stream_does_not_have_is_dropped() -> None:
    assert strip.event(HELD, ALL) == b""


@pytest.mark.parametrize(
    "block",
    [
        HELD.replace(b'"finish_reason":null', b'"finish_reason":"stop"'),
        HELD.replace(b'"delta":{}', b'"delta":{"content":""}'),
        b'data: {"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n',
    ],
)
def test_an_event_that_says_something_stays(block: bytes) -> None:
    assert strip.event(block, ALL) == block.replace(b'{"content":[]}', b"null").replace(b"[5]", b"null")


@pytest.mark.parametrize(
    "block", [b"data: [DONE]\n\n", b": ping\n\n", b"event: x\ndata: y\n\n", b"\n\n", b'data: {"error":{}}\r\n\r\n']
)
def test_other_events_pass(block: bytes) -> None:
    assert strip.event(block, ALL) == block


def test_an_unreadable_event_is_told() -> None:
    with pytest.raises(ValueError):
        strip.event(b'data: {"choices":[\n\n', ALL)
