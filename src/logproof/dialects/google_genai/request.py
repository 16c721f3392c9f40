"""Lowering for generateContent: what goes into the body for which model, and what is refused."""

from __future__ import annotations

import re

from logproof.dialects.common import structured
from logproof.dialects.common.absent_leaves import MESSAGE_WIRE, SCHEMA_WIRE
from logproof.dialects.google_genai.messages import lower_messages, lower_tools
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request

CONFIG = "/generationConfig"
MAX_STOPS = 5
MAX_WIDTH = 20

ROOT_OPTIONS = ("safetySettings", "cachedContent", "labels")
CONFIG_OPTIONS = ("mediaResolution", "responseModalities", "speechConfig", "audioTimestamp", "routingConfig")

ELSEWHERE = {
    "model": "model",
    "responseLogprobs": "scoring.sampled",
    "responseSchema": "output.json_schema",
}
"""Fields to which no leaf is sent here -> where to set what they ask for."""

REFUSED = {
    **MESSAGE_WIRE,
    **SCHEMA_WIRE,
    "scoring.prompt": "this wire scores no prompt; use vllm_native or sglang_native",
    "scoring.label_ids": "this wire scores no named ids; use vllm_native or sglang_native",
    "replay.token_ids": "this wire takes no ids; use vllm_native",
    "replay.logprobs_mode": "this wire has one kind of logprob; use vllm_native",
    "session.previous_response_id": "this wire keeps no session; use openai_responses",
}

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.noop("model", "the path carries it")
    ledger.noop("schedule.stream", "the path carries it")
    ledger.refuse_all(REFUSED)
    if not (1, 0) <= model_version(request.model) < (3, 6):
        ledger.refuse("input.messages.prefill", "this model takes no turn of its own to continue; use openai_chat")
    lower_messages(request.input.messages or (), ledger)
    _lower_sampling(request, ledger)
    _lower_scoring(request, ledger)
    _lower_output(request, ledger)
    _lower_reasoning(request, ledger)
    lower_tools(request.tools, ledger)
    if request.session.store:
        ledger.refuse("session.store", "this wire keeps no session; use openai_responses")
    ledger.noop("session.store", "this wire keeps no session")
    ledger.options([*ROOT_OPTIONS, *CONFIG_OPTIONS], ELSEWHERE, dict.fromkeys(CONFIG_OPTIONS, CONFIG))


def model_version(model: str) -> tuple[int, int]:
    """(major, minor) in a Gemini model's name; (0, 0) for any other name."""
    match = _VERSION.search(model)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def _lower_sampling(request: Request, ledger: Ledger) -> None:
    s = request.sampling
    _check_sampling(request, ledger)
    for name, field in (
        ("max_tokens", "maxOutputTokens"),
        ("temperature", "temperature"),
        ("top_p", "topP"),
        ("top_k", "topK"),
        ("seed", "seed"),
        ("n", "candidateCount"),
        ("frequency_penalty", "frequencyPenalty"),
        ("presence_penalty", "presencePenalty"),
    ):
        ledger.send(f"sampling.{name}", f"{CONFIG}/{field}")
    ledger.send("sampling.stop", f"{CONFIG}/stopSequences", list(s.stop or ()))
    ledger.noop("sampling.logit_bias", "an empty bias asks for nothing")


def _check_sampling(request: Request, ledger: Ledger) -> None:
    s = request.sampling
    if model_version(request.model) >= (3, 0):
        for name in ("temperature", "top_p", "top_k"):
            ledger.refuse(f"sampling.{name}", "Gemini 3 and later are documented to ignore it")
        if request.choices > 1:
            ledger.refuse("sampling.n", "Gemini 3 and later give one candidate; send several requests")
    if s.max_tokens == 0:
        ledger.refuse("sampling.max_tokens", "this wire takes 1 token and more")
    if s.top_k is not None and s.top_k < 1:
        ledger.refuse("sampling.top_k", "this wire takes 1 and more; leave it out for all tokens")
    if len(s.stop or ()) > MAX_STOPS:
        ledger.refuse("sampling.stop", f"this wire takes at most {MAX_STOPS} stop strings")
    if s.logit_bias:
        ledger.refuse("sampling.logit_bias", "this wire has no bias; use openai_chat or vllm_native")


def _lower_scoring(request: Request, ledger: Ledger) -> None:
    width = request.scoring.sampled
    ledger.noop("scoring.top_by", "ids and texts stand side by side on this wire")
    if width is not None and width > MAX_WIDTH:
        ledger.refuse("scoring.sampled", f"this wire gives at most {MAX_WIDTH} top logprobs")
    if width is not None and not ledger.stopped("scoring.sampled"):
        ledger.constant(f"{CONFIG}/responseLogprobs", True, "logprobs are asked")
    ledger.send("scoring.sampled", f"{CONFIG}/logprobs")


def _lower_output(request: Request, ledger: Ledger) -> None:
    output = request.output
    structured.refuse_broken(output, ledger)
    if output.strict is False:
        ledger.refuse("output.strict", "a schema is always held on this wire")
    if output.json_schema is not None and not ledger.stopped("output.json_schema"):
        ledger.constant(f"{CONFIG}/responseMimeType", "application/json", "a schema goes with JSON")
    ledger.send("output.json_schema", f"{CONFIG}/responseJsonSchema")
    ledger.send("output.json_object", f"{CONFIG}/responseMimeType", "application/json")
    ledger.noop("output.name", "this wire has no name for a schema; it constrains nothing")
    ledger.noop("output.strict", "a schema is always held on this wire")


def _lower_reasoning(request: Request, ledger: Ledger) -> None:
    reasoning = request.reasoning
    at = f"{CONFIG}/thinkingConfig"
    if reasoning.effort == "none":
        ledger.refuse("reasoning.effort", "this wire has no such level", "reasoning.budget_tokens 0")
    if reasoning.effort == "max":
        ledger.refuse("reasoning.effort", "the highest level of this wire is xhigh")
    if reasoning.effort is not None and reasoning.budget_tokens is not None:
        ledger.refuse("reasoning.budget_tokens", "a level and a budget exclude each other on this wire")
    if reasoning.summary in ("concise", "detailed"):
        ledger.refuse("reasoning.summary", "this wire has one kind of summary; ask auto")
    ledger.send("reasoning.effort", f"{at}/thinkingLevel", (reasoning.effort or "").upper())
    ledger.send("reasoning.budget_tokens", f"{at}/thinkingBudget")
    ledger.send("reasoning.summary", f"{at}/includeThoughts", True)
