"""The adapter of Model Runner V2 on a stand-in sampler."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from logproof_vllm import canonical
from logproof_vllm.engine import v2


def params(ids: list[int], mode: str | None = None, tag: str = "t") -> Any:
    return SimpleNamespace(extra_args={canonical.KEY: {"ids": ids, "mode": mode, "tag": tag}})


PLAIN = SimpleNamespace(extra_args=None)


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
