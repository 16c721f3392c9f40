from __future__ import annotations

import pytest

from logproof.proxy.headers import beside, end_to_end, first, mask, secrets, with_length

GIVEN = [
    (b"Host", b"proxy"),
    (b"Authorization", b"Bearer sk-secret"),
    (b"connection", b"keep-alive, X-Hop"),
    (b"x-hop", b"1"),
    (b"TE", b"trailers"),
    (b"transfer-encoding", b"chunked"),
    (b"accept", b"a"),
    (b"accept", b"b"),
]


def test_hop_by_hop_headers_stay_behind_and_others_keep_their_order() -> None:
    assert end_to_end(GIVEN, b"host") == [
        (b"authorization", b"Bearer sk-secret"),
        (b"accept", b"a"),
        (b"accept", b"b"),
    ]


def test_first_value() -> None:
    assert first(GIVEN, b"accept") == b"a"
    assert first(GIVEN, b"nothing") == b""


def test_credentials_are_known_in_every_form() -> None:
    found = secrets([*GIVEN, (b"X-Api-Key", b"key-1234"), (b"cookie", b"s=1"), (b"api-key", b"abcd")])
    assert set(found) == {b"Bearer sk-secret", b"sk-secret", b"key-1234", b"abcd"}
    assert mask(b"got Bearer sk-secret, sk-secret, key-1234, abcd", found) == b"got " + b", ".join([b"[redacted]"] * 4)


def test_a_new_length_takes_the_old_ones_place() -> None:
    assert with_length([(b"a", b"1"), (b"content-length", b"9"), (b"b", b"2")], 4) == [
        (b"a", b"1"),
        (b"content-length", b"4"),
        (b"b", b"2"),
    ]
    assert with_length([(b"a", b"1")], 4) == [(b"a", b"1"), (b"content-length", b"4")]


def test_likely_credentials_are_hidden_where_they_are_long_enough() -> None:
    given = [(b"X-LiteLLM-Key", b"sk-lite-0123"), (b"x-use-token", b"true"), (b"x-trace", b"0123456789")]
    found = secrets([*given, (b"Cookie", b"a=1; sid=abcdefgh")], b"api_key=sk%2Dquery%2D1&q=0123456789")
    assert set(found) == {b"sk-lite-0123", b"a=1; sid=abcdefgh", b"sid=abcdefgh", b"abcdefgh", b"sk-query-1"}


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (b"http://engine:8000/v1/completions?a=1", b"/v1/completions?a=1"),
        (b"http://engine:8000", b"/"),
        (b"http://engine:80001/x", b"http://engine:80001/x"),
        (b"https://elsewhere/x", b"https://elsewhere/x"),
        (b"/y", b"/y"),
    ],
)
def test_a_redirect_to_the_engine_leads_to_the_proxy(value: bytes, sent: bytes) -> None:
    assert beside([(b"location", value), (b"x", value)], "http://engine:8000") == [
        (b"location", sent),
        (b"x", value),
    ]
