"""Lowering for SGLang's /generate: every id and range is checked here, as some bodies end the server."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from logproof.dialects.common import structured
from logproof.dialects.common.absent_leaves import TEXT_WIRE
from logproof.dialects.ledger import Ledger
from logproof.dialects.sglang_native.processors import NEUTRAL, pin_processors
from logproof.dialects.sglang_native.reply import DEFAULT_MAX_TOKENS, asked_width
from logproof.ir.facts import Facts
from logproof.ir.request import STRUCTURED, Request

ROUTE = "/generate"
SAMPLING = "/sampling_params"

DEFAULT_TEMPERATURE = 1.0
MAX_STOPS = 32
MAX_BLIND_WIDTH = 256
"""Widest top-k asked of a server whose vocabulary size is unknown: a width above it ends the server."""

SAMPLING_OPTIONS = (
    "min_p",
    "repetition_penalty",
    "min_new_tokens",
    "stop_token_ids",
    "stop_regex",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
)
ROOT_OPTIONS = ("cache_salt", "extra_key", "priority", "rid", "lora_path", "session_id", "routing_key")

ELSEWHERE = {
    "image_data": "input.messages (openai_chat)",
    "max_tokens": "sampling.max_tokens",
    "seed": "sampling.seed",
    "return_logprob": "scoring.sampled",
    "logprob_start_len": "scoring.prompt",
    "choice": "output.choice",
}
"""Fields to which no leaf is sent here -> where to set what they ask for."""

REFUSED = {
    **TEXT_WIRE,
    "input.suffix": "this wire has no suffix; use openai_completions",
    "replay.token_ids": "SGLang emits no given ids; score prompt and completion ids with scoring.prompt",
    "replay.logprobs_mode": "the meaning follows the sampling: temperature 0 or 1 without penalties is raw",
}


def lower(request: Request, facts: Facts, ledger: Ledger) -> None:
    """Decide every active leaf and fill the body."""
    _lower_model(request, facts, ledger)
    _lower_input(request, facts, ledger)
    ledger.refuse_all(REFUSED)
    _lower_sampling(request, facts, ledger)
    _lower_scoring(request, facts, ledger)
    _lower_output(request, ledger)
    ledger.send("schedule.stream", "/stream")
    _lower_options(facts, ledger)


def _lower_model(request: Request, facts: Facts, ledger: Ledger) -> None:
    if facts.models and request.model not in (*facts.models, facts.model_root):
        ledger.refuse("model", f"this server has one model and serves {', '.join(facts.models)}")
    ledger.noop("model", "this wire names no model: the server has one")


def _lower_input(request: Request, facts: Facts, ledger: Ledger) -> None:
    ids = request.input.token_ids or ()
    _refuse_blind("input.token_ids", facts, ledger)
    limit, wanted = facts.max_model_len, len(ids) + (request.sampling.max_tokens or 0)
    if limit is not None and wanted > limit:
        ledger.refuse("input.token_ids", f"{len(ids)} ids and the tokens asked make {wanted}, over {limit} of context")
    ledger.send("input.text", "/text")
    ledger.send("input.token_ids", "/input_ids", list(ids))
    ledger.constant("/return_prompt_token_ids", True, "ids are the independent count of the prompt")


def _refuse_blind(leaf: str, facts: Facts, ledger: Ledger) -> None:
    """Refuse ids where nothing tells which are valid; the client refuses those outside a known vocabulary."""
    if facts.vocab_size is None:
        ledger.refuse(leaf, "an id outside the vocabulary ends the server, and its size is unknown: give vocab_size")


def _lower_sampling(request: Request, facts: Facts, ledger: Ledger) -> None:
    s = request.sampling
    if s.temperature is None:
        ledger.constant(f"{SAMPLING}/temperature", DEFAULT_TEMPERATURE, "the server's default, said out loud")
    if s.max_tokens is None:
        ledger.constant(f"{SAMPLING}/max_new_tokens", DEFAULT_MAX_TOKENS, "the server's default, said out loud")
    _check_ranges(request, ledger)
    for name in ("temperature", "top_p", "top_k", "n", "frequency_penalty", "presence_penalty"):
        ledger.send(f"sampling.{name}", f"{SAMPLING}/{name}")
    ledger.send("sampling.max_tokens", f"{SAMPLING}/max_new_tokens")
    ledger.send("sampling.stop", f"{SAMPLING}/stop", list(s.stop or ()))
    ledger.send("sampling.logit_bias", f"{SAMPLING}/logit_bias", {str(k): v for k, v in (s.logit_bias or {}).items()})
    if not facts.deterministic:
        ledger.refuse("sampling.seed", "this server ignores seeds unless it runs with --enable-deterministic-inference")
    ledger.send("sampling.seed", f"{SAMPLING}/sampling_seed")


def _check_ranges(request: Request, ledger: Ledger) -> None:
    """Refuse what the server answers with a 400."""
    s = request.sampling
    if s.top_p is not None and not 0 < s.top_p <= 1:
        ledger.refuse("sampling.top_p", "this server takes values above 0 and up to 1")
    if s.top_k is not None and s.top_k < 1 and s.top_k != -1:
        ledger.refuse("sampling.top_k", "this server takes 1 and more, or -1 for all tokens")
    for name in ("frequency_penalty", "presence_penalty"):
        if abs(getattr(s, name) or 0) > 2:
            ledger.refuse(f"sampling.{name}", "this server takes values from -2 to 2")
    if len(s.stop or ()) > MAX_STOPS:
        ledger.refuse("sampling.stop", f"this server takes at most {MAX_STOPS} stop strings")
    if s.seed is not None and not -(2**63) <= s.seed < 2**63:
        ledger.refuse("sampling.seed", "this server takes 64-bit seeds")


def _lower_scoring(request: Request, facts: Facts, ledger: Ledger) -> None:
    scoring = request.scoring
    ledger.noop("scoring.top_by", "ids are this wire's own keys, and texts stand beside them")
    if scoring.prompt is None and scoring.sampled is None and scoring.label_ids is None:
        return
    ledger.constant("/return_logprob", True, "logprobs are asked")
    start = -1 if scoring.prompt is None else 0
    ledger.constant("/logprob_start_len", start, "0 scores every position, with the null on the first; -1 none")
    ledger.constant("/return_text_in_logprobs", True, "texts beside ids")
    width, labels = asked_width(request), scoring.label_ids or ()
    _check_width("scoring.prompt", scoring.prompt, facts, ledger)
    _check_width("scoring.sampled", scoring.sampled, facts, ledger)
    if request.sampling.max_tokens == 0:
        ledger.refuse("scoring.label_ids", "label scores belong to sampled tokens; ask for at least 1 token")
    ledger.send("scoring.prompt", "/top_logprobs_num", width)
    ledger.send("scoring.sampled", "/top_logprobs_num", width)
    ledger.send("scoring.label_ids", "/token_ids_logprob", list(labels))
    if scoring.sampled is not None or labels:
        pin_processors(request, ledger, SAMPLING)


def _check_width(leaf: str, width: int | None, facts: Facts, ledger: Ledger) -> None:
    width = width or 0
    if facts.vocab_size is None and width > MAX_BLIND_WIDTH:
        ledger.refuse(leaf, f"the vocabulary size is unknown: ask at most {MAX_BLIND_WIDTH}")
    if facts.vocab_size is not None and width > facts.vocab_size:
        ledger.refuse(leaf, f"the vocabulary has {facts.vocab_size} ids")
    if facts.max_logprobs is not None and width > facts.max_logprobs:
        ledger.refuse(leaf, f"this endpoint gives at most {facts.max_logprobs} top logprobs")


def _lower_output(request: Request, ledger: Ledger) -> None:
    output = request.output
    structured.refuse_broken(output, ledger)
    for name in ("regex", "grammar"):
        if getattr(output, name) == "":
            ledger.refuse(f"output.{name}", "this server takes an empty one for none at all")
    if request.sampling.max_tokens == 0:
        for name in STRUCTURED:
            ledger.refuse(f"output.{name}", "structured output needs at least 1 token")
    if output.strict is False:
        ledger.refuse("output.strict", "the grammar is always strict on this wire")
    schema = msgspec.json.encode(output.json_schema).decode()
    ledger.send("output.json_schema", f"{SAMPLING}/json_schema", schema)
    ledger.send("output.json_object", f"{SAMPLING}/json_schema", '{"type":"object"}')
    ledger.send("output.regex", f"{SAMPLING}/regex")
    ledger.send("output.choice", f"{SAMPLING}/regex", _alternatives(output.choice or ()))
    ledger.send("output.grammar", f"{SAMPLING}/ebnf")
    ledger.noop("output.name", "this wire has no name for a schema; it constrains nothing")
    ledger.noop("output.strict", "the grammar is always strict on this wire")


_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_ESCAPED = r"\\\g<0>"


def _alternatives(choices: Sequence[str]) -> str:
    """A regex of literal alternatives, escaping only what every regex dialect reads as special."""
    return "|".join(f"({_SPECIAL.sub(_ESCAPED, c)})" for c in choices)


def _lower_options(facts: Facts, ledger: Ledger) -> None:
    _refuse_blind("options.stop_token_ids", facts, ledger)
    under = dict.fromkeys(SAMPLING_OPTIONS, SAMPLING)
    ledger.options([*SAMPLING_OPTIONS, *ROOT_OPTIONS], ELSEWHERE, under, shared=NEUTRAL)
