"""Lowering for /v1/chat/completions: what goes into the body at which endpoint, and what is refused."""

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
from logproof.dialects.common.vllm_fields import lower_replay, lower_top_by, refuse_sampling, refuse_wide
from logproof.dialects.common.vllm_labels import lower_labels
from logproof.dialects.ledger import Ledger
from logproof.dialects.openai_chat.messages import lower_messages
from logproof.ir.facts import Facts
from logproof.ir.request import Function, Request

ROUTE = "/v1/chat/completions"

ENGINE_FIELDS = {
    "vllm": ("top_k", "structured_outputs", "prompt_logprobs", "thinking_token_budget"),
    "sglang": ("top_k", "regex", "ebnf"),
}
"""Fields beyond OpenAI's that leaves use and that every supported version of an engine reads."""

OPENAI_OPTIONS = ("user", "metadata", "service_tier", "verbosity", "prompt_cache_key", "safety_identifier")
"""OpenAI's fields outside the IR; an endpoint with an OpenAPI document is held to that instead."""

ELSEWHERE = {
    "echo": "input.messages, or scoring.prompt",
    "use_beam_search": "sampling.n (a beam has no logprobs of its own)",
    "return_tokens_as_token_ids": "scoring.top_by",
    "return_prompt_token_ids": "scoring.sampled",
    "enforced_str": "replay.token_ids",
    "functions": "tools.functions",
    "function_call": "tools.choice",
}
"""Fields to which no leaf is sent here -> where to set what they ask for."""

REFUSED = {
    **MESSAGE_WIRE,
    "reasoning.summary": "no field of this wire; use openai_responses",
    "session.previous_response_id": "this wire keeps no session; use openai_responses",
}


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.refuse_all(REFUSED)
    ledger.send("model", "/model")
    _lower_input(request, facts, ledger)
    _lower_sampling(request, facts, ledger)
    _lower_scoring(request, facts, ledger)
    _lower_replay(request, facts, ledger)
    _lower_output(request, facts, ledger)
    _lower_reasoning(facts, ledger)
    _lower_tools(request, facts, ledger)
    _lower_rest(request, facts, ledger)


def _reads(facts: Facts, field: str) -> bool:
    """Whether the endpoint is known to read a field beyond OpenAI's."""
    return facts.has_field(ROUTE, field) or field in ENGINE_FIELDS.get(facts.engine or "", ())


def _scored(request: Request) -> bool:
    return request.scoring.sampled is not None or request.scoring.label_ids is not None


def _lower_input(request: Request, facts: Facts, ledger: Ledger) -> None:
    if request.input.messages is None:
        return
    lower_messages(request.input.messages, facts, ledger)
    if "input.messages.prefill" in ledger.active and not ledger.stopped("input.messages.prefill"):
        ledger.send("input.messages.prefill", "/continue_final_message", True)
        if facts.engine == "vllm":
            ledger.constant("/add_generation_prompt", False, "the last turn is continued, none is begun")


def _lower_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    s, engine = request.sampling, facts.engine
    _refuse_sampling(request, facts, ledger)
    for name in ("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty"):
        ledger.send(f"sampling.{name}", f"/{name}")
    legacy = engine in ("llama.cpp", "tgi")
    ledger.send("sampling.max_tokens", "/max_tokens" if legacy else "/max_completion_tokens")
    lower_stop(s, ledger)
    ledger.send("sampling.logit_bias", "/logit_bias", bias(s.logit_bias or {}))


def _refuse_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    s, engine = request.sampling, facts.engine
    refuse_ranges(s, facts, ledger)
    if not _reads(facts, "top_k"):
        ledger.refuse("sampling.top_k", "no field of OpenAI's wire, and this endpoint is not known to read it")
    if engine == "vllm":
        refuse_sampling(request, ledger)
    if engine == "sglang" and not facts.deterministic:
        ledger.refuse("sampling.seed", "SGLang heeds a seed only with --enable-deterministic-inference")
    if len(s.stop or ()) > (32 if engine == "sglang" else 4):
        ledger.refuse("sampling.stop", "more stop strings than this wire takes (OpenAI, vLLM: 4; SGLang: 32)")
    if request.choices > 1 and engine == "llama.cpp":
        ledger.refuse("sampling.n", "this server gives one choice whatever n is")
    if engine != "vllm" and any(abs(v) > 100 for v in (s.logit_bias or {}).values()):
        ledger.refuse("sampling.logit_bias", "a bias lies between -100 and 100 on this wire")


