"""Model Runner V1: the sampled id is overridden, and the logprobs of each row follow its own mode.

Missing upstream: V1's sampler emits what it drew, whatever a request says, and one ``logprobs_mode`` holds for all.

Delete when: vLLM enforces ids itself on this runner and resumes after the list, and SamplingParams has a logprobs
mode of its own; or when this runner is gone from every version that the contract claims.

State by batch row lives in a logits processor (:class:`Rows`), because the engine itself tells every logits
processor which request sits in which row. The processor changes no logits. Two wraps do the work:

* ``Sampler.forward`` decides what this step needs (:class:`Step`) and, when rows differ in mode, computes the raw
  logprobs before the sampler changes the logits;
* ``Sampler.sample`` runs as always, then the enforced ids replace the sampled ones, and the processed logprobs are
  merged with the raw ones by row. Upstream gathers logprobs, top-k and ranks after ``sample`` returns, so they are
  those of the emitted id under the model's distribution.

Sampling itself is never re-done or re-ordered: seeds, greedy rows and neighbours keep their results. No tensor
exists before the first request that needs one; a step makes one transfer of the next ids, and the mode mask moves
only when the batch changed. Calls that carry ``predict_bonus_token`` or ``logprobs_mode_override`` come from the
rejection sampler and pass through.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from logproof_vllm import canonical
from logproof_vllm.fields import PROCESSED, RAW
from logproof_vllm.hooks import MARK, marked

_STEP = "_logproof_step"


@dataclass(frozen=True)
class Row:
    """One request of the batch: its plan, and the engine's live list of its output ids."""

    plan: canonical.EnginePlan
    output: Sequence[int]

    def next_id(self) -> int:
        """The id to emit now; -1 when the list is over or there is none."""
        position = len(self.output)
        return self.plan.ids[position] if position < len(self.plan.ids) else -1


class Rows:
    """The logits processor that holds a :class:`Row` for each batch row that uses the plugin."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.rows: dict[int, Row] = {}
        self.device = device
        self.pin = is_pin_memory
        self._mask: tuple[int, str, Any] | None = None

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Nothing to check: ingestion did."""

    def is_argmax_invariant(self) -> bool:
        return True

    def apply(self, logits: Any) -> Any:
        return logits

    def update_state(self, batch_update: Any) -> None:
        """Follow the batch. The mode mask is dropped only when a row of ours changed."""
        if batch_update is None:
            return
        from vllm.v1.sample.logits_processor.builtin import process_dict_updates

        if process_dict_updates(self.rows, batch_update, _new_row):
            self._mask = None

    def next_ids(self, size: int) -> Any | None:
        """Device tensor [size] of the ids to emit, -1 where a row is free; None when no row is enforced now."""
        if not any(row.next_id() >= 0 for row in self.rows.values()):
            return None
        ids = [-1] * size
        for index, row in self.rows.items():
            if index < size:
                ids[index] = row.next_id()
        return self._to_device(ids, "int64")

    def processed_rows(self, size: int, default: str) -> frozenset[int]:
        """Batch rows whose logprobs must be processed ones."""
        own = {i for i, row in self.rows.items() if i < size and row.plan.mode == PROCESSED}
        if default != PROCESSED:
            return frozenset(own)
        raw = {i for i, row in self.rows.items() if i < size and row.plan.mode == RAW}
        return frozenset(set(range(size)) - raw)

    def mask(self, size: int, default: str) -> Any:
        """Device tensor [size, 1], true where a row is processed; made once for a batch."""
        if self._mask is None or self._mask[:2] != (size, default):
            processed = self.processed_rows(size, default)
            tensor = self._to_device([i in processed for i in range(size)], "bool").unsqueeze(1)
            self._mask = (size, default, tensor)
        return self._mask[2]

    def _to_device(self, values: list[Any], dtype: str) -> Any:
        import torch

        host = torch.tensor(values, dtype=getattr(torch, dtype), pin_memory=self.pin)
        return host.to(self.device, non_blocking=True)


def _new_row(params: Any, prompt: Any, output: Sequence[int]) -> Row | None:
    plan = canonical.read(params)
    return None if plan is None or (not plan.ids and plan.mode is None) else Row(plan, output)


@dataclass
class Step:
    """What one call of the sampler must do besides sampling. ``mask`` and ``raw`` are None unless rows differ from
    the deployment's mode; ``raw`` is None too when no row reports raw logprobs."""

    next_ids: Any | None
    mask: Any | None = None
    raw: Any | None = None


