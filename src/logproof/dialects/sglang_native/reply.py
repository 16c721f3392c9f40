"""From SGLang's reply to the Response: every asked channel, complete and aligned, or refused.

The counts that must agree: `prompt_tokens` with the scored prompt, `completion_tokens` with `output_ids` and the
sampled logprobs, and the prompt's ids with those sent, reported, or spelled by the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from logproof.dialects.common import joined_texts, logprobs, structured
from logproof.dialects.sglang_native import entries
from logproof.dialects.sglang_native.entries import GenerateBody
from logproof.dialects.sglang_native.processors import NEUTRAL
from logproof.errors import BadReply, MissingChannel
from logproof.ir.request import Request
from logproof.ir.response import Choice, Finish, Ids, Labels, Meaning, Response, Tokens

DEFAULT_MAX_TOKENS = 128
"""Tokens that the server samples when it is not told; the dialect says it out loud."""


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply: one choice, or a list of several. Raises what dialects/dialect.py names."""
    bodies = entries.read(body)
    if not bodies:
        raise BadReply("the reply holds no choice")
    paths = [""] if len(bodies) == 1 else [f"/{i}" for i in range(len(bodies))]
    choices = tuple(_lift_choice(request, b, i, p) for i, (b, p) in enumerate(zip(bodies, paths, strict=True)))
    prompt = _same_prompt([_lift_prompt(request, b, p) for b, p in zip(bodies, paths, strict=True)])
    return Response(
        choices=choices,
        usage=entries.usage(bodies),
        prompt=prompt,
        prompt_ids=_prompt_ids(bodies[0], prompt, paths[0]),
        fingerprint=bodies[0].meta_info.weight_version,
        response_id=bodies[0].meta_info.id,
        notes=_notes(request, bodies),
    )


def asked_width(request: Request) -> int:
    """The one width of the wire, which serves both channels: its lists are exact, so the narrower one is cut."""
    return max(request.scoring.prompt or 0, request.scoring.sampled or 0)


def _same_prompt(prompts: Sequence[Tokens | None]) -> Tokens | None:
    """The prompt of the first choice. Raises BadReply where the choices scored different ones."""
    ids = [p.ids.tolist() if p is not None and p.ids is not None else None for p in prompts]
    if any(i != ids[0] for i in ids):
        raise BadReply("the choices score different prompts", path="/0/meta_info/input_token_logprobs")
    return prompts[0]


def _lift_prompt(request: Request, body: GenerateBody, path: str) -> Tokens | None:
    """The prompt channel of one choice, None where it was not asked.

    Raises MissingChannel where it is absent, BadReply where it is shorter than the prompt, where a position
    after the first is null, where the cache is said to hold scored positions, or where the ids are not those
    of the prompt.
    """
    width = request.scoring.prompt
    if width is None:
        return None
    meta, where = body.meta_info, f"{path}/meta_info/input_token_logprobs"
    if meta.input_token_logprobs is None:
        raise MissingChannel("prompt logprobs were asked and are absent", path=where)
    logprobs.same_length(where, meta.prompt_tokens, len(meta.input_token_logprobs), "prompt tokens")
    if meta.cached_tokens:
        raise BadReply(f"{meta.cached_tokens} tokens came from the cache, which holds no logits", path=where)
    found = entries.scored(meta.input_token_logprobs)
    if found.values and found.values[0] is not None:
        raise BadReply("the first prompt token has nothing before it, yet it is scored", path=f"{where}/0")
    ids = logprobs.ids(found.ids, where)
    texts = _prompt_texts(request, found.texts)
    _check_prompt_ids(request, body, found.ids, texts, where)
    asked = asked_width(request)
    top_path = f"{path}/meta_info/input_top_logprobs"
    return Tokens(
        logprobs=entries.lift_values(found.values, where, unscored=1),
        meaning="raw",
        ids=ids,
        texts=texts,
        top=entries.top(meta.input_top_logprobs, found, asked, width, top_path) if width else None,
    )


def _check_prompt_ids(
    request: Request, body: GenerateBody, ids: Sequence[int], texts: tuple[str | None, ...] | None, path: str
) -> None:
    """Something beside the scored entries must name the prompt's tokens: the ids sent or reported, or the text."""
    known = body.prompt_token_ids if body.prompt_token_ids is not None else request.input.token_ids
    if known is not None and list(known) != list(ids):
        raise BadReply("the scored tokens are not the prompt's", path=path)
    if known is None and texts is None:
        raise BadReply(
            "nothing in the reply confirms which tokens are scored: it has no prompt_token_ids",
            path=path,
            hint="send input.token_ids",
        )


def _prompt_texts(request: Request, texts: Sequence[str | None]) -> tuple[str | None, ...] | None:
    if request.input.text is not None:
        return joined_texts.join(texts, request.input.text)
    return _whole_pieces(texts)


def _whole_pieces(texts: Sequence[str | None]) -> tuple[str | None, ...] | None:
    """Texts where no whole text is known: those of partial characters are not known, None where none is."""
    if all(t is None for t in texts):
        return None
    return tuple(None if t is None or joined_texts.PARTIAL in t else t for t in texts)


