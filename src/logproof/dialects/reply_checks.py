"""Checks that every response passes, whatever its dialect: what was asked is there, complete and aligned.

A dialect's `lift` refuses what it cannot read; these checks compare the channels with the request and with
each other, by counts that the wire reports independently.
"""

from __future__ import annotations

import numpy as np

from logproof.errors import BadReply, MissingChannel, OutputContractError, ReplayNotEnforced
from logproof.ir.facts import Facts
from logproof.ir.request import STRUCTURED, Request
from logproof.ir.response import Choice, Floats, Ids, Response, Tokens, TopK


def check(request: Request, response: Response, facts: Facts) -> None:
    """Raise BadReply or MissingChannel for a response that is not what the request asked for."""
    _check_choices(request, response)
    _check_prompt(request, response)
    for choice in response.choices:
        _check_choice(request, choice)
    _check_usage(response)
    _check_vocabulary(response, facts)


def _check_choices(request: Request, response: Response) -> None:
    indexes = [c.index for c in response.choices]
    if indexes != list(range(request.choices)):
        raise BadReply(f"choices {indexes} for {request.choices} asked", path="/choices")


def _check_prompt(request: Request, response: Response) -> None:
    ids = request.input.token_ids
    if ids is not None and response.prompt_ids is not None and response.prompt_ids.tolist() != list(ids):
        raise BadReply("the server reports another prompt than the ids that were sent", path="/prompt_token_ids")
    if response.prompt_ids is not None and response.usage.prompt not in (None, len(response.prompt_ids)):
        raise BadReply(
            f"{len(response.prompt_ids)} prompt token ids, usage says {response.usage.prompt}", path="/usage"
        )
    if request.scoring.prompt is None:
        return
    prompt = response.prompt
    if prompt is None or len(prompt) == 0:
        raise MissingChannel("prompt logprobs were asked and are absent", path="/prompt_logprobs")
    _check_tokens(prompt, "/prompt_logprobs")
    counts = {"usage.prompt_tokens": response.usage.prompt}
    if response.prompt_ids is not None:
        counts["prompt token ids"] = len(response.prompt_ids)
    known = {name: n for name, n in counts.items() if n is not None}
    if not known:
        raise BadReply("nothing in the reply says how many tokens the prompt has", path="/usage")
    for name, n in known.items():
        if n != len(prompt):
            raise BadReply(f"{len(prompt)} scored prompt positions, {name} says {n}", path="/prompt_logprobs")
    if np.isnan(np.minimum.reduce(prompt.logprobs[1:], initial=0.0)):
        raise BadReply("an unscored position inside the prompt", path="/prompt_logprobs")
    if request.scoring.prompt > 0 and prompt.top is None:
        raise MissingChannel("the prompt's top entries were asked and are absent", path="/prompt_logprobs")


def _check_choice(request: Request, choice: Choice) -> None:
    path = f"/choices/{choice.index}"
    scoring, tokens = request.scoring, choice.tokens
    if scoring.sampled is not None and tokens is None:
        raise MissingChannel("sampled logprobs were asked and are absent", path=path)
    if scoring.label_ids is not None and (choice.labels is None or len(choice.labels.logprobs) == 0):
        raise MissingChannel("label scores were asked and are absent", path=path)
    if tokens is not None:
        _check_tokens(tokens, path)
        _check_sampled(request, tokens, path)
        if (scoring.sampled or 0) > 0 and tokens.top is None:
            raise MissingChannel("top entries were asked and are absent", path=path)
        if choice.token_ids is not None and len(choice.token_ids) != len(tokens):
            raise BadReply(f"{len(tokens)} logprobs for {len(choice.token_ids)} token ids", path=path)
    wanted = next((k for k in STRUCTURED if getattr(request.output, k) is not None), None)
    if (
        wanted in ("json_schema", "json_object")
        and request.replay.token_ids is None
        and choice.parsed is None
        and not choice.tool_calls
        and choice.text.strip() != "null"
    ):
        raise OutputContractError("structured output was asked and is absent", path=path)
    _check_replay(request, choice, path)


