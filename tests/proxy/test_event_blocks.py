from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.proxy.event_blocks import Blocks

PIECES = st.lists(
    st.sampled_from([b"data: a\n", b"\n", b"data: \xe4\xbd\xa0\n\n", b"x\r\n\r\n", b": c\r\n", b"y\r\r", b"z"])
)


@given(PIECES, st.data())
def test_any_cut_gives_the_same_bytes_in_whole_events(pieces: list[bytes], data: st.DataObject) -> None:
    text = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    blocks = Blocks(1 << 20)
    given_out = [b for a, e in zip([0, *cuts], [*cuts, len(text)], strict=True) for b in blocks.feed(text[a:e])]
    assert b"".join(given_out) + blocks.rest() == text
    assert all(b.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")) for b in given_out)


def test_an_event_is_given_out_as_soon_as_it_is_whole() -> None:
    blocks = Blocks(100)
    assert blocks.feed(b"data: a\n") == []
    assert blocks.feed(b"\ndata: b") == [b"data: a\n\n"]
    assert blocks.rest() == b"data: b"


def test_an_endless_event_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 4 bytes"):
        Blocks(4).feed(b"data: a")
