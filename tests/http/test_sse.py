"""The event stream parser: the grammar, and that cuts of the bytes never show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.errors import BadReply, TransportError
from logproof.http.exchange import SseEvent
from logproof.http.sse import SseParser


def parse(*chunks: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()


@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b"data: a\n\n", [(None, "a")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [(None, "a"), (None, "b"), (None, "c")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [("error", "x"), (None, "y")]),
        (b"data: a\ndata: b\ndata:\n\n", [(None, "a\nb\n")]),
        (b"data\n\n", [(None, "")]),
        (b": ping\n\nid: 7\nretry: 10\nunknown: z\ndata: a\n\n", [(None, "a")]),
        (b"event: lonely\n\ndata: a\n\n", [(None, "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(None, "a")]),
        (b"data:  two\n\n", [(None, " two")]),
        (b"data: a:b\n\n", [(None, "a:b")]),
        (b"data: [DONE]\n\n", [(None, "[DONE]")]),
        (b"data: {}\n\ndata: [DONE]", [(None, "{}"), (None, "[DONE]")]),
        (b"data: {}\n\ndata: [DONE]\n", [(None, "{}"), (None, "[DONE]")]),
        ("data: é猫\u2028\x0b\x85\n\n".encode(), [(None, "é猫\u2028\x0b\x85")]),
        (b"event:\ndata: a\n\n", [(None, "a")]),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_grammar(raw: bytes, events: list[tuple[str | None, str]]) -> None:
    assert [(event.event, event.data) for event in parse(raw)] == events


_PIECES = st.sampled_from(
    [
        b"data: ",
        b"event: ",
        b":",
        b"\r\n",
        b"\n",
        b"\r",
        "é猫🦊".encode(),
        b"[DONE]",
        b"\xef\xbb\xbf",
        b" ",
        b"data",
        b"x",
    ]
)


@given(st.lists(_PIECES, max_size=30), st.data())
def test_any_cut_of_the_bytes_gives_the_same_events(pieces: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert parse(*chunks) == parse(raw)
    assert parse(*(raw[i : i + 1] for i in range(len(raw)))) == parse(raw)


@given(st.lists(st.tuples(st.none() | st.from_regex(r"[a-z.]{1,9}", fullmatch=True), st.text()), max_size=8))
def test_what_is_written_is_read(events: list[tuple[str | None, str]]) -> None:
    clean = [(name, text.replace("\r", "")) for name, text in events]
    raw = "".join(
        (f"event: {name}\n" if name else "") + "".join(f"data: {line}\n" for line in text.split("\n")) + "\n"
        for name, text in clean
    )
    assert [(event.event, event.data) for event in parse(raw.encode())] == clean


def test_an_event_is_given_as_soon_as_its_blank_line_came() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [SseEvent(None, "a")]
    assert parser.feed(b"\ndata: b\n\n") == [SseEvent(None, "b")]


@pytest.mark.parametrize("raw", [b"data: 0123456789", b"data: 01234\ndata: 56789\n", b": 0123456789abc\n\n"])
def test_an_event_over_the_limit_is_refused(raw: bytes) -> None:
    with pytest.raises(TransportError, match="larger than 12 bytes"):
        SseParser(max_event_bytes=12).feed(raw)


def test_the_size_limit_is_per_event() -> None:
    parser = SseParser(max_event_bytes=12)
    assert len(parser.feed(b"data: 012345\n\n" * 50)) == 50


def test_too_many_events_are_refused() -> None:
    with pytest.raises(TransportError, match="more than 2 events"):
        SseParser(max_events=2).feed(b"data: a\n\n" * 3)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(BadReply, match="not UTF-8"):
        parse(b"data: \xff\n\n")