def _check_sampled(request: Request, tokens: Tokens, path: str) -> None:
    """Every sampled token has a score, and one that was drawn, not enforced, had a chance."""
    least = np.minimum.reduce(tokens.logprobs, initial=0.0)
    if np.isnan(least):
        raise BadReply("an unscored sampled token", path=path)
    if request.replay.token_ids is None and np.isneginf(least):
        raise BadReply("a sampled token of probability zero", path=path)


def _check_replay(request: Request, choice: Choice, path: str) -> None:
    """A replay counts only with the proof that the engine emitted the ids it was given."""
    enforced = request.replay.token_ids
    if enforced is None:
        return
    if choice.token_ids is None:
        raise MissingChannel("a replay needs the emitted ids, and the reply has none", path=path)
    limit = request.sampling.max_tokens
    want = list(enforced if limit is None else enforced[:limit])
    if choice.token_ids[: len(want)].tolist() != want:
        raise ReplayNotEnforced("the engine did not emit the enforced ids: replay was not enforced", path=path)


def _check_tokens(tokens: Tokens, path: str) -> None:
    n = len(tokens)
    for name in ("ids", "ranks", "texts"):
        column = getattr(tokens, name)
        if column is not None and len(column) != n:
            raise BadReply(f"{len(column)} {name} for {n} logprobs", path=path)
    if tokens.top is None:
        return
    if len(tokens.top.offsets) != n + 1:
        raise BadReply(f"{len(tokens.top.offsets) - 1} top positions for {n} tokens", path=path)
    if tokens.meaning == "raw":
        _check_possible(tokens.logprobs, tokens.top, path)


def _check_possible(own: Floats, top: TopK, path: str) -> None:
    """No rival of a raw distribution is impossible: only a mask makes it so, and masks do not show in raw ones.

    vLLM 0.32 gives such rivals (the sampled token and id 0) to every request that shares a batch with one for
    label scores (`logprob_token_ids`).
    """
    if np.minimum.reduce(top.logprobs, initial=0.0) > -np.inf:
        return
    impossible = np.add.reduceat(np.append(np.isneginf(top.logprobs), False), top.offsets[:-1], dtype=np.int64)
    impossible[np.diff(top.offsets) == 0] = 0
    bad = impossible > np.isneginf(own)
    if bad.any():
        raise BadReply("an impossible token among the best of a raw distribution", path=f"{path}/{int(np.argmax(bad))}")


def _check_usage(response: Response) -> None:
    """Counts are counts, and scored ones agree: sampled ids, or where there are none sampled logprobs, with usage.

    A wire whose tokens leave out reasoning reports those tokens; the numbers then need not agree.
    """
    usage = response.usage
    for name in ("prompt", "completion", "total", "cached", "cache_write", "reasoning"):
        if (getattr(usage, name) or 0) < 0:
            raise BadReply(f"{getattr(usage, name)} {name} tokens", path="/usage")
    if usage.reasoning:
        return
    scored = response.prompt is not None or any(c.tokens is not None or c.labels is not None for c in response.choices)
    parts = (usage.prompt, usage.completion)
    if scored and usage.total is not None and None not in parts and usage.total != sum(n or 0 for n in parts):
        raise BadReply(f"{usage.prompt} and {usage.completion} tokens do not make {usage.total}", path="/usage")
    counts = [_sampled_count(c) for c in response.choices]
    known = [n for n in counts if n is not None]
    if usage.completion is None or len(known) != len(counts):
        return
    if sum(known) != usage.completion:
        raise BadReply(f"{sum(known)} sampled tokens, usage says {usage.completion}", path="/usage")


def _sampled_count(choice: Choice) -> int | None:
    if choice.token_ids is not None:
        return len(choice.token_ids)
    return len(choice.tokens) if choice.tokens is not None else None


def _check_vocabulary(response: Response, facts: Facts) -> None:
    if facts.vocab_size is None:
        return
    columns: list[Ids | None] = [response.prompt_ids]
    for tokens in (response.prompt, *(c.tokens for c in response.choices)):
        if tokens is not None:
            columns += [tokens.ids, tokens.top.ids if tokens.top is not None else None]
    for column in columns:
        if column is not None and len(column) and int(column.max()) >= facts.vocab_size:
            raise BadReply(f"token id {int(column.max())} in a vocabulary of {facts.vocab_size}")
