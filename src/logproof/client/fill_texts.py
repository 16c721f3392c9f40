"""Texts of tokens that a wire gave as ids only, filled in after lifting.

Display data: no check and no score reads them. A sampled or rival token gets the text of its id alone, so the
pieces of a character show as U+FFFD; the unscored first prompt token gets what the prompt's text leaves it.
"""

from __future__ import annotations

import asyncio

import msgspec

from logproof.client.tokenizer import Tokenizer
from logproof.dialects.common.joined_texts import first_text
from logproof.ir.request import Request
from logproof.ir.response import Ids, Response, Tokens


async def fill_texts(response: Response, request: Request, tokenizer: Tokenizer) -> Response:
    """The response with every text that ids allow. Raises what the tokenizer raises."""
    text_of = await _texts_of(_textless(response), tokenizer)
    choices = tuple(
        msgspec.structs.replace(c, tokens=_with_texts(c.tokens, text_of)) if c.tokens is not None else c
        for c in response.choices
    )
    prompt = response.prompt
    if prompt is not None:
        prompt = await _with_first(_with_texts(prompt, text_of), request, tokenizer)
    return msgspec.structs.replace(response, choices=choices, prompt=prompt)


def _textless(response: Response) -> set[int]:
    ids: set[int] = set()
    for tokens in (response.prompt, *(c.tokens for c in response.choices)):
        if tokens is not None and tokens.texts is None and tokens.ids is not None:
            ids.update(tokens.ids.tolist())
        if tokens is not None and tokens.top is not None and tokens.top.texts is None and tokens.top.ids is not None:
            ids.update(tokens.top.ids.tolist())
    return ids


async def _texts_of(ids: set[int], tokenizer: Tokenizer) -> dict[int, str]:
    order = sorted(ids)
    texts = await asyncio.gather(*(tokenizer.text(i) for i in order))
    return dict(zip(order, texts, strict=True))


def _with_texts(tokens: Tokens, text_of: dict[int, str]) -> Tokens:
    top = tokens.top
    if top is not None and top.texts is None and top.ids is not None:
        top = msgspec.structs.replace(top, texts=_column(top.ids, text_of))
    texts = tokens.texts
    if texts is None and tokens.ids is not None:
        texts = _column(tokens.ids, text_of)
    return msgspec.structs.replace(tokens, texts=texts, top=top)


def _column(ids: Ids, text_of: dict[int, str]) -> tuple[str, ...]:
    return tuple(text_of[i] for i in ids.tolist())


async def _with_first(prompt: Tokens, request: Request, tokenizer: Tokenizer) -> Tokens:
    texts = prompt.texts
    if not texts or texts[0] is not None or prompt.ids is None or request.input.messages is not None:
        return prompt
    whole = request.input.text
    if whole is None:
        whole = await tokenizer.decode(prompt.ids.tolist())
    return msgspec.structs.replace(prompt, texts=(first_text(whole, texts[1:]), *texts[1:]))
