"""Ingestion hooks of the API server: fields of a request become the canonical entry, or a 400.

Installed in every process and even when the contract is broken, so that a request that needs the plugin is refused
and never answered un-enforced. Hooks:

* ``ChatCompletionRequest.to_sampling_params`` and ``CompletionRequest.to_sampling_params``: run before a stream
  starts, so a bad field is a 400 with ``stream: true`` too;
* their ``to_beam_search_params``: refuse;
* ``InputProcessor.process_inputs``: every entrance passes it; checks the ids again with its own engine's bound,
  because sampling parameters may come from elsewhere.

Twice equals once: a hooked function carries a mark.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from logproof_vllm import canary, canonical, fields, runtime
from logproof_vllm.hooks import MARK, marked
from logproof_vllm.refusal import Refused
from logproof_vllm.runtime import STATUS, Binding
from logproof_vllm.server import report
from logproof_vllm.server.bad_request import raised_to_server

RAW_FIELDS = ("enforced_token_ids", "logprobs_mode")


def install() -> None:
    """Hook the request models and the input processor."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.v1.engine.input_processor import InputProcessor

    for model in (ChatCompletionRequest, CompletionRequest):
        _hook(model, "to_sampling_params", wrap_to_sampling_params)
        _hook(model, "to_beam_search_params", wrap_beam_search)
    _hook(InputProcessor, "process_inputs", wrap_process_inputs)


