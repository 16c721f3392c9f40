"""Texts of ids that a wire gave alone, filled in after lifting."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from client.token_routes import TokenRoutes
from logproof.client.fill_texts import fill_texts
from logproof.client.tokenizer import ServerTokenizer
from logproof.ir.message import text_message
from logproof.ir.request import Input, Request
from logproof.ir.response import Choice, Finish, Response, Tokens, TopK, Usage


def channel(ids: list[int], known: tuple[str | None, ...] | None = None, top: TopK | None = None) -> Tokens:
    return Tokens(np.zeros(len(ids)), "raw", np.array(ids), None, known, top)


def filled(response: Response, given: Input) -> Response:
    return asyncio.run(fill_texts(response, Request("m", given), ServerTokenizer(TokenRoutes(), "m")))


def test_texts_of_ids_are_filled_in() -> None:
    top = TopK(np.array([0, 2, 2]), np.array([-1.0, -2.0]), np.array([99, 100]))
    choice = Choice(0, "ab", Finish("stop", "stop"), tokens=channel([97, 98], top=top))
    response = filled(Response((choice, Choice(1, "", Finish("stop", "stop"))), Usage()), Input(text="x"))
    tokens = response.choices[0].tokens
    assert tokens is not None
    assert tokens.texts == ("a", "b")
    assert tokens.top is not None
    assert tokens.top.texts == ("c", "d")
    assert response.choices[1].tokens is None


@pytest.mark.parametrize(
    ("given", "known", "want"),
    [
        (Input(text="xab"), (None, "a", "b"), ("x", "a", "b")),
        (Input(text="other"), (None, "a", "b"), (None, "a", "b")),
        (Input(token_ids=(120, 97, 98)), (None, "a", "b"), ("x", "a", "b")),
        (Input(messages=(text_message("user", "xab"),)), (None, "a", "b"), (None, "a", "b")),
        (Input(text="xab"), ("x", "a", "b"), ("x", "a", "b")),
        (Input(text="xab"), None, ("x", "a", "b")),
    ],
)
def test_the_first_prompt_text_is_what_the_rest_leaves(
    given: Input, known: tuple[str | None, ...] | None, want: tuple[str | None, ...]
) -> None:
    prompt = filled(Response((), Usage(), prompt=channel([120, 97, 98], known)), given).prompt
    assert prompt is not None
    assert prompt.texts == want


def test_a_prompt_without_ids_keeps_its_unknown_first_text() -> None:
    prompt = Tokens(np.zeros(2), "raw", texts=(None, "a"))
    filled_prompt = filled(Response((), Usage(), prompt=prompt), Input(text="xa")).prompt
    assert filled_prompt is not None
    assert filled_prompt.texts == (None, "a")