def _lower_scoring(request: Request, facts: Facts, ledger: Ledger) -> None:
    scoring = request.scoring
    _lower_prompt(request, facts, ledger)
    fault = openai_scores.width_fault(scoring.sampled or 0, facts)
    if fault is not None:
        ledger.refuse("scoring.sampled", fault, "a smaller scoring.sampled, or vllm_native")
    by_id = ("logprob_token_ids", "return_tokens_as_token_ids")
    lower_labels(request, ledger, [f for f in by_id if not facts.has_field(ROUTE, f)], beside=True)
    if scoring.sampled and not ledger.stopped("scoring.sampled"):
        ledger.send("scoring.sampled", "/top_logprobs", openai_scores.asked_width(scoring.sampled, facts))
        ledger.constant("/logprobs", True, "top_logprobs counts only beside it")
    else:
        ledger.send("scoring.sampled", "/logprobs", True)
    lower_top_by(request, ledger, listed=facts.has_field(ROUTE, "return_tokens_as_token_ids"))
    if facts.has_field(ROUTE, "return_token_ids") and not (facts.engine == "sglang" and request.schedule.stream):
        ledger.constant("/return_token_ids", True, "ids are the independent count of every channel")


def _lower_prompt(request: Request, facts: Facts, ledger: Ledger) -> None:
    if not (_reads(facts, "prompt_logprobs") and facts.has_field(ROUTE, "return_token_ids")):
        ledger.refuse("scoring.prompt", "this endpoint does not score a chat prompt", "vllm_native or sglang_native")
    refuse_wide("scoring.prompt", request.scoring.prompt, facts, ledger)
    ledger.send("scoring.prompt", "/prompt_logprobs")


def _lower_replay(request: Request, facts: Facts, ledger: Ledger) -> None:
    instead = "vllm_native with scoring.prompt over prompt and completion ids"
    lower_replay(request, facts, ledger, named=facts.has_field(ROUTE, "return_token_ids"), instead=instead)


def _lower_output(request: Request, facts: Facts, ledger: Ledger) -> None:
    output = request.output
    structured.refuse_broken(output, ledger)
    lower_schema(output, facts, ledger, "/response_format", "/response_format/json_schema")
    grammars = {"regex": "/regex", "grammar": "/ebnf"} if facts.engine == "sglang" else {}
    if _reads(facts, "structured_outputs"):
        grammars = {name: f"/structured_outputs/{name}" for name in ("regex", "choice", "grammar")}
    for name in ("regex", "choice", "grammar"):
        if name not in grammars:
            ledger.refuse(f"output.{name}", "no field of this wire at this endpoint", "output.json_schema")
            continue
        value = getattr(output, name)
        ledger.send(f"output.{name}", grammars[name], list(value) if isinstance(value, tuple) else value)


def _lower_reasoning(facts: Facts, ledger: Ledger) -> None:
    if facts.engine in ("llama.cpp", "tgi"):
        ledger.refuse("reasoning.effort", "this server ignores it")
    ledger.send("reasoning.effort", "/reasoning_effort")
    if not _reads(facts, "thinking_token_budget"):
        ledger.refuse("reasoning.budget_tokens", "no field of this wire at this endpoint", "reasoning.effort")
    ledger.send("reasoning.budget_tokens", "/thinking_token_budget")


def _lower_tools(request: Request, facts: Facts, ledger: Ledger) -> None:
    tools = request.tools
    refuse_twins(tools, ledger)
    ledger.send("tools.functions", "/tools", [_function(f) for f in tools.functions or ()])
    hosted = tools.hosted or ()
    if facts.engine != "openai" or [h.kind for h in hosted] != ["web_search"]:
        ledger.refuse("tools.hosted", "this wire runs web_search alone, and only at OpenAI", "openai_responses")
    ledger.send("tools.hosted", "/web_search_options", dict(hosted[0].config) if hosted else {})
    named = {"type": "function", "function": {"name": (tools.choice or "").removeprefix("function:")}}
    lower_choice(tools, tools.functions or (), "functions", named, ledger)


def _function(function: Function) -> dict[str, object]:
    fields = {"description": function.description, "parameters": function.parameters, "strict": function.strict}
    return {
        "type": "function",
        "function": {"name": function.name, **{k: v for k, v in fields.items() if v is not None}},
    }


def _lower_rest(request: Request, facts: Facts, ledger: Ledger) -> None:
    if facts.engine == "openai":
        ledger.send("session.store", "/store")
    elif request.session.store:
        ledger.refuse("session.store", "this wire keeps no session to continue", "openai_responses")
    else:
        ledger.noop("session.store", "this wire keeps nothing unless asked")
    if request.scoring.prompt is not None and request.schedule.stream:
        ledger.noop("schedule.stream", "sent unstreamed: streamed replies carry no prompt scores")
    elif facts.engine == "sglang" and _scored(request) and request.schedule.stream:
        ledger.noop("schedule.stream", "sent unstreamed: SGLang's stream loses the end token's logprob")
    else:
        ledger.send("schedule.stream", "/stream")
        if request.schedule.stream:
            ledger.constant("/stream_options/include_usage", True, "usage is the independent count of the channels")
    ledger.options(facts.fields.get(ROUTE) or OPENAI_OPTIONS, ELSEWHERE)
