"""Tokenizers: the server's own, and a local file; texts of ids, cached; and texts filled in after lifting."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from logproof.client import fill_texts, tokenizer
from logproof.client.tokenizer import LocalTokenizer, ServerTokenizer
from logproof.errors import BadReply, UsageError
from logproof.http.exchange import WireReply, WireRequest
from logproof.ir.message import text_message
from logproof.ir.request import Input, Request
from logproof.ir.response import Choice, Finish, Response, Tokens, TopK, Usage


class Served:
    """A server's two tokenizer routes over a little vocabulary, in vLLM's shape or SGLang's."""

    def __init__(self, key: str = "prompt") -> None:
        self.asked: list[tuple[str, Any]] = []
        self.key = key

    async def send(self, request: WireRequest) -> WireReply:
        body = json.loads(request.body)
        self.asked.append((request.path, body))
        if request.path == "/tokenize":
            return WireReply(200, (), json.dumps({"tokens": [ord(c) for c in body["prompt"]], "count": 1}).encode())
        return WireReply(200, (), json.dumps({self.key: "".join(map(chr, body["tokens"]))}).encode())


@pytest.mark.parametrize("key", ["prompt", "text"])
def test_the_servers_tokenizer(key: str) -> None:
    served = Served(key)
    made = ServerTokenizer(served, "m")
    assert asyncio.run(made.encode("ab")) == (97, 98)
    assert asyncio.run(made.decode([97, 98])) == "ab"
    assert served.asked == [
        ("/tokenize", {"model": "m", "prompt": "ab"}),
        ("/detokenize", {"model": "m", "tokens": [97, 98], "skip_special_tokens": False}),
    ]


def test_texts_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "CACHE_TEXTS", 1)
    served = Served()
    made = ServerTokenizer(served, "m")

    async def twice() -> list[str]:
        return [await made.text(97), await made.text(97), await made.text(98), await made.text(98)]

    assert asyncio.run(twice()) == ["a", "a", "b", "b"]
    assert len(served.asked) == 3


def test_a_reply_without_a_text_is_refused() -> None:
    with pytest.raises(BadReply, match="neither prompt nor text"):
        asyncio.run(ServerTokenizer(Served("other"), "m").decode([1]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_local_tokenizer_by_file_or_directory(file: Path) -> None:
    for path in (file, file.parent):
        made = LocalTokenizer(path)
        assert asyncio.run(made.encode("a b")) == (0, 1)
        assert asyncio.run(made.decode([0, 1])) == "a b"
        assert asyncio.run(made.text(1)) == "b"


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tokenizer.json"):
        LocalTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is no tokenizer"):
        LocalTokenizer(tmp_path)


def channel(ids: list[int], known: tuple[str | None, ...] | None = None, top: TopK | None = None) -> Tokens:
    return Tokens(np.zeros(len(ids)), "raw", np.array(ids), None, known, top)


def filled(response: Response, given: Input) -> Response:
    return asyncio.run(fill_texts.fill(response, Request("m", given), ServerTokenizer(Served(), "m")))


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


def _scored(ids: tuple[int, ...], texts_: tuple[str | None, ...]) -> Response:
    prompt = Tokens(np.array([np.nan, *[-1.0] * (len(ids) - 1)]), "raw", ids=np.array(ids), texts=texts_)
    return Response((), Usage(), prompt=prompt)


OTHER = _scored((97, 8), ("a", "bc"))
"""Other tokens that spell the same text."""


def check(response: Response, request: Request, made: ServerTokenizer | LocalTokenizer) -> None:
    asyncio.run(fill_texts.check_prompt(response, request, made))


def test_a_prompt_whose_texts_do_not_join_must_have_the_ids_of_the_text() -> None:
    request, served = Request("m", Input(text="abc")), Served()
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
        check(other, Request("m", Input(text="abc")), ServerTokenizer(Served(), "m"))


def test_ids_that_are_known_already_are_held_against_every_reply(tmp_path: Path) -> None:
    request, served = Request("m", Input(text="abc")), Served()
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


def test_the_ids_of_the_latest_prompts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "CACHE_PROMPTS", 1)
    served = Served()
    made = ServerTokenizer(served, "m")
    for text in ("a", "a", "b", "a"):
        assert asyncio.run(made.encode(text)) == (ord(text),)
    assert len(served.asked) == 3
    assert (made.known("a"), made.known("b")) == ((97,), None)
