"""openai_completions: POST /v1/completions in the fields that OpenAI documented and most engines serve.

A prompt is scored through `echo`: tokens of prompt and completion come in one list, split only at the
boundary that `usage.prompt_tokens` states, and refused when that count is absent or contradicts the list.
Top maps are keyed by text, so two tokens of one text leave a map short of its width; such a map is refused.
An endpoint that lists `return_token_ids` is asked for ids as an independent count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from logproof.dialects.common import completions, logprobs
from logproof.dialects.common.completions import Columns, WireChoice
from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.errors import BadReply
from logproof.http.exchange import SseEvent
from logproof.ir.facts import Facts
from logproof.ir.request import STRUCTURED, Request
from logproof.ir.response import Meaning, Response, Tokens

ROUTE = "/v1/completions"

LEAF_FIELDS = {
    "model": "model",
    "prompt": "input.text or input.token_ids",
    "suffix": "input.suffix",
    "max_tokens": "sampling.max_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k (vllm_native)",
    "seed": "sampling.seed",
    "stop": "sampling.stop",
    "n": "sampling.n",
    "frequency_penalty": "sampling.frequency_penalty",
    "presence_penalty": "sampling.presence_penalty",
    "logit_bias": "sampling.logit_bias",
    "logprobs": "scoring.sampled",
    "echo": "scoring.prompt",
    "prompt_logprobs": "scoring.prompt (vllm_native)",
    "return_token_ids": "scoring.prompt",
    "return_tokens_as_token_ids": "scoring.top_by (vllm_native)",
    "logprob_token_ids": "scoring.label_ids (vllm_native)",
    "stream": "schedule.stream",
    "stream_options": "schedule.stream",
    "response_format": "output.json_schema (vllm_native, openai_chat)",
    "structured_outputs": "output.json_schema (vllm_native)",
    "guided_json": "output.json_schema (vllm_native; structured_output)",
    "enforced_token_ids": "replay.token_ids (vllm_native)",
    "logprobs_mode": "replay.logprobs_mode (vllm_native)",
}
"""Wire fields that a leaf owns, or that the dialect sets itself, and where to set them."""

REFUSED = {
    "input.messages": "this wire takes no chat messages; use openai_chat",
    "sampling.top_k": "no field of this wire; use vllm_native",
    "scoring.label_ids": "no field of this wire; use vllm_native, or scoring.sampled",
    "replay.token_ids": "no field of this wire; use vllm_native",
    "replay.logprobs_mode": "no field of this wire; use vllm_native",
    **{f"output.{name}": "no field of this wire; use vllm_native or openai_chat" for name in (*STRUCTURED, "strict")},
    "reasoning.effort": "no field of this wire; use openai_chat",
    "reasoning.budget_tokens": "no field of this wire; use openai_chat",
    "reasoning.summary": "no field of this wire; use openai_responses",
    "tools.functions": "no field of this wire; use openai_chat",
    "tools.hosted": "no field of this wire; use openai_responses",
    "tools.choice": "no field of this wire; use openai_chat",
    "tools.parallel": "no field of this wire; use openai_chat",
    "session.previous_response_id": "no field of this wire; use openai_responses",
    "session.store": "no field of this wire; use openai_responses",
}


class OpenAICompletions(Dialect):
    """The classic completions wire."""

    id: ClassVar[str] = "openai_completions"
    steady: ClassVar[bool] = True
    channels: ClassVar[dict[str, str]] = {
        "prompt_logprobs": "every prompt position by echo, split at usage.prompt_tokens; the first is unscored",
        "prompt_top": "keyed by text: refused where texts collapse",
        "prompt_ids": "where the endpoint lists return_token_ids",
        "sampled_logprobs": "every sampled token by text; ids where the endpoint lists return_token_ids",
        "sampled_top": "keyed by text: refused where texts collapse; a full map may still hide a twin",
    }

    def path(self, request: Request) -> str:
        return ROUTE

    def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
        ledger.send("model", "/model")
        ledger.send("input.text", "/prompt")
        ledger.send("input.token_ids", "/prompt", list(request.input.token_ids or ()))
        if facts.engine == "vllm":
            ledger.refuse("input.suffix", "vLLM answers 400 to any suffix, also an empty one")
        ledger.send("input.suffix", "/suffix")
        for feature in [leaf for leaf in ledger.active if leaf.startswith("input.messages.")]:
            ledger.refuse(feature, REFUSED["input.messages"])
        ledger.refuse_all(REFUSED)
        ledger.noop("output.name", "a name constrains nothing")
        _lower_sampling(request, facts, ledger)
        _lower_scoring(request, facts, ledger)
        _lower_stream(request, ledger)
        ledger.options(facts.fields.get(ROUTE, ()), LEAF_FIELDS)

    def lift(self, request: Request, body: bytes) -> Response:
        reply = completions.read(body)
        boundary = _boundary(request, reply)
        prompt: Tokens | None = None
        choices = []
        sampled = 0
        for wire in reply.choices:
            tokens = None
            text = wire.text
            if boundary is not None or request.scoring.sampled is not None:
                width = max(request.scoring.prompt or 0, request.scoring.sampled or 0)
                found = _with_own(wire, completions.read_logprobs(wire, width), width)
                if boundary is not None:
                    head, found = _split(found, boundary, wire.index)
                    text = _completion_text(request, wire, head)
                    prompt = prompt or lift_echo(request, head, wire)
                    sampled += len(found.tokens)
                if request.scoring.sampled is not None:
                    path = f"/choices/{wire.index}/logprobs"
                    tokens = completions.sampled_tokens(request, found, _meaning(request), path)
            choices.append(completions.lift_choice(request, _without_ids(request, wire), text, tokens, None))
        if boundary is not None:
            _check_tail(request, reply, sampled)
        return completions.envelope(request, reply, choices, prompt)

    def assemble(self, events: Sequence[SseEvent]) -> bytes:
        return completions.assemble(events)


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


def _boundary(request: Request, reply: completions.Body) -> int | None:
    """Number of prompt tokens in each echoed list, or None where no prompt was scored.

    Raises BadReply where usage does not tell it.
    """
    if request.scoring.prompt is None:
        return None
    prompt = reply.usage.prompt_tokens if reply.usage else None
    if prompt is None:
        raise BadReply("no usage.prompt_tokens: nothing says where the echoed prompt ends", path="/usage")
    return prompt


def _with_own(wire: WireChoice, found: Columns, width: int) -> Columns:
    """Columns whose maps hold their own token: SGLang leaves it out of a map of the best that are all above it."""
    if width == 0 or found.top is None or wire.matched_stop is msgspec.UNSET:
        return found
    paired = zip(found.tokens, found.values, found.top, strict=True)
    return Columns(found.tokens, found.values, [_own_beside(t, v, entries, width) for t, v, entries in paired])


def _own_beside(
    token: str, value: float | None, entries: dict[str, float] | None, width: int
) -> dict[str, float] | None:
    if value is None or entries is None or token in entries or len(entries) != width or value > min(entries.values()):
        return entries
    return {**entries, token: value}


def _split(found: Columns, boundary: int, index: int | None) -> tuple[Columns, Columns]:
    path = f"/choices/{index}/logprobs"
    if len(found.tokens) < boundary:
        raise BadReply(f"{len(found.tokens)} echoed entries for {boundary} prompt tokens", path=path)
    top = found.top
    return (
        Columns(found.tokens[:boundary], found.values[:boundary], top[:boundary] if top is not None else None),
        Columns(found.tokens[boundary:], found.values[boundary:], top[boundary:] if top is not None else None),
    )


def _check_tail(request: Request, reply: completions.Body, sampled: int) -> None:
    """What follows the echoed prompt must be the completion, token for token.

    A server that gives one entry too few has shifted the list: it scores each prompt token by what comes
    after it. At max_tokens 0 nothing follows, though vLLM counts a hidden token.
    """
    reported = reply.usage.completion_tokens if reply.usage else None
    want = 0 if request.sampling.max_tokens == 0 else reported
    if want is not None and sampled != want:
        raise BadReply(
            f"{sampled} entries follow the echoed prompt where {want} tokens were sampled: this echo is shifted or cut",
            path="/usage/completion_tokens",
            hint="this server cannot score prompts through openai_completions",
        )


def lift_echo(request: Request, head: Columns, wire: WireChoice) -> Tokens:
    """The prompt channel of an echoed choice.

    Raises BadReply where the first token is scored (then values belong to the tokens before them) or a later
    one is not.
    """
    path = f"/choices/{wire.index}/logprobs"
    if head.values and head.values[0] is not None:
        raise BadReply(
            "the first prompt token is scored: this server's echo is shifted", path=f"{path}/token_logprobs/0"
        )
    keyed = head.ids
    raw_ids = wire.prompt_token_ids if wire.prompt_token_ids is not None else keyed
    if raw_ids is not None:
        logprobs.same_length(path, len(raw_ids), len(head.tokens), "prompt token ids")
    if keyed is not None and keyed != raw_ids:
        raise BadReply("prompt_token_ids and the echoed list name different tokens", path=path)
    width = request.scoring.prompt or 0
    return Tokens(
        logprobs=logprobs.logprobs(head.values, f"{path}/token_logprobs", unscored=1),
        meaning="raw",
        ids=logprobs.ids(raw_ids, path) if raw_ids is not None else None,
        texts=_echoed_texts(request, head.tokens, named=raw_ids is not None) if keyed is None else None,
        top=completions.top_maps(head, width, keyed, f"{path}/top_logprobs") if width else None,
    )


def _echoed_texts(request: Request, tokens: Sequence[str], *, named: bool) -> tuple[str | None, ...] | None:
    """Texts of the echoed tokens; None where they do not make the prompt and ids name the tokens (`named`).

    SGLang writes the bytes of a character's pieces as one character each.
    """
    rest, text = tuple(tokens[1:]), request.input.text
    first = completions.first_text(text, rest)
    if named and tokens and text is not None and first is None:
        return None
    return (first, *rest) if tokens else ()


def _completion_text(request: Request, wire: WireChoice, head: Columns) -> str:
    """The choice's text without the echoed prompt.

    vLLM leaves the prompt out of `text` when ids are asked; everyone else, as SGLang whose mark is `matched_stop`,
    puts it first.
    """
    if wire.prompt_token_ids is not None and wire.token_ids is not None and wire.matched_stop is msgspec.UNSET:
        return wire.text
    prompt = request.input.text if request.input.text is not None else "".join(head.tokens)
    if not wire.text.startswith(prompt):
        raise BadReply("the echoed text does not begin with the prompt", path=f"/choices/{wire.index}/text")
    return wire.text[len(prompt) :]


def _without_ids(request: Request, wire: WireChoice) -> WireChoice:
    """vLLM samples one hidden token at max_tokens 0 with echo: it belongs to no asked choice."""
    if request.sampling.max_tokens == 0:
        wire.token_ids = None
    return wire


def _meaning(request: Request) -> Meaning:
    """This wire does not say what a sampled logprob means; at temperature 1 without cuts all servers agree.

    Where the probe measured it, the client puts that in the place of `unknown`.
    """
    s = request.sampling
    plain = s.temperature == 1 and s.top_p in (None, 1) and not (s.frequency_penalty or s.presence_penalty)
    return "raw" if plain and not s.logit_bias and not request.options else "unknown"