def install() -> None:
    """Add the rows processor to the built-in list and wrap the sampler. Twice equals once."""
    from vllm.v1.sample import logits_processor
    from vllm.v1.sample.sampler import Sampler

    builtin = logits_processor.BUILTIN_LOGITS_PROCESSORS
    if not any(issubclass(processor, Rows) for processor in builtin):
        builtin.append(type("LogproofRows", (Rows, logits_processor.LogitsProcessor), {}))
    if not marked(Sampler.forward):
        Sampler.forward = wrap_forward(Sampler.forward)
        Sampler.sample = wrap_sample(Sampler.sample)


def rows_of(metadata: Any) -> Rows | None:
    """The rows processor of this batch; None in dummy runs and where the engine built none."""
    for processor in metadata.logitsprocs.argmax_invariant:
        if isinstance(processor, Rows):
            return processor if processor.rows else None
    return None


def wrap_forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Sampler.forward``: plan the step, then run the original."""

    @functools.wraps(original)
    def forward(
        self: Any,
        logits: Any,
        sampling_metadata: Any,
        predict_bonus_token: bool = False,
        logprobs_mode_override: str | None = None,
    ) -> Any:
        rows = None if predict_bonus_token or logprobs_mode_override else rows_of(sampling_metadata)
        if rows is None:
            return original(self, logits, sampling_metadata, predict_bonus_token, logprobs_mode_override)
        step = plan_step(self, rows, logits, sampling_metadata)
        # With the override the original computes no raw logprobs: the step holds them already.
        override = PROCESSED if step.mask is not None else None
        object.__setattr__(self, _STEP, step)
        try:
            return original(self, logits, sampling_metadata, predict_bonus_token, override)
        finally:
            object.__setattr__(self, _STEP, None)

    setattr(forward, MARK, True)
    return forward


def plan_step(sampler: Any, rows: Rows, logits: Any, metadata: Any) -> Step:
    """Decide what the rows need now. `logits` is [batch, vocab] before any processor."""
    size = logits.shape[0]
    step = Step(rows.next_ids(size))
    default = sampler.logprobs_mode
    wanted = metadata.max_num_logprobs is not None or bool(metadata.logprob_token_ids)
    if not wanted or all(row.plan.mode in (None, default) for row in rows.rows.values()):
        return step
    step.mask = rows.mask(size, default)
    if len(rows.processed_rows(size, default)) < size:
        step.raw = sampler.compute_logprobs(logits)
    return step


def wrap_sample(original: Callable[..., Any]) -> Callable[..., Any]:
    """``Sampler.sample``: sample as always, then override ids and merge logprobs by row."""

    @functools.wraps(original)
    def sample(self: Any, logits: Any, sampling_metadata: Any, logprobs_mode_override: str | None = None) -> Any:
        step: Step | None = getattr(self, _STEP, None)
        if step is None or logprobs_mode_override is not None:
            return original(self, logits, sampling_metadata, logprobs_mode_override)
        if step.mask is None:
            sampled, processed = original(self, logits, sampling_metadata)
        else:
            sampled, processed = sample_with_processed(original, self, logits, sampling_metadata)
            processed = merge(step, processed)
        return override(sampled, step.next_ids), processed

    setattr(sample, MARK, True)
    return sample


def sample_with_processed(original: Callable[..., Any], sampler: Any, logits: Any, metadata: Any) -> tuple[Any, Any]:
    """Sample once by the original, and give the processed logprobs of every row [batch, vocab] too.

    A deployment in processed mode returns them itself. Otherwise they come from what the original hands to its
    top-k/top-p stage, so temperature and every logits processor ran exactly once.
    """
    if sampler.logprobs_mode == PROCESSED:
        sampled, processed = original(sampler, logits, metadata)
        return sampled, processed
    if metadata.all_greedy:
        processed = sampler.compute_logprobs(logits)
        sampled, _ = original(sampler, logits, metadata)
        return sampled, processed
    return _capture(original, sampler, logits, metadata)


def _capture(original: Callable[..., Any], sampler: Any, logits: Any, metadata: Any) -> tuple[Any, Any]:
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

    inputs: list[Any] = []

    def before(module: Any, args: tuple[Any, ...]) -> None:
        inputs.append(args[0].clone())

    handle = sampler.topk_topp_sampler.register_forward_pre_hook(before)
    try:
        sampled, _ = original(sampler, logits, metadata)
    finally:
        handle.remove()
    candidates = apply_top_k_top_p(inputs[0], metadata.top_k, metadata.top_p)
    return sampled, sampler.compute_logprobs(candidates)


def merge(step: Step, processed: Any) -> Any:
    """Row-wise choice [batch, vocab]: processed where the mask is true, raw elsewhere."""
    if step.raw is None:
        return processed
    import torch

    return torch.where(step.mask, processed, step.raw)


def override(sampled: Any, next_ids: Any | None) -> Any:
    """Replace the sampled ids [batch] where the next id is not -1."""
    if next_ids is None:
        return sampled
    import torch

    return torch.where(next_ids >= 0, next_ids, sampled)