def _prompt_ids(body: GenerateBody, prompt: Tokens | None, path: str) -> Ids | None:
    if body.prompt_token_ids is None:
        return prompt.ids if prompt is not None else None
    logprobs.same_length(
        f"{path}/prompt_token_ids", body.meta_info.prompt_tokens, len(body.prompt_token_ids), "prompt tokens"
    )
    return logprobs.ids(body.prompt_token_ids, f"{path}/prompt_token_ids")


def _lift_choice(request: Request, body: GenerateBody, index: int, path: str) -> Choice:
    finish = entries.finish(body, path)
    ids = entries.output_ids(body, path)
    scoring = request.scoring
    asked = scoring.prompt is not None or scoring.sampled is not None or scoring.label_ids is not None
    mixed = entries.mixture(body.meta_info)
    if mixed is not None and asked:
        raise BadReply(f"{mixed}: its logprobs are of no one run", path=f"{path}/meta_info")
    if body.text is None and body.output_ids and not asked:
        raise MissingChannel("no text: the server runs without a tokenizer", path=f"{path}/text")
    text = body.text or ""
    tokens, labels = _lift_sampled(request, body, finish, path)
    return Choice(
        index=index,
        text=text,
        finish=finish,
        token_ids=ids,
        tokens=tokens,
        labels=labels,
        parsed=structured.parse(request.output, text, finish, f"{path}/text"),
    )


def _lift_sampled(
    request: Request, body: GenerateBody, finish: Finish, path: str
) -> tuple[Tokens | None, Labels | None]:
    """The sampled channels of one choice; their tokens must be `output_ids`, one for one."""
    scoring, meta = request.scoring, body.meta_info
    if scoring.sampled is None and scoring.label_ids is None:
        return None, None
    where = f"{path}/meta_info/output_token_logprobs"
    if meta.output_token_logprobs is None:
        raise MissingChannel("sampled logprobs were asked and are absent", path=where)
    logprobs.same_length(where, len(body.output_ids), len(meta.output_token_logprobs), "output ids")
    if meta.output_token_logprobs_length is not None:
        logprobs.same_length(where, meta.output_token_logprobs_length, len(body.output_ids), "counted logprobs")
    found = entries.scored(meta.output_token_logprobs)
    if list(found.ids) != body.output_ids:
        raise BadReply("output_ids and logprobs name different tokens", path=where)
    values, meaning = entries.lift_values(found.values, where), _meaning(request)
    tokens = labels = None
    if scoring.sampled is not None:
        asked, top_path = asked_width(request), f"{path}/meta_info/output_top_logprobs"
        width = scoring.sampled
        top = entries.top(meta.output_top_logprobs, found, asked, width, top_path) if width else None
        ids, texts = logprobs.ids(found.ids, where), _sampled_texts(found.texts, body.text, finish)
        tokens = Tokens(logprobs=values, meaning=meaning, ids=ids, texts=texts, top=top)
    if scoring.label_ids is not None:
        label_path = f"{path}/meta_info/output_token_ids_logprobs"
        labels = entries.labels(meta.output_token_ids_logprobs, found, scoring.label_ids, meaning, label_path)
    return tokens, labels


def _sampled_texts(texts: Sequence[str | None], text: str | None, finish: Finish) -> tuple[str | None, ...] | None:
    """Texts of sampled tokens; those of a matched stop stand beside the text."""
    whole = text or ""
    if isinstance(finish.matched, str):
        whole = whole if whole.endswith(finish.matched) else whole + finish.matched
    if isinstance(finish.matched, int) and texts:
        joined = joined_texts.join(texts[:-1], whole)
        return (*joined, texts[-1]) if joined is not None else _whole_pieces(texts)
    return joined_texts.join(texts, whole) or _whole_pieces(texts)


def _meaning(request: Request) -> Meaning:
    """Sampled logprobs are after penalties, bias and temperature, before top-k, top-p and min-p.

    Temperature 0 is greedy at temperature 1, so both leave the model's own distribution.
    """
    s, options = request.sampling, request.options
    plain = s.temperature in (None, 0, 1) and not (s.frequency_penalty or s.presence_penalty or s.logit_bias)
    pinned = all(options.get(name, value) == value for name, value in NEUTRAL.items())
    return structured.sampled_meaning(request.output, "raw" if plain and pinned else "processed")


def _notes(request: Request, bodies: Sequence[GenerateBody]) -> tuple[str, ...]:
    notes = [note for b in bodies if (note := entries.mixture(b.meta_info)) is not None]
    if any(b.text is None for b in bodies):
        notes.append("the server runs without a tokenizer: texts are unknown")
    asked = DEFAULT_MAX_TOKENS if request.sampling.max_tokens is None else request.sampling.max_tokens
    finishes = [b.meta_info.finish_reason for b in bodies]
    cuts = {f.length for f in finishes if f is not None and f.type == "length" and f.length is not None}
    notes += [f"the server cut at {n} tokens, {asked} were asked" for n in sorted(cuts) if n < asked]
    sampled = request.scoring.sampled is not None or request.scoring.label_ids is not None
    if sampled and request.sampling.temperature not in (None, 0, 1):
        notes.append("sampled logprobs are after temperature, unless the server runs SGLANG_RETURN_ORIGINAL_LOGPROB=1")
    return tuple(notes)
