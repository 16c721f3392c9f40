"""Lowering for /v1/messages: what goes into the body at which endpoint, and what is refused."""

from __future__ import annotations

from logproof.dialects.anthropic_messages.messages import lower_messages, lower_tools
from logproof.dialects.common import structured
from logproof.dialects.common.absent_leaves import MESSAGE_WIRE, SCHEMA_WIRE
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request

ROUTE = "/v1/messages"
VERSION = "2023-06-01"
NO_SAMPLING_SINCE = "2026-10-21"
DEFAULT_MAX_TOKENS = 4096
MIN_BUDGET = 1024
LOCAL = ("vllm", "sglang")
"""Engines that serve this wire with their own limits, and no tools, prefill or thinking minimum of the API's."""

OWN_OPTIONS = ("metadata", "service_tier", "inference_geo", "container", "speed", "cache_control")

ELSEWHERE = {
    "stop": "sampling.stop",
    "seed": "sampling.seed (openai_chat)",
    "logprobs": "scoring.sampled (openai_chat, vllm_native)",
}
"""Fields to which no leaf is sent here -> where to set what they ask for."""

REFUSED = {
    **MESSAGE_WIRE,
    **SCHEMA_WIRE,
    "sampling.seed": "this wire has no seed; use openai_chat",
    "scoring.prompt": "this wire gives no logprobs; use vllm_native or sglang_native",
    "scoring.sampled": "this wire gives no logprobs; use openai_chat, vllm_native or sglang_native",
    "scoring.label_ids": "this wire gives no logprobs; use vllm_native or sglang_native",
    "replay.token_ids": "this wire takes no ids; use vllm_native",
    "replay.logprobs_mode": "this wire gives no logprobs; use vllm_native",
    "output.json_object": "this wire takes a schema only; use output.json_schema",
    "session.previous_response_id": "this wire keeps no session; use openai_responses",
}

_TOP_FIELDS = {
    "sampling.temperature": "temperature",
    "sampling.top_p": "top_p",
    "sampling.top_k": "top_k",
    "sampling.stop": "stop_sequences",
    "output.json_schema": "output_config",
    "reasoning.effort": "output_config",
    "reasoning.budget_tokens": "thinking",
    "reasoning.summary": "thinking",
    "tools.functions": "tools",
    "tools.choice": "tool_choice",
}
"""Leaf -> the field that carries it, which a server with an OpenAPI document must list."""


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.send("model", "/model")
    ledger.refuse_all(REFUSED)
    if facts.engine in LOCAL:
        ledger.refuse("input.messages.prefill", "this server answers anew instead of continuing; use openai_chat")
    lower_messages(request.input.messages or (), ledger)
    _refuse_unread(facts, ledger)
    _lower_sampling(request, facts, ledger)
    ledger.noop("scoring.top_by", "no logprobs are asked")
    _lower_output(request, ledger)
    _lower_reasoning(request, facts, ledger)
    lower_tools(request.tools, ledger, hosts=facts.engine not in LOCAL)
    if request.session.store:
        ledger.refuse("session.store", "this wire stores nothing; use openai_responses")
    ledger.noop("session.store", "this wire stores nothing")
    ledger.send("schedule.stream", "/stream")
    ledger.options(facts.fields.get(ROUTE, OWN_OPTIONS), ELSEWHERE)


def api_version(facts: Facts) -> str:
    return facts.api_version or VERSION


def _lower_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    s = request.sampling
    if s.max_tokens is None:
        ledger.constant("/max_tokens", DEFAULT_MAX_TOKENS, "this wire asks for a limit")
    _check_sampling(request, facts, ledger)
    ledger.send("sampling.max_tokens", "/max_tokens")
    for name in ("temperature", "top_p", "top_k"):
        ledger.send(f"sampling.{name}", f"/{name}")
    ledger.send("sampling.stop", "/stop_sequences", list(s.stop or ()))
    ledger.noop("sampling.n", "this wire gives one choice")
    for name in ("frequency_penalty", "presence_penalty", "logit_bias"):
        if getattr(s, name):
            ledger.refuse(f"sampling.{name}", f"this wire has no {name}; use openai_chat")
        ledger.noop(f"sampling.{name}", "the value asks for nothing")


