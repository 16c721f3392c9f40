"""Every private surface of vLLM the plugin touches: what it needs, why, and when the row can go.

:func:`check` looks at the installed vLLM by structure (names, parameters, fields); it never reads source text. What
structure cannot show, ``engine/v1_trial`` tries. ``plugin/scripts/contract_wheels.py`` checks the same rows in the
wheels of other versions without installing them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

V1_VERSIONS = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
V2_VERSIONS = ("0.31", "0.32")
HOW_TO_TRY = "'Add a vLLM version' in logproof's CONTRIBUTING.md says how"


@dataclass(frozen=True)
class Surface:
    """One row. ``parameters``: names the callable must have, in this order, at the front (after ``self``).

    ``fields``: attributes or annotated names a class or module must have. ``since``: the first minor that has it,
    as a pair; earlier versions are not asked for it.
    """

    module: str
    name: str
    reason: str
    removal: str
    parameters: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    since: tuple[int, int] = (0, 0)
    loads: bool = True

    @property
    def path(self) -> str:
        return f"{self.module}:{self.name}"

    @property
    def in_wheel(self) -> bool:
        """Whether vLLM's own wheel holds it; what it depends on is checked where it is installed."""
        return self.module.startswith("vllm.")


_OWN_REPLAY = "vLLM enforces ids itself on both runners and resumes after the list"
_OWN_MODE = "SamplingParams has a logprobs mode of its own"
_OWN_FIELDS = "the request models declare the fields"
_SAMPLER = "vllm.v1.sample.sampler"
_LP = "vllm.v1.sample.logits_processor"
_V2 = "vllm.v1.worker.gpu.sample.sampler"
_SO = "vllm.v1.structured_output"

SURFACE: tuple[Surface, ...] = (
    Surface(_SAMPLER, "Sampler.forward", "plan the step", _OWN_REPLAY,
            ("logits", "sampling_metadata", "predict_bonus_token", "logprobs_mode_override")),
    Surface(_SAMPLER, "Sampler.sample", "override ids, merge logprobs", _OWN_REPLAY,
            ("logits", "sampling_metadata", "logprobs_mode_override")),
    Surface(_SAMPLER, "Sampler.compute_logprobs", "raw logprobs of mixed batches", _OWN_MODE, ("logits",)),
    Surface("vllm.v1.sample.ops.topk_topp_sampler", "apply_top_k_top_p", "processed logprobs of mixed batches",
            _OWN_MODE, ("logits", "k", "p")),
    Surface("vllm.v1.sample.ops.topk_topp_sampler", "TopKTopPSampler.forward_native",
            "the stage whose input is captured", _OWN_MODE, ("logits", "generators", "k", "p")),
    Surface("vllm.v1.sample.metadata", "SamplingMetadata", "read by the wraps", _OWN_REPLAY,
            fields=("temperature", "all_greedy", "all_random", "top_p", "top_k", "generators", "max_num_logprobs",
                    "logitsprocs", "logprob_token_ids")),
    Surface(_LP, "BUILTIN_LOGITS_PROCESSORS", "per-row state without patching the batch", _OWN_REPLAY),
    Surface(_LP, "LogitsProcessor", "base of the rows processor", _OWN_REPLAY,
            fields=("apply", "is_argmax_invariant", "update_state", "validate_params")),
    Surface(f"{_LP}.builtin", "process_dict_updates", "row bookkeeping", _OWN_REPLAY,
            ("req_entries", "batch_update", "new_state")),
    Surface(f"{_LP}.interface", "BatchUpdate", "row bookkeeping", _OWN_REPLAY,
            fields=("batch_size", "removed", "added", "moved")),
    Surface("vllm.sampling_params", "SamplingParams", "carries the canonical entry", _OWN_FIELDS,
            fields=("extra_args", "n", "max_tokens", "prompt_logprobs", "structured_outputs", "clone")),
    Surface("vllm.v1.engine.input_processor", "InputProcessor.process_inputs", "one choke point", _OWN_FIELDS,
            ("request_id", "prompt", "params")),
    Surface("vllm.v1.engine", "EngineCoreRequest", "lengths are checked on it", _OWN_FIELDS,
            fields=("prompt_token_ids", "sampling_params")),
    Surface("vllm.exceptions", "VLLMValidationError", "the 400", _OWN_FIELDS, ("message", "parameter", "value")),
    Surface("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest.to_sampling_params",
            "fields of chat", _OWN_FIELDS, ("max_tokens",)),
    Surface("vllm.entrypoints.openai.completion.protocol", "CompletionRequest.to_sampling_params",
            "fields of completions", _OWN_FIELDS, ("max_tokens",)),
    Surface("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest.to_beam_search_params",
            "refused", _OWN_FIELDS),
    Surface("vllm.entrypoints.openai.completion.protocol", "CompletionRequest.to_beam_search_params",
            "refused", _OWN_FIELDS),
    Surface("vllm.v1.core.sched.scheduler", "check_stop", "stops inside the list", _OWN_REPLAY,
            ("request", "max_model_len")),
    Surface("vllm.v1.engine.detokenizer", "BaseIncrementalDetokenizer.__init__", "stop strings inside the list",
            _OWN_REPLAY, ("request",)),
    Surface(_SO, "StructuredOutputManager._create_grammar", "grammar degrades alone", _OWN_REPLAY, ("request",)),
    Surface(f"{_SO}.backend_types", "StructuredOutputGrammar", "base of the guard", _OWN_REPLAY,
            fields=("accept_tokens", "validate_tokens", "rollback", "fill_bitmask", "is_terminated", "reset")),
    Surface("vllm.v1.engine.core", "EngineCore", "reports where a grammar went off", _OWN_REPLAY),
    Surface("vllm.v1.engine.core_client", "AsyncMPClient._call_utility_async", "reports where a grammar went off",
            _OWN_REPLAY, ("method",)),
    Surface("vllm.distributed.device_communicators.shm_broadcast", "MessageQueue.__init__", "ring size",
            "vLLM has its own setting", ("n_reader", "n_local_reader", "local_reader_ranks", "max_chunk_bytes",
                                         "max_chunks")),
    Surface("vllm.plugins.endpoint_plugins.interface", "EndpointPlugin", "middleware, canary, status", "never",
            fields=("attach_router", "init_state"), since=(0, 26)),
    Surface("fastapi", "FastAPI.add_middleware", "no route drops a field, endpoint plugin or not", "never",
            ("middleware_class",)),
    Surface(_V2, "Sampler.add_request", "enforced ids on V2", _OWN_REPLAY, ("req_idx",), since=(0, 31), loads=False),
    Surface(_V2, "Sampler.sample", "row-wise modes on V2", _OWN_MODE, ("logits",), since=(0, 31), loads=False),
    Surface(_V2, "Sampler.__call__", "row-wise modes on V2", _OWN_MODE, ("logits", "input_batch"), since=(0, 31),
            loads=False),
    Surface("vllm.v1.worker.gpu.sample.trace_replay", "TraceReplayState.add_request", "enforced ids on V2",
            _OWN_REPLAY, ("req_idx", "sampling_params"), since=(0, 29), loads=False),
)  # fmt: skip


