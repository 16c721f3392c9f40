"""Tokenizers: the server's own, and a local file; texts of ids, cached."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import tokenizers

from client.token_routes import TokenRoutes
from logproof.client import tokenizer
from logproof.client.tokenizer import LocalTokenizer, ServerTokenizer
from logproof.errors import BadReply, UsageError


@pytest.mark.parametrize("key", ["prompt", "text"])
def test_the_servers_tokenizer(key: str) -> None:
    served = TokenRoutes(key)
    made = ServerTokenizer(served, "m")
    assert asyncio.run(made.encode("ab")) == (97, 98)
    assert asyncio.run(made.decode([97, 98])) == "ab"
    assert served.asked == [
        ("/tokenize", {"model": "m", "prompt": "ab"}),
        ("/detokenize", {"model": "m", "tokens": [97, 98], "skip_special_tokens": False}),
    ]


def test_texts_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "CACHE_TEXTS", 1)
    served = TokenRoutes()
    made = ServerTokenizer(served, "m")

    async def twice() -> list[str]:
        return [await made.text(97), await made.text(97), await made.text(98), await made.text(98)]

    assert asyncio.run(twice()) == ["a", "a", "b", "b"]
    assert len(served.asked) == 3


def test_a_reply_without_a_text_is_refused() -> None:
    with pytest.raises(BadReply, match="neither prompt nor text"):
        asyncio.run(ServerTokenizer(TokenRoutes("other"), "m").decode([1]))


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


def test_the_ids_of_the_latest_prompts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "CACHE_PROMPTS", 1)
    served = TokenRoutes()
    made = ServerTokenizer(served, "m")
    for text in ("a", "a", "b", "a"):
        assert asyncio.run(made.encode(text)) == (ord(text),)
    assert len(served.asked) == 3
    assert (made.known("a"), made.known("b")) == ((97,), None)
