"""Stops inside and behind the enforced list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from logproof_vllm import canonical
from logproof_vllm.engine import stops


def params(ids: list[int], mode: str | None = None, tag: str = "t") -> Any:
    return SimpleNamespace(extra_args={canonical.KEY: {"ids": ids, "mode": mode, "tag": tag}})


PLAIN = SimpleNamespace(extra_args=None)


@pytest.mark.parametrize(("sampling", "out", "stopped"), [
    (PLAIN, 1, True), (params([1, 2, 3]), 1, False), (params([1, 2, 3]), 2, False), (params([1, 2, 3]), 3, True),
    (params([]), 1, True), (None, 1, True),
])  # fmt: skip
def test_nothing_stops_inside_the_list(sampling: Any, out: int, stopped: bool) -> None:
    check = stops.wrap_check_stop(lambda request, max_len: True)
    assert check(SimpleNamespace(sampling_params=sampling, num_output_tokens=out), 100) is stopped


def test_stop_strings_wait_for_the_end_of_the_list() -> None:
    class Detokenizer:
        def __init__(self, request: Any) -> None:
            self.min_tokens = 2

    init = stops.wrap_detokenizer(Detokenizer.__init__)
    made = Detokenizer.__new__(Detokenizer)
    for sampling, expected in ((PLAIN, 2), (params([1] * 5), 5), (params([1]), 2)):
        init(made, SimpleNamespace(sampling_params=sampling))
        assert made.min_tokens == expected
