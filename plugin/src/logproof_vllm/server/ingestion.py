"""Ingestion hooks of the API server: fields of a request become the canonical entry, or a 400.

Installed in every process and even when the contract is broken, so that a request that needs the plugin is refused
and never answered un-enforced. Hooks:

* ``ChatCompletionRequest.to_sampling_params`` and ``CompletionRequest.to_sampling_params``: run before a stream
  starts, so a bad field is a 400 with ``stream: true`` too;
* their ``to_beam_search_params``: refuse;
* ``InputProcessor.process_inputs``: every entrance passes it; checks the ids again with its own engine's bound,
  because sampling parameters may come from elsewhere.

Twice equals once: a hooked function carries a mark.

Delete when: vLLM's request models declare the fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from logproof_vllm import canary, canonical, fields, runtime
from logproof_vllm.hooks import MARK, marked
from logproof_vllm.refusal import Refused
from logproof_vllm.runtime import STATUS, Binding
from logproof_vllm.server import checks, report
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
            binding = checks.ready()
            plan = _already_read() or checks.read_fields(payload, binding)
            params = original(self, *args, **kwargs)
            if plan is None:
                return params
            checks.check_request(self, plan)
            return attach(params, plan, binding)

    setattr(to_sampling_params, MARK, True)
    return to_sampling_params


def wrap_beam_search(original: Callable[..., Any]) -> Callable[..., Any]:
    """Beam search has no sampled token to override."""

    @functools.wraps(original)
    def to_beam_search_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        with raised_to_server():
            checks.check_beam_search(_extras(self))
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
            checks.check_lengths(request, binding)
            return request

    setattr(process_inputs, MARK, True)
    return process_inputs


def attach(params: Any, plan: fields.FieldPlan, binding: Binding) -> Any:
    """Put the canonical entry into `params` and tell the reply's report. Raises :class:`Refused`."""
    checks.check_engine(plan, binding)
    checks.check_params(params, plan, binding)
    entry = canonical.entry_of(plan.ids, plan.mode.mode)
    params.extra_args = {**(params.extra_args or {}), canonical.KEY: entry}
    current = report.CURRENT.get()
    if current is not None:
        current.fill(plan, binding.default_mode, entry["tag"], params.structured_outputs is not None)
    return params


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
        checks.ready()
        entry = _entry_from(raw, params, binding)
    else:
        entry = _checked(entry, params, binding)
    copy = params.clone()
    copy.extra_args = {**extra, canonical.KEY: entry}
    return copy


def _entry_from(raw: Mapping[str, Any], params: Any, binding: Binding) -> canonical.EngineEntry:
    plan = checks.read_fields(raw, binding)
    if plan is None:
        return canonical.entry_of((), None)
    checks.check_engine(plan, binding)
    checks.check_params(params, plan, binding)
    return canonical.entry_of(plan.ids, plan.mode.mode)


def _checked(entry: Any, params: Any, binding: Binding) -> canonical.EngineEntry:
    if not isinstance(entry, dict) or set(entry) != {"ids", "mode", "tag"} or not isinstance(entry["tag"], str):
        raise Refused(f"extra_args: {canonical.KEY} is not a field of requests", "extra_args")
    payload = {"enforced_token_ids": entry["ids"] or None, "logprobs_mode": entry["mode"]}
    if entry["tag"] != canary.TAG:
        checks.ready()
    return {**_entry_from(payload, params, binding), "tag": entry["tag"]}


def _bind(processor: Any) -> Binding:
    """The binding of this input processor; several engines in one process keep apart."""
    binding: Binding | None = getattr(processor, "_logproof_binding", None)
    if binding is None:
        binding = runtime.binding_of(processor.vllm_config, processor.tokenizer)
        processor._logproof_binding = binding
        STATUS.binding = binding
    return binding


def _uses_plugin(params: Any) -> bool:
    extra = getattr(params, "extra_args", None) or {}
    return any(name in extra for name in (canonical.KEY, *RAW_FIELDS))


def _extras(request: Any) -> Mapping[str, Any]:
    return getattr(request, "model_extra", None) or {}


def _already_read() -> fields.FieldPlan | None:
    """What the middleware read from this request's body."""
    current = report.CURRENT.get()
    return current.body_plan if current is not None else None


def _refuse_smuggled(arguments: object, parameter: str) -> None:
    """``vllm_xargs`` coerces types (true becomes 1), so the fields are not accepted inside it."""
    if not isinstance(arguments, dict):
        return
    for name in (canonical.KEY, *fields.FIELDS):
        if name in arguments:
            raise Refused(f"{parameter}.{name}: send {name} at the top level of the body", parameter)
