"""Lowering for vLLM's /v1/completions with its own fields: what goes into the body, and what is refused."""

from __future__ import annotations

from logproof.dialects.common import completions, structured
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request

ROUTE = "/v1/completions"

MAX_STOPS = 4
"""vLLM's own default of VLLM_MAX_STOP_STRINGS; more are a 400."""

OWN_OPTIONS = ("min_p", "repetition_penalty", "stop_token_ids", "min_tokens", "ignore_eos", "add_special_tokens")
"""vLLM fields that go through even where no OpenAPI document was seen; more when the document lists them."""

LEAF_FIELDS = {
    "model": "model",
    "prompt": "input.text or input.token_ids",
    "suffix": "input.suffix",
    "max_tokens": "sampling.max_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "seed": "sampling.seed",
    "stop": "sampling.stop",
    "n": "sampling.n",
    "frequency_penalty": "sampling.frequency_penalty",
    "presence_penalty": "sampling.presence_penalty",
    "logit_bias": "sampling.logit_bias",
    "prompt_logprobs": "scoring.prompt",
    "logprobs": "scoring.sampled",
    "logprob_token_ids": "scoring.label_ids",
    "return_tokens_as_token_ids": "scoring.top_by",
    "return_token_ids": "scoring.sampled",
    "echo": "scoring.prompt",
    "structured_outputs": "output.json_schema (structured_output)",
    "response_format": "output.json_schema (structured_output)",
    "structured_output": "output.json_schema",
    "guided_json": "output.json_schema (structured_output)",
    "guided_regex": "output.regex (structured_output)",
    "guided_choice": "output.choice (structured_output)",
    "guided_grammar": "output.grammar (structured_output)",
    "stream": "schedule.stream",
    "stream_options": "schedule.stream",
    "enforced_token_ids": "replay.token_ids",
    "enforced_tokens": "replay.token_ids",
    "enforced_str": "replay.token_ids",
    "logprobs_mode": "replay.logprobs_mode",
    "use_beam_search": "sampling.n (beam search drops prompt logprobs)",
}
"""Wire fields that a leaf owns, or that the dialect sets itself, and where to set them."""

REFUSED = {
    "input.messages": "this wire takes no chat messages; use openai_chat",
    "input.suffix": "vLLM answers 400 to any suffix, also an empty one",
    "reasoning.effort": "this wire has no reasoning parser; use openai_chat",
    "reasoning.budget_tokens": "this wire has no reasoning parser; use openai_chat",
    "reasoning.summary": "this wire has no reasoning parser; use openai_responses",
    "tools.functions": "this wire has no tool parser; use openai_chat",
    "tools.hosted": "this wire has no hosted tools; use openai_responses",
    "tools.choice": "this wire has no tool parser; use openai_chat",
    "tools.parallel": "this wire has no tool parser; use openai_chat",
    "session.previous_response_id": "this wire keeps no session; use openai_responses",
    "session.store": "this wire keeps no session; use openai_responses",
}


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.send("model", "/model")
    ledger.send("input.text", "/prompt")
    ledger.send("input.token_ids", "/prompt", list(request.input.token_ids or ()))
    for feature in [leaf for leaf in ledger.active if leaf.startswith("input.messages.")]:
        ledger.refuse(feature, REFUSED["input.messages"])
    ledger.refuse_all(REFUSED)
    _lower_sampling(request, ledger)
    _lower_scoring(request, facts, ledger)
    _lower_output(request, ledger)
    _lower_replay(request, facts, ledger)
    ledger.noop("schedule.stream", "sent unstreamed: streamed choices carry no prompt_logprobs")
    ledger.options([*OWN_OPTIONS, *facts.fields.get(ROUTE, ())], LEAF_FIELDS)


_SAMPLING = {
    f"sampling.{name}": f"/{name}"
    for name in ("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty")
}


