"""Lowering for /v1/completions in OpenAI's own fields: what goes into the body, and what is refused."""

from __future__ import annotations

from logproof.dialects.common import completions
from logproof.dialects.common.absent_leaves import TEXT_WIRE
from logproof.dialects.common.vllm_fields import NO_SUFFIX
from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import STRUCTURED, Request

ROUTE = "/v1/completions"

ELSEWHERE = {
    "echo": "scoring.prompt",
    "top_k": "sampling.top_k (vllm_native)",
    "prompt_logprobs": "scoring.prompt (vllm_native)",
    "return_tokens_as_token_ids": "scoring.top_by (vllm_native)",
    "logprob_token_ids": "scoring.label_ids (vllm_native)",
    "response_format": "output.json_schema (vllm_native, openai_chat)",
    "structured_outputs": "output.json_schema (vllm_native)",
    "enforced_token_ids": "replay.token_ids (vllm_native)",
    "logprobs_mode": "replay.logprobs_mode (vllm_native)",
}
"""Fields to which no leaf is sent here -> where to set what they ask for."""

REFUSED = {
    **TEXT_WIRE,
    "sampling.top_k": "no field of this wire; use vllm_native",
    "scoring.label_ids": "no field of this wire; use vllm_native, or scoring.sampled",
    "replay.token_ids": "no field of this wire; use vllm_native",
    "replay.logprobs_mode": "no field of this wire; use vllm_native",
    **{f"output.{name}": "no field of this wire; use vllm_native or openai_chat" for name in (*STRUCTURED, "strict")},
}


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    ledger.send("model", "/model")
    ledger.send("input.text", "/prompt")
    ledger.send("input.token_ids", "/prompt", list(request.input.token_ids or ()))
    if facts.engine == "vllm":
        ledger.refuse("input.suffix", NO_SUFFIX)
    ledger.send("input.suffix", "/suffix")
    ledger.refuse_all(REFUSED)
    ledger.noop("output.name", "a name constrains nothing")
    _lower_sampling(request, facts, ledger)
    _lower_scoring(request, facts, ledger)
    _lower_stream(request, ledger)
    ledger.options(facts.fields.get(ROUTE, ()), ELSEWHERE)


def _lower_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    if facts.engine == "sglang" and not facts.deterministic:
        ledger.refuse("sampling.seed", "SGLang heeds a seed only with --enable-deterministic-inference")
    for name in ("temperature", "top_p", "seed", "n", "frequency_penalty", "presence_penalty"):
        ledger.send(f"sampling.{name}", f"/{name}")
    if request.sampling.max_tokens == 0 and request.scoring.prompt is None:
        ledger.refuse("sampling.max_tokens", "0 tokens go only with a scored prompt (echo)")
    ledger.send("sampling.max_tokens", "/max_tokens")
    ledger.send("sampling.stop", "/stop", list(request.sampling.stop or ()))
    if len(request.sampling.stop or ()) > 4:
        ledger.refuse("sampling.stop", "this wire takes at most 4 stop strings")
    ledger.send("sampling.logit_bias", "/logit_bias", completions.bias_body(request))


def _lower_scoring(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Both channels share one `logprobs` width; a width of 0 is served by any."""
    scoring = request.scoring
    widths = {w for w in (scoring.prompt, scoring.sampled) if w}
    width = max(widths, default=0)
    if len(widths) > 1:
        ledger.refuse("scoring.sampled", f"echo has one width for prompt and sample: ask {scoring.prompt}, or 0")
    if facts.max_logprobs is not None and width > facts.max_logprobs:
        for leaf, own in (("scoring.prompt", scoring.prompt), ("scoring.sampled", scoring.sampled)):
            if own:
                ledger.refuse(leaf, f"this endpoint gives at most {facts.max_logprobs} top logprobs")
    if scoring.prompt is not None:
        if request.input.suffix is not None:
            ledger.refuse("scoring.prompt", "an echoed prompt and a suffix do not go together")
        ledger.constant("/echo", True, "the prompt is scored by echo")
        if facts.engine == "sglang":
            width = max(width, 1)  # it scores no echoed prompt at 0
    ledger.send("scoring.prompt", "/logprobs", width)
    ledger.send("scoring.sampled", "/logprobs", width)
    if scoring.top_by == "id":
        ledger.refuse("scoring.top_by", "this wire keys by text", "vllm_native")
    ledger.noop("scoring.top_by", "texts are this wire's only keys")
    if facts.has_field(ROUTE, "return_token_ids"):
        ledger.constant("/return_token_ids", True, "ids are an independent count, and the endpoint lists the field")


def _lower_stream(request: Request, ledger: Ledger) -> None:
    ledger.send("schedule.stream", "/stream")
    if request.schedule.stream:
        ledger.constant("/stream_options/include_usage", True, "usage is the independent count of the channels")
