"""Model Runner V2: an adapter on its own trace replay.

Missing upstream: V2 replays a trace only on a server with ``--enable-trace-replay``, the request ends with the trace,
and one ``logprobs_mode`` holds for all. V2 has its own sampler; V1's hooks never run there.

Delete when: vLLM enforces ids itself on this runner and resumes after the list, and SamplingParams has a logprobs
mode of its own.

V2's ``TraceReplayState`` overwrites the sampled ids before the logprobs are computed, from device state alone. The
adapter hands it the canonical ids *after* the input processor cut ``max_tokens`` to the trace, so the request resumes
after the list and stops as on V1. For modes: V2 picks raw or processed *logits* late, so a row-wise choice between the
two logits tensors is enough.

Lazy: the state (max_num_reqs x max_model_len x 4 bytes of host memory) is made by the first enforced request, which
on a server with the endpoint plugin is the canary.

Proved on the versions of ``contract.V2_VERSIONS``. On another the server serves no field (``server/endpoint``).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from logproof_vllm import canonical
from logproof_vllm.fields import PROCESSED
from logproof_vllm.hooks import MARK, marked, when_imported

MODULE = "vllm.v1.worker.gpu.sample.sampler"
_MODES = "_logproof_modes"
_MIX = "_logproof_mix"


def install() -> None:
    """Hook the sampler as soon as a worker imports it; no other process does."""
    when_imported(MODULE, hook)


def hook(module: ModuleType) -> None:
    sampler: Any = module.Sampler
    if marked(sampler.add_request):
        return
    sampler.add_request = wrap_add_request(sampler.add_request)
    sampler.sample = wrap_sample(sampler.sample)
    sampler.__call__ = wrap_call(sampler.__call__)


def wrap_add_request(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Sampler.add_request``: the last argument is the request's sampling parameters, the first its row."""

    @functools.wraps(original)
    def add_request(self: Any, req_idx: int, *args: Any) -> Any:
        plan = canonical.read(args[-1])
        modes: dict[int, str] = self.__dict__.setdefault(_MODES, {})
        modes.pop(req_idx, None)
        if plan is None:
            return original(self, req_idx, *args)
        if plan.mode not in (None, self.logprobs_mode):
            modes[req_idx] = str(plan.mode)
        return original(self, req_idx, *args[:-1], with_trace(self, args[-1], plan))

    setattr(add_request, MARK, True)
    return add_request


def with_trace(sampler: Any, params: Any, plan: canonical.EnginePlan) -> Any:
    """A copy of `params` that carries the enforced ids as a trace; makes the replay state when there is none."""
    if not plan.ids:
        return params
    if sampler.trace_replay_state is None:
        from vllm.v1.worker.gpu.sample.trace_replay import TraceReplayState

        sampler.trace_replay_state = TraceReplayState(sampler.req_states)
    traced = copy.copy(params)
    traced.trace_decode_token_ids = list(plan.ids)
    return traced


def wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Sampler.__call__``: when a row of the batch has a mode of its own, ask for processed logits and mix."""

    @functools.wraps(original)
    def __call__(self: Any, logits: Any, input_batch: Any) -> Any:  # noqa: N807
        processed = processed_rows(self, input_batch.idx_mapping_np)
        if processed is None:
            return original(self, logits, input_batch)
        deployed = self.logprobs_mode
        self.__dict__[_MIX] = processed
        self.logprobs_mode = PROCESSED
        try:
            return original(self, logits, input_batch)
        finally:
            self.logprobs_mode = deployed
            self.__dict__[_MIX] = None

    setattr(__call__, MARK, True)
    return __call__


def processed_rows(sampler: Any, mapping: Any) -> list[bool] | None:
    """For each batch row whether it reports processed logprobs; None when every row follows the deployment."""
    modes: dict[int, str] = sampler.__dict__.get(_MODES) or {}
    if not modes:
        return None
    rows = [int(index) for index in mapping]
    if not any(index in modes for index in rows):
        return None
    return [modes.get(index, sampler.logprobs_mode) == PROCESSED for index in rows]


def wrap_sample(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Sampler.sample``: return the logits whose log-softmax each row reports."""

    @functools.wraps(original)
    def sample(self: Any, logits: Any, *args: Any, **kwargs: Any) -> Any:
        mix: list[bool] | None = self.__dict__.get(_MIX)
        if mix is None or all(mix):
            return original(self, logits, *args, **kwargs)
        # The original may change its argument in place when no processor needs a copy.
        raw = logits.clone()
        sampled, processed = original(self, logits, *args, **kwargs)
        import torch

        mask = torch.tensor(mix, pin_memory=raw.is_cuda).to(raw.device, non_blocking=True).unsqueeze(1)
        return sampled, torch.where(mask, processed, raw)

    setattr(sample, MARK, True)
    return sample
