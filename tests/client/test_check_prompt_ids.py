"""Prompt ids of a reply against the text that was sent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from client.token_routes import TokenRoutes
from logproof.client.check_prompt_ids import check_prompt_ids
from logproof.client.tokenizer import LocalTokenizer, ServerTokenizer
from logproof.errors import BadReply
from logproof.ir.request import Input, Request
from logproof.ir.response import Response, Tokens, Usage


def _scored(ids: tuple[int, ...], texts_: tuple[str | None, ...]) -> Response:
    prompt = Tokens(np.array([np.nan, *[-1.0] * (len(ids) - 1)]), "raw", ids=np.array(ids), texts=texts_)
    return Response((), Usage(), prompt=prompt)


OTHER = _scored((97, 8), ("a", "bc"))
"""Other tokens that spell the same text."""


def check(response: Response, request: Request, made: ServerTokenizer | LocalTokenizer) -> None:
    asyncio.run(check_prompt_ids(response, request, made))


def test_a_prompt_whose_texts_do_not_join_must_have_the_ids_of_the_text() -> None:
    request, served = Request("m", Input(text="abc")), TokenRoutes()
    check(_scored((97, 98, 99), (None, "x", "x")), request, ServerTokenizer(served, "m"))
    with pytest.raises(BadReply, match="not the tokens of the prompt"):
        check(_scored((9, 8), (None, "x")), request, ServerTokenizer(served, "m"))
    check(OTHER, request, ServerTokenizer(served, "m"))
    check(_scored((0, 97, 98, 99), ("", "a", "b", "c")), request, ServerTokenizer(served, "m"))
    check(Response((), Usage()), request, ServerTokenizer(served, "m"))
    assert [path for path, _ in served.asked] == ["/tokenize"] * 2 + ["/detokenize"], "texts that join are not encoded"


def test_a_prompt_that_differs_in_its_first_token_alone_is_another() -> None:
    """The first text is what the others leave of the prompt, so it always joins; its id tells."""
    other = _scored((100, 98, 99), ("a", "b", "c"))
    with pytest.raises(BadReply, match="not the tokens of the prompt"):
        check(other, Request("m", Input(text="abc")), ServerTokenizer(TokenRoutes(), "m"))


def test_ids_that_are_known_already_are_held_against_every_reply() -> None:
    request, served = Request("m", Input(text="abc")), TokenRoutes()
    made = ServerTokenizer(served, "m")
    asyncio.run(made.encode("abc"))
    bare = Response((), Usage(), prompt_ids=np.array([9, 8]))
    for reply in (OTHER, bare):
        with pytest.raises(BadReply, match="not the tokens of the prompt"):
            check(reply, request, made)
    check(_scored((97, 98, 99), ("a", "b", "c")), request, made)
    for unlike in (Input(text="abc", suffix="d"), Input(token_ids=(1,))):
        check(bare, Request("m", unlike), made)
    check(bare, Request("m", Input(text="abc"), options={"add_special_tokens": False}), made)
    assert len(served.asked) == 1