def vllm_version() -> str:
    """The installed version, without a local build suffix."""
    import vllm

    return str(vllm.__version__).partition("+")[0]


def minor(version: str) -> tuple[int, int]:
    """``0.32.0`` -> (0, 32). Raises ValueError for another form."""
    major, minor_part, *_ = version.split(".")
    return int(major), int(minor_part)


def supported() -> str:
    """The versions that the plugin claims, for a line of text."""
    return ", ".join(V1_VERSIONS)


def untried(version: str) -> str | None:
    """Why the plugin serves nothing on this vLLM, and what to do; None for a minor version that was tried."""
    try:
        tried = minor(version) in {minor(claimed) for claimed in V1_VERSIONS}
    except ValueError:
        tried = False
    if tried:
        return None
    return f"vLLM {version} was never tried with the plugin; install one of {supported()}, or try it ({HOW_TO_TRY})"


def v2_refusal(version: str) -> str | None:
    """Why this vLLM's V2 runner is not covered; None when it is."""
    if any(version == claimed or version.startswith(f"{claimed}.") for claimed in V2_VERSIONS):
        return None
    return f"vLLM {version} runs Model Runner V2, which the plugin covers on {', '.join(V2_VERSIONS)} only"


def check() -> list[str]:
    """What is broken in the installed vLLM, one sentence a row; empty when the plugin fits."""
    version = vllm_version()
    reason = untried(version)
    if reason is not None:
        return [reason]
    rows = [row for row in SURFACE if row.loads and row.since <= minor(version)]
    return [problem for row in rows for problem in check_row(row)]


def check_row(row: Surface) -> Iterator[str]:
    """Problems of one row in the installed vLLM."""
    try:
        target: Any = importlib.import_module(row.module)
        for part in row.name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError):
        yield f"{row.path} is missing"
        return
    if row.parameters:
        names = [name for name in inspect.signature(target).parameters if name != "self"]
        if tuple(names[: len(row.parameters)]) != row.parameters:
            yield f"{row.path} takes ({', '.join(names)}), not ({', '.join(row.parameters)}, ...)"
    for name in row.fields:
        if not has_field(target, name):
            yield f"{row.path} has no {name}"


def has_field(owner: Any, name: str) -> bool:
    """An attribute, or a name annotated in the class or a base (dataclasses and Structs without defaults)."""
    bases = getattr(owner, "__mro__", ())
    return hasattr(owner, name) or any(name in getattr(base, "__annotations__", {}) for base in bases)


def markdown() -> str:
    """The table as docs/plugin.md shows it."""
    lines = ["| surface | used for | from | goes when |", "|---|---|---|---|"]
    for row in SURFACE:
        since = ".".join(map(str, row.since)) if row.since != (0, 0) else "all"
        takes = f"({', '.join(row.parameters)})" if row.parameters else ""
        lines.append(f"| `{row.module}`: `{row.name}{takes}` | {row.reason} | {since} | {row.removal} |")
    return "\n".join(lines)
