"""Engine-side hooks on stand-ins: stops, grammar guard, ring size, V2 adapter, canary verdict."""

from __future__ import annotations

import asyncio
import random
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from logproof_vllm import canary, canonical
from logproof_vllm.engine import grammar, mq, stops, v2
from logproof_vllm.hooks import marked


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


class Row:
    """A bitmask row."""

    def __init__(self) -> None:
        self.value = 0

    def fill_(self, value: int) -> None:
        self.value = value


class Grammar:
    """Accepts the ids 0..9 in rising order and ends after 9."""

    def __init__(self) -> None:
        self.next = 0
        self.calls: list[str] = []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        for token in tokens:
            if token != self.next:
                return False
            self.next += 1
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return []

    def rollback(self, num_tokens: int) -> None:
        self.next -= num_tokens

    def fill_bitmask(self, bitmask: list[Row], batch_index: int) -> None:
        bitmask[batch_index].fill_(5)

    def is_terminated(self) -> bool:
        return self.next > 9

    def reset(self) -> None:
        self.next = 0


def test_a_guard_is_the_backends_grammar_until_it_breaks() -> None:
    guard = grammar.Guard(Grammar, "kept")
    rows = [Row(), Row()]
    guard.fill_bitmask(rows, 1)
    assert guard.accept_tokens("r", [0, 1])
    assert guard.validate_tokens([7]) == []
    guard.rollback(1)
    assert guard.accept_tokens("r", [1])
    assert [row.value for row in rows] == [0, 5]
    assert grammar.off_at("kept") is None


def test_a_broken_guard_allows_all_and_touches_only_its_row() -> None:
    guard = grammar.Guard(Grammar, "broken")
    assert guard.accept_tokens("r", [0, 1])
    assert guard.accept_tokens("r", [7])
    rows = [Row(), Row(), Row()]
    rows[1].value = 3
    guard.fill_bitmask(rows, 1)
    assert [row.value for row in rows] == [0, grammar.ALLOW_ALL, 0]
    assert guard.validate_tokens([9, 9]) == [9, 9]
    assert guard.accept_tokens("r", [4, 4])
    guard.rollback(2)
    assert not guard.is_terminated()
    assert grammar.off_at("broken") == 2
    assert grammar.off_at("broken") is None


def test_reset_restores_the_grammar() -> None:
    guard = grammar.Guard(Grammar, "again")
    guard.accept_tokens("r", [5])
    guard.reset()
    rows = [Row()]
    guard.fill_bitmask(rows, 0)
    assert rows[0].value == 5
    assert guard.validate_tokens([1]) == []
    guard.accept_tokens("r", [0])
    kept = guard.inner
    guard.reset()
    assert (guard.inner is kept, kept.next) == (True, 0)


def test_tokens_after_the_grammar_ended_do_not_break_it() -> None:
    guard = grammar.Guard(Grammar, "ended")
    assert guard.accept_tokens("r", list(range(10)))
    assert guard.is_terminated()
    assert guard.accept_tokens("r", [3])
    assert grammar.off_at("ended") is None


def test_the_record_of_broken_grammars_is_bounded() -> None:
    for i in range(grammar.KEPT + 5):
        grammar._record(f"n{i}", i)
    assert len(grammar._OFF) == grammar.KEPT
    assert grammar.off_at("n0") is None


def test_only_enforced_requests_get_a_guard() -> None:
    made = Grammar()
    create = grammar.wrap_create(lambda self, request: made, grammar.Guard)
    assert create(None, SimpleNamespace(sampling_params=PLAIN)) is made
    assert create(None, SimpleNamespace(sampling_params=params([]))) is made
    assert isinstance(create(None, SimpleNamespace(sampling_params=params([1]))), grammar.Guard)


def test_every_engine_core_is_asked_for_the_position() -> None:
    class Client:
        core_engines = (b"0", b"1")

        async def _call_utility_async(self, method: str, tag: str, *, engine: bytes) -> int | None:
            assert (method, tag) == (grammar.UTILITY, "x")
            return 4 if engine == b"1" else None

    assert asyncio.run(grammar.fetch_off_at(SimpleNamespace(engine_core=Client()), "x")) == 4


class Queue:
    """Stands for MessageQueue."""

    def __init__(self, n_reader: int, n_local: int, ranks: object = None, size: int = 24, max_chunks: int = 10) -> None:
        self.max_chunks = max_chunks