def _check_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    s, local = request.sampling, facts.engine in LOCAL
    if s.max_tokens == 0:
        ledger.refuse("sampling.max_tokens", "0 tokens make no reply on this wire; ask for 1")
    if api_version(facts) >= NO_SAMPLING_SINCE:
        for name in ("temperature", "top_p", "top_k"):
            ledger.refuse(f"sampling.{name}", f"API version {NO_SAMPLING_SINCE} takes no {name}, not even its default")
    if (s.temperature or 0) > 1 and not local:
        ledger.refuse("sampling.temperature", "this wire takes values from 0 to 1")
    if any(not text.strip() for text in s.stop or ()):
        ledger.refuse("sampling.stop", "this wire takes no stop of white space alone")
    if facts.engine == "vllm" and len(s.stop or ()) > 4:
        ledger.refuse("sampling.stop", "this server takes at most 4 stop strings")
    if request.choices > 1:
        ledger.refuse("sampling.n", "one choice on this wire; send several requests, or use openai_chat")


def _lower_output(request: Request, ledger: Ledger) -> None:
    output = request.output
    structured.refuse_broken(output, ledger)
    if output.json_schema is not None and not ledger.stopped("output.json_schema"):
        ledger.constant("/output_config/format/type", "json_schema", "the kind of format")
    ledger.send("output.json_schema", "/output_config/format/schema")
    ledger.noop("output.name", "this wire has no name for a schema; it constrains nothing")
    if output.strict is False:
        ledger.refuse("output.strict", "a schema is always held on this wire")
    ledger.noop("output.strict", "a schema is always held on this wire")


def _lower_reasoning(request: Request, facts: Facts, ledger: Ledger) -> None:
    effort = request.reasoning.effort
    _check_reasoning(request, facts, ledger)
    if effort == "none":
        ledger.send("reasoning.effort", "/thinking/type", "disabled")
    else:
        ledger.send("reasoning.effort", "/output_config/effort")
    asked = [f for f in ("budget_tokens", "summary") if f"reasoning.{f}" in ledger.active]
    left = [name for name in asked if not ledger.stopped(f"reasoning.{name}")]
    if "budget_tokens" in left:
        ledger.constant("/thinking/type", "enabled", "a budget goes with thinking that is on")
    elif left:
        ledger.constant("/thinking/type", "adaptive", "a summary needs thinking, and no budget is given")
    ledger.send("reasoning.budget_tokens", "/thinking/budget_tokens")
    ledger.send("reasoning.summary", "/thinking/display", "summarized")


def _check_reasoning(request: Request, facts: Facts, ledger: Ledger) -> None:
    effort, budget, summary = request.reasoning.effort, request.reasoning.budget_tokens, request.reasoning.summary
    if effort == "none":
        for leaf in ("reasoning.budget_tokens", "reasoning.summary"):
            ledger.refuse(leaf, "reasoning.effort none turns thinking off")
    if effort == "minimal":
        ledger.refuse("reasoning.effort", "this wire knows none, low, medium, high, xhigh, max")
    if summary in ("concise", "detailed"):
        ledger.refuse("reasoning.summary", "this wire has one kind of summary; ask auto")
    if budget is not None and budget < MIN_BUDGET and facts.engine not in LOCAL:
        ledger.refuse("reasoning.budget_tokens", f"this wire takes {MIN_BUDGET} tokens and more")
    if budget is not None and budget >= (request.sampling.max_tokens or DEFAULT_MAX_TOKENS):
        ledger.refuse("reasoning.budget_tokens", "the budget is part of sampling.max_tokens and must be below it")


def _refuse_unread(facts: Facts, ledger: Ledger) -> None:
    """Hold each field against the server's own document where there is one: it ignores what it does not list."""
    known = facts.fields.get(ROUTE)
    for leaf, field in _TOP_FIELDS.items():
        if known is not None and field not in known:
            ledger.refuse(leaf, f"this server does not read {field}")
