"""The reply of /v1/completions, split where the echoed prompt ends.

Tokens of prompt and completion come in one list; `usage.prompt_tokens` says where it is split, and a list that
contradicts it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logproof.dialects.common import completions, logprobs
from logproof.dialects.common.completions import CompletionsChoice, LogprobLists
from logproof.dialects.common.joined_texts import first_text
from logproof.errors import BadReply
from logproof.ir.request import Request
from logproof.ir.response import Meaning, Response, Tokens


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply; a scored prompt is taken off each choice. Raises what dialects/dialect.py names."""
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


def _boundary(request: Request, reply: completions.CompletionsBody) -> int | None:
    """Number of prompt tokens in each echoed list, or None where no prompt was scored.

    Raises BadReply where usage does not tell it.
    """
    if request.scoring.prompt is None:
        return None
    prompt = reply.usage.prompt_tokens if reply.usage else None
    if prompt is None:
        raise BadReply("no usage.prompt_tokens: nothing says where the echoed prompt ends", path="/usage")
    return prompt


def _with_own(wire: CompletionsChoice, found: LogprobLists, width: int) -> LogprobLists:
    """Columns whose maps hold their own token: SGLang leaves it out of a map of the best that are all above it."""
    if width == 0 or found.top is None or wire.matched_stop is msgspec.UNSET:
        return found
    paired = zip(found.tokens, found.values, found.top, strict=True)
    return LogprobLists(found.tokens, found.values, [_own_beside(t, v, entries, width) for t, v, entries in paired])


def _own_beside(
    token: str, value: float | None, entries: dict[str, float] | None, width: int
) -> dict[str, float] | None:
    if value is None or entries is None or token in entries or len(entries) != width or value > min(entries.values()):
        return entries
    return {**entries, token: value}


def _split(found: LogprobLists, boundary: int, index: int | None) -> tuple[LogprobLists, LogprobLists]:
    path = f"/choices/{index}/logprobs"
    if len(found.tokens) < boundary:
        raise BadReply(f"{len(found.tokens)} echoed entries for {boundary} prompt tokens", path=path)
    top = found.top
    return (
        LogprobLists(found.tokens[:boundary], found.values[:boundary], top[:boundary] if top is not None else None),
        LogprobLists(found.tokens[boundary:], found.values[boundary:], top[boundary:] if top is not None else None),
    )


def _check_tail(request: Request, reply: completions.CompletionsBody, sampled: int) -> None:
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


def lift_echo(request: Request, head: LogprobLists, wire: CompletionsChoice) -> Tokens:
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
    first = first_text(text, rest)
    if named and tokens and text is not None and first is None:
        return None
    return (first, *rest) if tokens else ()


def _completion_text(request: Request, wire: CompletionsChoice, head: LogprobLists) -> str:
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


def _without_ids(request: Request, wire: CompletionsChoice) -> CompletionsChoice:
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
