"""Lowering for vLLM's /v1/completions with its own fields: what goes into the body, and what is refused."""

from __future__ import annotations

from logproof.dialects.common import completions, structured
from logproof.dialects.common.absent_leaves import TEXT_WIRE
from logproof.dialects.common.vllm_fields import NO_SUFFIX, lower_replay, lower_top_by, refuse_sampling, refuse_wide
from logproof.dialects.common.vllm_labels import lower_labels
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request

ROUTE = "/v1/completions"

MAX_STOPS = 4
"""vLLM's own default of VLLM_MAX_STOP_STRINGS; more are a 400."""

OWN_OPTIONS = ("min_p", "repetition_penalty", "stop_token_ids", "min_tokens", "ignore_eos", "add_special_tokens")
"""vLLM fields that go through even where no OpenAPI document was seen; more when the document lists them."""

ELSEWHERE = {
    "suffix": "input.suffix",
    "echo": "scoring.prompt",
    "return_tokens_as_token_ids": "scoring.top_by",
    "response_format": "output.json_schema",
    "structured_output": "output.json_schema",
    "stream": "schedule.stream",
    "stream_options": "schedule.stream",
    "enforced_str": "replay.token_ids",
    "use_beam_search": "sampling.n (beam search drops prompt logprobs)",
}
"""Fields to which no leaf is sent here -> where to set what they ask for."""

REFUSED = {
    **TEXT_WIRE,
    "input.suffix": NO_SUFFIX,
}


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.send("model", "/model")
    ledger.send("input.text", "/prompt")
    ledger.send("input.token_ids", "/prompt", list(request.input.token_ids or ()))
    ledger.refuse_all(REFUSED)
    _lower_sampling(request, ledger)
    _lower_scoring(request, facts, ledger)
    _lower_output(request, ledger)
    lower_replay(request, facts, ledger, named=True, instead="scoring.prompt over prompt and completion ids")
    ledger.noop("schedule.stream", "sent unstreamed: streamed choices carry no prompt_logprobs")
    ledger.options([*OWN_OPTIONS, *facts.fields.get(ROUTE, ())], ELSEWHERE)


_SAMPLING = {
    f"sampling.{name}": f"/{name}"
    for name in ("temperature", "top_p", "top_k", "seed", "n", "frequency_penalty", "presence_penalty")
}


def _lower_sampling(request: Request, ledger: Ledger) -> None:
    for leaf, pointer in _SAMPLING.items():
        ledger.send(leaf, pointer)
    refuse_sampling(request, ledger)
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
    lower_labels(request, ledger, [f for f in ("logprob_token_ids",) if not facts.has_field(ROUTE, f)], beside=0)
    refuse_wide("scoring.prompt", scoring.prompt, facts, ledger)
    refuse_wide("scoring.sampled", scoring.sampled, facts, ledger)
    ledger.constant("/return_token_ids", True, "ids are the independent count of every channel")
    lower_top_by(request, ledger, listed=True)


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
