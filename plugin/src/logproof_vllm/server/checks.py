"""What this server can serve: readiness, ceilings, and combinations that would answer with what was not enforced.

A check raises :class:`Refused` with what to send instead. It parses no field's value: ``fields`` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from logproof_vllm import canonical, fields, runtime
from logproof_vllm.refusal import Refused
from logproof_vllm.runtime import STATUS, Binding


def ready() -> Binding:
    """The bound engine. Raises :class:`Refused` while the plugin serves nothing, with the reason."""
    reason = STATUS.refusal()
    if reason is not None:
        raise Refused(reason)
    if STATUS.binding is None:
        raise Refused("logproof knows no engine yet; try again when the server is ready")
    return STATUS.binding


def read_fields(payload: Mapping[str, Any], binding: Binding) -> fields.FieldPlan | None:
    """Parse with the engine's vocabulary and this server's ceilings. Raises :class:`Refused`."""
    return fields.parse(payload, binding.vocabulary, limits_for(binding))


def limits_for(binding: Binding) -> fields.FieldLimits:
    """The ceilings of this server; no list can be longer than the model's length."""
    limits = STATUS.limits
    return dataclasses.replace(limits, tokens=min(limits.tokens, binding.max_model_len))


def check_engine(plan: fields.FieldPlan, binding: Binding) -> None:
    """Refuse what this engine's configuration cannot do."""
    name = "enforced_token_ids" if plan.ids else "logprobs_mode"
    changes_mode = plan.mode.mode not in (None, binding.default_mode)
    if not plan.ids and not changes_mode:
        return
    if binding.speculative:
        raise Refused(f"{name}: not supported with speculative decoding; restart without --speculative-config", name)
    if binding.watermark or binding.modified:
        raise Refused(f"{name}: not supported with watermarking or diffusion decoding", name)
    if changes_mode and binding.default_mode not in fields.MODES:
        raise Refused(
            f"logprobs_mode: this deployment reports {binding.default_mode}; restart without --logprobs-mode logits",
            "logprobs_mode",
        )


def check_beam_search(extras: Mapping[str, Any]) -> None:
    """Refuse every field beside beam search, which has no sampled token to override."""
    for name, value in extras.items():
        if name in fields.FIELDS and value is not None:
            raise Refused(f"{name}: cannot be combined with beam search", name)


def check_params(params: Any, plan: fields.FieldPlan, binding: Binding) -> None:
    """Refuse combinations that would answer with something that was not enforced."""
    if not plan.ids:
        return
    name = "enforced_token_ids"
    if params.n != 1:
        raise Refused(f"{name}: needs n=1, got n={params.n}", "n")
    if params.prompt_logprobs is not None or getattr(params, "prompt_logprob_token_ids", None) is not None:
        raise Refused(f"{name}: cannot be combined with prompt_logprobs or echoed logprobs", "prompt_logprobs")
    if getattr(params, "trace_decode_token_ids", None):
        raise Refused(f"{name}: cannot be combined with trace_decode_token_ids", "trace_decode_token_ids")
    check_fits(1, len(plan.ids), binding)
    if params.max_tokens is not None and params.max_tokens < len(plan.ids):
        raise Refused(
            f"max_tokens: {params.max_tokens} would cut the {len(plan.ids)} enforced tokens; raise it or leave it "
            f"out, and let prompt and list fit the model's length of {binding.max_model_len}",
            "max_tokens",
        )
    if binding.runner == "v2" and params.structured_outputs is not None:
        raise Refused(f"{name}: not proved with structured outputs on Model Runner V2; {runtime.FIX_V1}", name)


def check_request(request: Any, plan: fields.FieldPlan) -> None:
    """Refuse bodies that emit nothing, or whose one list would be applied to several sequences."""
    if not plan.ids:
        return
    if getattr(request, "max_tokens", None) == 0:
        raise Refused("max_tokens=0 emits nothing; leave it out to emit the whole list", "max_tokens")
    if getattr(request, "prompt_embeds", None) is not None:
        raise Refused("prompt_embeds: cannot be combined with enforced tokens", "prompt_embeds")
    if prompts_in(getattr(request, "prompt", None)) > 1:
        raise Refused("prompt: enforced tokens need exactly one prompt", "prompt")


def prompts_in(prompt: object) -> int:
    """Number of prompts in a completions ``prompt``: a string, a list of ids, or a list of either."""
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)


def check_lengths(request: Any, binding: Binding) -> None:
    """The whole list must fit: into the model's length and into max_tokens. Raises :class:`Refused`."""
    params = request.sampling_params
    count = canonical.enforced_length(params)
    if not count:
        return
    check_fits(len(request.prompt_token_ids or ()), count, binding)
    if params.max_tokens < count:
        raise Refused(f"max_tokens={params.max_tokens} would cut the {count} enforced tokens", "max_tokens")


def check_fits(prompt: int, count: int, binding: Binding) -> None:
    """Prompt and list, in tokens, must fit the model's length. Raises :class:`Refused`."""
    if prompt + count > binding.max_model_len:
        raise Refused(
            f"enforced_token_ids: {prompt} prompt tokens and {count} enforced ones exceed the model's "
            f"length of {binding.max_model_len}",
            "enforced_token_ids",
        )
