"""Which failures are sent again, when, and how often."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.http.retry import CONNECTION, FINAL, TIMEOUT, RetryPolicy, backoff, decide, server_delay

POLICY = RetryPolicy(attempts=4, base_s=0.5, cap_s=8.0, jitter=0.25, retry_after_cap_s=60.0)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_passing_faults_are_retried(status: int) -> None:
    assert decide(status, (), None, 1, POLICY).retry


@pytest.mark.parametrize("status", [301, 400, 401, 402, 403, 404, 405, 413, 415, 422])
def test_a_deterministic_refusal_is_never_retried(status: int) -> None:
    decision = decide(status, (), None, 1, POLICY)
    assert not decision.retry
    assert decision.reason == f"HTTP {status} is not retried"


def test_connection_loss_is_retried_until_attempts_are_used_up() -> None:
    assert [decide(None, (), CONNECTION, n, POLICY).retry for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert decide(None, (), CONNECTION, 4, POLICY).reason == "connection, attempts used up"


def test_a_request_that_timed_out_while_the_server_worked_is_sent_once_more_at_most() -> None:
    assert [decide(None, (), TIMEOUT, n, POLICY).retry for n in (1, 2)] == [True, False]


@pytest.mark.parametrize("code", ["insufficient_quota", FINAL])
def test_codes_that_no_repetition_mends(code: str) -> None:
    assert not decide(429, (), code, 1, POLICY).retry


@pytest.mark.parametrize(
    ("status", "word", "retried"), [(400, "true", True), (503, "false", False), (503, "maybe", True), (400, "", False)]
)
def test_the_server_may_overrule_the_status(status: int, word: str, retried: bool) -> None:
    assert decide(status, (("x-should-retry", word),), None, 1, POLICY).retry is retried


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ((("retry-after", "3"),), 3.0),
        ((("retry-after", "0.5"),), 0.5),
        ((("retry-after-ms", "250"), ("retry-after", "9")), 0.25),
        ((("retry-after-ms", "soon"), ("retry-after", "9")), 9.0),
        ((("retry-after", formatdate(1000.0, usegmt=True)),), 10.0),
        ((("retry-after", formatdate(900.0, usegmt=True)),), 0.0),
        ((("retry-after", "-1"),), None),
        ((("retry-after", "nan"),), None),
        ((("retry-after", "inf"),), None),
        ((("retry-after", "Mon, 99 Foo 1"),), None),
        ((("retry-after", ""),), None),
        ((), None),
    ],
)
def test_the_wait_that_a_server_names(headers: tuple[tuple[str, str], ...], seconds: float | None) -> None:
    assert server_delay(headers, now=990.0) == seconds


def test_a_named_wait_is_taken_as_it_is() -> None:
    decision = decide(429, (("retry-after", "60"),), None, 1, POLICY, roll=0.9)
    assert (decision.retry, decision.delay_s) == (True, 60.0)


def test_a_wait_longer_than_the_cap_ends_the_request() -> None:
    decision = decide(429, (("retry-after", "61"),), None, 1, POLICY)
    assert not decision.retry
    assert "asks to wait 61 s" in decision.reason


def test_the_wait_in_a_body_counts_where_no_header_names_one() -> None:
    assert decide(429, (), None, 1, POLICY, named_delay_s=7.0).delay_s == 7.0
    assert decide(429, (("retry-after", "2"),), None, 1, POLICY, named_delay_s=7.0).delay_s == 2.0


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_double_up_to_the_cap_and_jitter_only_shortens(attempt: int, roll: float) -> None:
    whole = backoff(attempt, POLICY, 0.0)
    assert whole == (8.0 if attempt >= 5 else 0.5 * 2 ** (attempt - 1))
    assert whole * 0.75 <= backoff(attempt, POLICY, roll) <= whole
