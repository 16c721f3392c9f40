"""Bodies from outside: what is no JSON, or no UTF-8, is refused with its place."""

from __future__ import annotations

import pytest

from logproof.dialects.common import completions, decode
from logproof.errors import BadReply


@pytest.mark.parametrize(
    ("message", "text", "path"),
    [
        ("Expected `str`, got `int` - at `$.choices[0].text`", "Expected `str`, got `int`", "/choices/0/text"),
        ("Expected `int` - at `$[...].a`", "Expected `int`", "/.../a"),
        ("Expected `object`, got `array`", "Expected `object`, got `array`", ""),
    ],
)
def test_the_place_of_a_fault_becomes_a_pointer(message: str, text: str, path: str) -> None:
    assert decode.split_path(message)[0] == text
    assert decode.split_path(message)[1].endswith(path.rsplit("/", 1)[-1])


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, b'{"choices": [{"text": 5}]}', b"<html>"])
def test_a_foreign_body_is_a_bad_reply(body: bytes) -> None:
    with pytest.raises(BadReply) as caught:
        completions.read(body)
    assert len(str(caught.value)) < 400


def test_a_field_whose_name_is_damaged_is_not_an_absent_field() -> None:
    """The decoder skips unknown names unread: the finish reason would be None, as if the server had given none."""
    whole = b'{"choices": [{"index": 0, "text": "caf\xc3\xa9", "finish_reason": "stop"}]}'
    assert completions.read(whole).choices[0].finish_reason == "stop"
    with pytest.raises(BadReply, match="utf-8"):
        completions.read(whole.replace(b"finish", b"\xff" * 6))


@pytest.mark.parametrize("before", range(-3, 2))
def test_a_character_may_lie_across_the_pieces_in_which_a_body_is_checked(before: int) -> None:
    head = b'{"choices": [{"index": 0, "text": "'
    filled = b"x" * (decode._PIECE - len(head) + before)
    whole = head + filled + "€".encode() + b'", "finish_reason": "stop"}]}'
    assert completions.read(whole).choices[0].text == filled.decode() + "€"
    for damaged in (whole.replace(b"\xac", b"x"), whole.replace(b"\xe2", b""), whole.replace(b"\xac", b"")):
        with pytest.raises(BadReply, match="utf-8"):
            completions.read(damaged.replace(b'"text"', b'"none"'))


def test_a_body_that_ends_inside_a_character_is_no_json() -> None:
    with pytest.raises(BadReply, match="unexpected end of data"):
        completions.read(b'{"choices": []}' + "€".encode()[:2])