@pytest.mark.parametrize(("args", "kwargs"), [((1, 1), {}), ((1, 1, None, 4, 6), {}), ((1, 1), {"max_chunks": 6})])
def test_every_site_gets_the_ring_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrapped: Any = type("Wrapped", (Queue,), {"__init__": mq.wrap_init(Queue.__init__, 3)})
    assert marked(wrapped.__init__)
    assert wrapped(*args, **kwargs).max_chunks == 3


def test_an_unset_ring_size_loads_nothing() -> None:
    mq.install(None)


class Sampler:
    """Stands for V2's sampler."""

    logprobs_mode = "raw_logprobs"

    def __init__(self) -> None:
        self.trace_replay_state: object | None = object()
        self.seen: list[Any] = []

    def add_request(self, req_idx: int, sampling_params: Any) -> None:
        self.seen.append(sampling_params)

    def sample(self, logits: Any) -> Any:
        return "sampled", "processed"

    def __call__(self, logits: Any, input_batch: Any) -> tuple[str, Any]:
        return self.logprobs_mode, self.sample(logits)


@pytest.fixture
def sampler() -> Any:
    fresh = type("Fresh", (Sampler,), {})
    module = ModuleType("m")
    module.__dict__["Sampler"] = fresh
    v2.hook(module)
    v2.hook(module)
    return fresh()


def batch(*rows: int) -> Any:
    return SimpleNamespace(idx_mapping_np=list(rows))


def test_v2_gets_the_ids_as_a_trace_on_a_copy(sampler: Any) -> None:
    given = params([1, 2])
    sampler.add_request(0, given)
    assert sampler.seen[0].trace_decode_token_ids == [1, 2]
    assert not hasattr(given, "trace_decode_token_ids")
    sampler.add_request(1, PLAIN)
    assert sampler.seen[1] is PLAIN


def test_v2_has_no_replay_state_before_the_first_enforced_request(
    sampler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes max_num_reqs x max_model_len numbers of host memory."""
    made: list[Any] = []
    module = ModuleType("trace_replay")
    module.__dict__["TraceReplayState"] = lambda states: made.append(states) or "state"
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu.sample.trace_replay", module)
    sampler.trace_replay_state, sampler.req_states = None, "states"
    sampler.add_request(0, PLAIN)
    sampler.add_request(0, params([], "processed_logprobs"))
    assert sampler.trace_replay_state is None
    sampler.add_request(0, params([1]))
    sampler.add_request(1, params([2]))
    assert (sampler.trace_replay_state, made) == ("state", ["states"])


def test_v2_switches_the_mode_for_the_step_only(sampler: Any) -> None:
    sampler.add_request(3, params([], "processed_logprobs"))
    assert sampler(None, batch(1, 2)) == ("raw_logprobs", ("sampled", "processed"))
    assert sampler(None, batch(3)) == ("processed_logprobs", ("sampled", "processed"))
    assert sampler.logprobs_mode == "raw_logprobs"
    sampler.add_request(3, PLAIN)
    assert sampler(None, batch(3))[0] == "raw_logprobs"


def test_v2_knows_which_versions_it_covers() -> None:
    assert v2.refusal("0.32.0") is None
    assert v2.refusal("0.31.0") is None
    for version in ("0.30.0", "0.3.2", "0.33.0", "0.320.0"):
        assert "0.31, 0.32" in str(v2.refusal(version))


def test_the_canary_tells_every_way_of_not_enforcing() -> None:
    good = [-1.0, -2.0, -3.0, -0.5]
    assert canary.verdict([1, 2, 3], [1, 2, 3, 9], good) == "passed"
    assert "did not enforce" in canary.verdict([1, 2, 3], [1, 5, 3, 9], good)
    assert "did not enforce" in canary.verdict([1, 2, 3], [1, 2], good)
    assert "0 tokens followed" in canary.verdict([1, 2, 3], [1, 2, 3], good[:3])
    assert "finite" in canary.verdict([1, 2, 3], [1, 2, 3, 9], [*good[:3], float("-inf")])
    assert "finite" in canary.verdict([1, 2, 3], [1, 2, 3, 9], good[:3])


def test_the_canary_has_an_eos_inside_its_list() -> None:
    ids = canary.pick(50, 7, random.Random(1))
    assert ids[1] == 7
    assert len(ids) == canary.LENGTH
    assert all(0 <= i < 50 for i in ids)
    assert len(canary.pick(50, None, random.Random(1))) == canary.LENGTH
