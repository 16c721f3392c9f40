"""Lowering for /v1/responses: what goes into the body at which endpoint, and what is refused."""

from __future__ import annotations

from logproof.dialects.common import openai_scores, structured
from logproof.dialects.common.absent_leaves import MESSAGE_WIRE
from logproof.dialects.common.openai_request import (
    bias,
    lower_choice,
    lower_schema,
    lower_stop,
    refuse_ranges,
    refuse_twins,
)
from logproof.dialects.common.vllm_fields import refuse_sampling
from logproof.dialects.ledger import Ledger
from logproof.dialects.openai_responses.messages import lower_messages
from logproof.ir.facts import Facts
from logproof.ir.request import Function, Request

ROUTE = "/v1/responses"

ENGINE_FIELDS = {
    "vllm": ("top_k", "seed", "stop", "frequency_penalty", "presence_penalty", "logit_bias", "structured_outputs"),
    "sglang": ("top_k", "stop", "frequency_penalty", "presence_penalty"),
}
"""Fields beyond OpenAI's that leaves use and that every supported version of an engine reads."""

OPENAI_OPTIONS = (
    "include",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "user",
)
"""OpenAI's fields outside the IR; an endpoint with an OpenAPI document is held to that instead."""

HOSTED = (
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "shell",
    "tool_search",
    "web_search",
    "web_search_preview",
)
"""Kinds of tools that OpenAI runs."""

ELSEWHERE = {
    "instructions": "input.messages with a system message",
    "prompt": "input.messages",
    "previous_input_messages": "input.messages",
    "enforced_token_ids": "replay.token_ids (vllm_native, openai_chat)",
    "logprobs_mode": "replay.logprobs_mode (vllm_native, openai_chat)",
    "conversation": "session.previous_response_id",
    "stream_options": "schedule.stream",
}
"""Fields to which no leaf is sent here -> where to set what they ask for."""

HARMFUL = {
    "options.truncation": "auto drops the oldest input in silence, and disabled is what holds without it",
    "options.background": "a reply that is not done holds no result",
}

REFUSED = {
    **MESSAGE_WIRE,
    "scoring.prompt": "no field of this wire; use vllm_native, sglang_native, or openai_chat at vLLM",
    "scoring.label_ids": "no field of this wire; use vllm_native, sglang_native, or openai_chat at vLLM",
    "replay.token_ids": "no field of this wire; use vllm_native or openai_chat",
    "replay.logprobs_mode": "no field of this wire; use vllm_native or openai_chat",
    "reasoning.budget_tokens": "no field of this wire; use reasoning.effort",
}

_LOGPROBS = ("message.output_text.logprobs",)


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.refuse_all(REFUSED)
    ledger.send("model", "/model")
    if request.input.messages is not None:
        lower_messages(request.input.messages, facts, ledger)
    _lower_sampling(request, facts, ledger)
    _lower_scoring(request, facts, ledger)
    _lower_output(request, facts, ledger)
    _lower_reasoning(facts, ledger)
    _lower_tools(request, facts, ledger)
    _lower_session(request, facts, ledger)
    scored_stream = request.scoring.sampled is not None and request.schedule.stream
    if scored_stream and facts.engine in ("vllm", "sglang"):
        ledger.noop("schedule.stream", "sent unstreamed: this server's stream loses logprobs of tokens without text")
    else:
        ledger.send("schedule.stream", "/stream")
    ledger.refuse_all(HARMFUL)
    ledger.options(facts.fields.get(ROUTE) or OPENAI_OPTIONS, ELSEWHERE, shared=("include",))


def _reads(facts: Facts, field: str) -> bool:
    """Whether the endpoint is known to read a field beyond OpenAI's."""
    return facts.has_field(ROUTE, field) or field in ENGINE_FIELDS.get(facts.engine or "", ())


def _lower_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    s = request.sampling
    _refuse_sampling(request, facts, ledger)
    for name in ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"):
        ledger.send(f"sampling.{name}", f"/{name}")
    ledger.send("sampling.max_tokens", "/max_output_tokens")
    ledger.noop("sampling.n", "this wire gives one choice")
    lower_stop(s, ledger)
    ledger.send("sampling.logit_bias", "/logit_bias", bias(s.logit_bias or {}))


