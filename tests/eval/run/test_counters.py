from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logproof.dialects.call import Call
from logproof.eval.run.counters import Counters
from logproof.ir.response import Response, Usage

USAGE = Usage(prompt=3, completion=2)


def call(seconds: float, attempts: int = 1, usage: Usage = USAGE) -> Call:
    return Call(
        request=cast(Any, None),
        dialect="d",
        decisions=(),
        response=Response((), usage),
        seconds=seconds,
        attempts=attempts,
        reply=cast(Any, None),
        wire=cast(Any, None),
    )


def test_everything_is_in_one_line() -> None:
    counters = Counters()
    counters.add(call(0.1))
    counters.add(call(0.2, attempts=3, usage=Usage(prompt=5)))
    counters.add_failure()
    assert counters.line().startswith("3 requests (1 failed, 2 retries); 8 tokens in, 2 out; reply median 0.1")
    assert counters.line().endswith("; 1 replies without token counts")


def test_no_reply_has_no_percentile() -> None:
    assert Counters().percentile(0.5) is None
    assert "no reply" in Counters().line()


@given(st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=50), st.sampled_from([0.01, 0.5, 0.95, 1.0]))
def test_percentiles_are_within_ten_percent(times: list[float], share: float) -> None:
    counters = Counters()
    for seconds in times:
        counters.add(call(seconds))
    ranked = sorted(times)
    exact = ranked[max(-(-round(share * len(ranked) * 1e9) // 10**9), 1) - 1]
    found = counters.percentile(share)
    assert found is not None
    assert exact / 1.0001 <= found <= exact * 1.1001
    assert found <= ranked[-1]


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_times_beyond_the_buckets_are_kept_at_their_ends(seconds: float) -> None:
    counters = Counters()
    counters.add(call(seconds))
    assert counters.percentile(0.5) is not None