def _lower_sampling(request: Request, ledger: Ledger) -> None:
    for leaf, pointer in _SAMPLING.items():
        ledger.send(leaf, pointer)
    if request.sampling.seed == -1:
        ledger.refuse("sampling.seed", "vLLM takes -1 for no seed at all; choose another")
    if request.choices > 1 and request.sampling.temperature == 0:
        ledger.refuse("sampling.n", "n above 1 needs a temperature above 0")
    if request.sampling.max_tokens == 0:
        ledger.refuse("sampling.max_tokens", "vLLM answers 400 to 0 tokens without echo; ask for 1", "max_tokens 1")
    ledger.send("sampling.max_tokens", "/max_tokens")
    ledger.send("sampling.stop", "/stop", list(request.sampling.stop or ()))
    if len(request.sampling.stop or ()) > MAX_STOPS:
        ledger.refuse("sampling.stop", f"vLLM takes at most {MAX_STOPS} stop strings")
    ledger.send("sampling.logit_bias", "/logit_bias", completions.bias_body(request))


def _lower_scoring(request: Request, facts: Facts, ledger: Ledger) -> None:
    scoring = request.scoring
    ledger.send("scoring.prompt", "/prompt_logprobs")
    ledger.send("scoring.sampled", "/logprobs")
    _lower_labels(request, facts, ledger)
    for leaf, width in (("scoring.prompt", scoring.prompt), ("scoring.sampled", scoring.sampled)):
        if facts.max_logprobs is not None and (width or 0) > facts.max_logprobs:
            ledger.refuse(leaf, f"this endpoint gives at most {facts.max_logprobs} (vLLM's --max-logprobs)")
    ledger.constant("/return_token_ids", True, "ids are the independent count of every channel")
    if scoring.sampled is None and scoring.label_ids is None:
        ledger.noop("scoring.top_by", "no sampled logprobs are asked")
    elif scoring.top_by == "text":
        ledger.noop("scoring.top_by", "texts are this wire's own keys")
    else:
        ledger.constant("/return_tokens_as_token_ids", True, "texts of pieces collapse in the top map; ids do not")
        ledger.covered("scoring.top_by", "/return_tokens_as_token_ids")


def _lower_labels(request: Request, facts: Facts, ledger: Ledger) -> None:
    scoring = request.scoring
    if scoring.label_ids is None:
        return
    if not facts.has_field(ROUTE, "logprob_token_ids"):
        ledger.refuse("scoring.label_ids", "this endpoint does not list logprob_token_ids", "scoring.sampled")
    if scoring.prompt is not None:
        ledger.refuse("scoring.label_ids", "vLLM refuses label scores beside prompt scores; send two requests")
    if scoring.sampled:
        ledger.refuse("scoring.sampled", "label scores replace the top-k on this wire; ask 0, or send two requests")
    if scoring.top_by == "text":
        ledger.refuse("scoring.top_by", "label scores are keyed by id")
    ledger.send("scoring.label_ids", "/logprob_token_ids", list(scoring.label_ids))
    if scoring.sampled is None:
        ledger.constant("/logprobs", 0, "vLLM gives label scores only beside logprobs")


def _lower_output(request: Request, ledger: Ledger) -> None:
    output = request.output
    structured.refuse_broken(output, ledger)
    ledger.send("output.json_schema", "/structured_outputs/json")
    ledger.send("output.json_object", "/structured_outputs/json_object")
    ledger.send("output.regex", "/structured_outputs/regex")
    ledger.send("output.choice", "/structured_outputs/choice", list(output.choice or ()))
    ledger.send("output.grammar", "/structured_outputs/grammar")
    ledger.noop("output.name", "this wire has no name for a schema; it constrains nothing")
    if output.strict is False:
        ledger.refuse("output.strict", "the grammar is always strict on this wire")
    ledger.noop("output.strict", "the grammar is always strict on this wire")


def _lower_replay(request: Request, facts: Facts, ledger: Ledger) -> None:
    why = "this endpoint has no working logproof plugin, and a stock vLLM ignores the field with a 200"
    replay = request.replay
    if not facts.has_plugin("enforced_replay"):
        ledger.refuse("replay.token_ids", why, "scoring.prompt over prompt and completion ids")
    if not facts.has_plugin("logprobs_mode"):
        ledger.refuse("replay.logprobs_mode", why)
    if request.scoring.prompt is not None:
        ledger.refuse("replay.token_ids", "a replay and prompt scores do not go together; send two requests")
    if request.choices > 1:
        ledger.refuse("replay.token_ids", "a replay has one choice")
    ledger.send("replay.token_ids", "/enforced_token_ids", list(replay.token_ids or ()))
    ledger.send("replay.logprobs_mode", "/logprobs_mode", f"{replay.logprobs_mode}_logprobs")