def _refuse_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    s = request.sampling
    for name in ("top_k", "seed", "stop", "frequency_penalty", "presence_penalty", "logit_bias"):
        if not _reads(facts, name) and not (name == "stop" and s.stop == ()):
            ledger.refuse(f"sampling.{name}", "no field of OpenAI's wire, and this endpoint is not known to read it")
    refuse_ranges(s, facts, ledger)
    if len(s.stop or ()) > 4:
        ledger.refuse("sampling.stop", "more than 4 stop strings")
    if request.choices > 1:
        ledger.refuse("sampling.n", "this wire gives one choice; use openai_chat")
    if facts.engine == "vllm":
        refuse_sampling(request, ledger)


def _lower_scoring(request: Request, facts: Facts, ledger: Ledger) -> None:
    width = request.scoring.sampled
    fault = openai_scores.width_fault(width or 0, facts)
    if fault is not None:
        ledger.refuse("scoring.sampled", fault, "a smaller scoring.sampled, or vllm_native")
    if width:
        ledger.send("scoring.sampled", "/top_logprobs", openai_scores.asked_width(width, facts))
        ledger.constant("/include", list(_LOGPROBS), "top_logprobs counts only beside it")
    else:
        ledger.send("scoring.sampled", "/include", list(_LOGPROBS))
    if width is not None:
        ledger.refuse("options.include", "this field belongs to scoring.sampled here", "scoring.sampled")
    if width and request.scoring.top_by == "id":
        ledger.refuse("scoring.top_by", "this wire keys by text", "openai_chat at vLLM, or vllm_native")
    ledger.noop("scoring.top_by", "texts are this wire's only keys" if width else "no rivals are asked")
    if facts.has_field(ROUTE, "enable_response_messages"):
        ledger.constant("/enable_response_messages", True, "ids are the independent count of the sampled channel")


def _lower_output(request: Request, facts: Facts, ledger: Ledger) -> None:
    output = request.output
    structured.refuse_broken(output, ledger)
    for name in ("regex", "choice", "grammar"):
        if not _reads(facts, "structured_outputs"):
            ledger.refuse(f"output.{name}", "no field of this wire at this endpoint", "output.json_schema")
        value = getattr(output, name)
        ledger.send(f"output.{name}", f"/structured_outputs/{name}", list(value) if isinstance(value, tuple) else value)
    lower_schema(output, facts, ledger, "/text/format", "/text/format")


def _lower_reasoning(facts: Facts, ledger: Ledger) -> None:
    if facts.engine in ("vllm", "sglang"):
        ledger.refuse("reasoning.summary", "this server makes no summaries: it shows the reasoning itself")
    ledger.send("reasoning.effort", "/reasoning/effort")
    ledger.send("reasoning.summary", "/reasoning/summary")


def _lower_tools(request: Request, facts: Facts, ledger: Ledger) -> None:
    tools = request.tools
    refuse_twins(tools, ledger)
    for hosted in tools.hosted or ():
        if facts.engine != "openai" or hosted.kind not in HOSTED or "type" in hosted.config:
            ledger.refuse("tools.hosted", f"{hosted.kind}: only OpenAI runs tools here, those that it documents")
    listed = [_function(f) for f in tools.functions or ()]
    if not ledger.stopped("tools.hosted"):
        listed += [{"type": h.kind, **h.config} for h in tools.hosted or ()]
    ledger.send("tools.functions", "/tools", listed)
    ledger.send("tools.hosted", "/tools", listed)
    named = {"type": "function", "name": (tools.choice or "").removeprefix("function:")}
    lower_choice(tools, listed, "tools", named, ledger)


def _function(function: Function) -> dict[str, object]:
    """A function in this wire's flat form, which wants both `parameters` and `strict`; null leaves it to the server."""
    described = {"description": function.description} if function.description is not None else {}
    required = {"parameters": function.parameters, "strict": function.strict}
    return {"type": "function", "name": function.name, **described, **required}


def _lower_session(request: Request, facts: Facts, ledger: Ledger) -> None:
    session = request.session
    if facts.engine == "vllm":
        why = "vLLM keeps no responses unless its store is switched on, and ignores the wish in silence"
        ledger.refuse("session.previous_response_id", why, "input.messages with the whole conversation")
        if session.store:
            ledger.refuse("session.store", why, "input.messages with the whole conversation")
    ledger.send("session.previous_response_id", "/previous_response_id")
    ledger.send("session.store", "/store")
    if session.store is None and session.previous_response_id is None:
        ledger.constant("/store", False, "servers keep every response unless told not to")