def _hook(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    if not marked(original):
        setattr(owner, name, wrap(original))


def wrap_to_sampling_params(original: Callable[..., Any]) -> Callable[..., Any]:
    """Chat and completions: read the extra fields, put the canonical entry into the sampling parameters."""

    @functools.wraps(original)
    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        payload = _extras(self)
        with raised_to_server():
            _refuse_smuggled(getattr(self, "vllm_xargs", None), "vllm_xargs")
            if not any(payload.get(name) is not None for name in fields.FIELDS):
                return original(self, *args, **kwargs)
            binding = ready()
            replay = _already_read() or read_fields(payload, binding)
            params = original(self, *args, **kwargs)
            if replay is None:
                return params
            check_request(self, replay)
            return attach(params, replay, binding)

    setattr(to_sampling_params, MARK, True)
    return to_sampling_params


def wrap_beam_search(original: Callable[..., Any]) -> Callable[..., Any]:
    """Beam search has no sampled token to override."""

    @functools.wraps(original)
    def to_beam_search_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        with raised_to_server():
            for name, value in _extras(self).items():
                if name in fields.FIELDS and value is not None:
                    raise Refused(f"{name}: cannot be combined with beam search", name)
        return original(self, *args, **kwargs)

    setattr(to_beam_search_params, MARK, True)
    return to_beam_search_params


def wrap_process_inputs(original: Callable[..., Any]) -> Callable[..., Any]:
    """Every request: check or make the canonical entry, then check it against the finished request."""

    @functools.wraps(original)
    def process_inputs(self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        if not _uses_plugin(params):
            return original(self, request_id, prompt, params, *args, **kwargs)
        with raised_to_server():
            binding = _bind(self)
            prepared = prepare(params, binding)
            request = original(self, request_id, prompt, prepared, *args, **kwargs)
            check_lengths(request, binding)
            return request

    setattr(process_inputs, MARK, True)
    return process_inputs


def ready() -> Binding:
    """The bound engine. Raises :class:`Refused` while the plugin serves nothing, with the reason."""
    reason = STATUS.refusal()
    if reason is not None:
        raise Refused(reason)
    if STATUS.binding is None:
        raise Refused("logproof knows no engine yet; try again when the server is ready")
    return STATUS.binding


def read_fields(payload: Mapping[str, Any], binding: Binding) -> fields.Replay | None:
    """Parse with the engine's vocabulary and this server's ceilings. Raises :class:`Refused`."""
    return fields.parse(payload, binding.vocabulary, limits_for(binding))


def limits_for(binding: Binding) -> fields.Limits:
    """The ceilings of this server; no list can be longer than the model's length."""
    limits = STATUS.limits
    return dataclasses.replace(limits, tokens=min(limits.tokens, binding.max_model_len))


def attach(params: Any, replay: fields.Replay, binding: Binding) -> Any:
    """Put the canonical entry into `params` and tell the reply's report. Raises :class:`Refused`."""
    check_engine(replay, binding)
    check_params(params, replay, binding)
    tag = secrets.token_hex(8)
    entry: canonical.Entry = {"ids": list(replay.ids), "mode": replay.mode.mode, "tag": tag}
    params.extra_args = {**(params.extra_args or {}), canonical.KEY: entry}
    current = report.CURRENT.get()
    if current is not None:
        current.fill(replay, binding.default_mode, tag, params.structured_outputs is not None)
    return params


def check_engine(replay: fields.Replay, binding: Binding) -> None:
    """Refuse what this engine's configuration cannot do."""
    name = "enforced_token_ids" if replay.ids else "logprobs_mode"
    changes_mode = replay.mode.mode not in (None, binding.default_mode)
    if not replay.ids and not changes_mode:
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


def check_params(params: Any, replay: fields.Replay, binding: Binding) -> None:
    """Refuse combinations that would answer with something that was not enforced."""
    if not replay.ids:
        return
    name = "enforced_token_ids"
    if params.n != 1:
        raise Refused(f"{name}: needs n=1, got n={params.n}", "n")
    if params.prompt_logprobs is not None or getattr(params, "prompt_logprob_token_ids", None) is not None:
        raise Refused(f"{name}: cannot be combined with prompt_logprobs or echoed logprobs", "prompt_logprobs")
    if getattr(params, "trace_decode_token_ids", None):
        raise Refused(f"{name}: cannot be combined with trace_decode_token_ids", "trace_decode_token_ids")
    check_fits(1, len(replay.ids), binding)
    if params.max_tokens is not None and params.max_tokens < len(replay.ids):
        raise Refused(
            f"max_tokens: {params.max_tokens} would cut the {len(replay.ids)} enforced tokens; raise it or leave it "
            f"out, and let prompt and list fit the model's length of {binding.max_model_len}",
            "max_tokens",
        )
    if binding.runner == "v2" and params.structured_outputs is not None:
        raise Refused(f"{name}: not proved with structured outputs on Model Runner V2; {runtime.FIX_V1}", name)


def check_request(request: Any, replay: fields.Replay) -> None:
    """Refuse bodies that emit nothing, or whose one list would be applied to several sequences."""
    if not replay.ids:
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


def prepare(params: Any, binding: Binding) -> Any:
    """Sampling parameters with a checked canonical entry; `params` itself is not changed.

    Raises :class:`Refused` for parameters that did not come through the hooks above and are not valid.
    """
    extra = dict(params.extra_args or {})
    entry = extra.pop(canonical.KEY, None)
    raw = {name: extra.pop(name) for name in RAW_FIELDS if name in extra}
    if entry is None or raw:
        if entry is not None:
            raise Refused(f"extra_args: send {', '.join(raw)} or nothing", "extra_args")
        ready()
        entry = _entry_from(raw, params, binding)
    else:
        entry = _checked(entry, params, binding)
    copy = params.clone()
    copy.extra_args = {**extra, canonical.KEY: entry}
    return copy


def _entry_from(raw: Mapping[str, Any], params: Any, binding: Binding) -> canonical.Entry:
    replay = read_fields(raw, binding)
    if replay is None:
        return {"ids": [], "mode": None, "tag": secrets.token_hex(8)}
    check_engine(replay, binding)
    check_params(params, replay, binding)
    return {"ids": list(replay.ids), "mode": replay.mode.mode, "tag": secrets.token_hex(8)}


def _checked(entry: Any, params: Any, binding: Binding) -> canonical.Entry:
    if not isinstance(entry, dict) or set(entry) != {"ids", "mode", "tag"} or not isinstance(entry["tag"], str):
        raise Refused(f"extra_args: {canonical.KEY} is not a field of requests", "extra_args")
    payload = {"enforced_token_ids": entry["ids"] or None, "logprobs_mode": entry["mode"]}
    if entry["tag"] != canary.TAG:
        ready()
    checked = _entry_from(payload, params, binding)
    return {**checked, "tag": entry["tag"]}


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


def _bind(processor: Any) -> Binding:
    """The binding of this input processor; several engines in one process keep apart."""
    known: Binding | None = getattr(processor, "_logproof_binding", None)
    if known is None:
        known = runtime.binding_of(processor.vllm_config, processor.tokenizer)
        processor._logproof_binding = known
        STATUS.binding = known
    return known


def _uses_plugin(params: Any) -> bool:
    extra = getattr(params, "extra_args", None) or {}
    return any(name in extra for name in (canonical.KEY, *RAW_FIELDS))


def _extras(request: Any) -> Mapping[str, Any]:
    return getattr(request, "model_extra", None) or {}


def _already_read() -> fields.Replay | None:
    """What the middleware read from this request's body."""
    current = report.CURRENT.get()
    return current.parsed if current is not None else None


def _refuse_smuggled(arguments: object, parameter: str) -> None:
    """``vllm_xargs`` coerces types (true becomes 1), so the fields are not accepted inside it."""
    if not isinstance(arguments, dict):
        return
    for name in (canonical.KEY, *fields.FIELDS):
        if name in arguments:
            raise Refused(f"{parameter}.{name}: send {name} at the top level of the body", parameter)
