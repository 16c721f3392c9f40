"""Tokenizers: text to ids and ids to texts, by the server that owns the model or by a local file.

`Tokenizer` is what client and tasks use. `ServerTokenizer` asks /tokenize and /detokenize (vLLM and SGLang
serve both), `LocalTokenizer` reads a tokenizer.json. Both keep a bounded cache of token texts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import tokenizers

from logproof.dialects.common.decode import decode
from logproof.errors import BadReply, UsageError, clip
from logproof.http.exchange import WireRequest
from logproof.http.transport import Sender

CACHE_TEXTS = 200_000
"""Most token texts that a tokenizer keeps."""
CACHE_PROMPTS = 256
"""Most prompts whose ids a server's tokenizer keeps, the latest."""


class Tokenizer(Protocol):
    """Text to ids and back."""

    async def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text, special tokens added as the model's own default has it."""
        ...

    def known(self, text: str) -> tuple[int, ...] | None:
        """What `encode` gives, where it takes no request; else None."""
        ...

    async def decode(self, ids: Sequence[int]) -> str:
        """Text of a run of ids; pieces of a character that is not whole give U+FFFD."""
        ...

    async def text(self, token_id: int) -> str:
        """Text of one id alone, cached."""
        ...


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Text(msgspec.Struct):
    prompt: str | None = None
    text: str | None = None


_TOKENS = msgspec.json.Decoder(_Tokens)
_TEXT = msgspec.json.Decoder(_Text)


class ServerTokenizer:
    """The endpoint's own tokenizer. model: its served name."""

    def __init__(self, sender: Sender, model: str) -> None:
        self._sender = sender
        self._model = model
        self._texts: dict[int, str] = {}
        self._prompts: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    async def encode(self, text: str) -> tuple[int, ...]:
        ids = self.known(text)
        if ids is None:
            reply = await self._post("/tokenize", {"model": self._model, "prompt": text})
            ids = self._prompts[text] = tuple(decode(_TOKENS, reply).tokens)
            if len(self._prompts) > CACHE_PROMPTS:
                self._prompts.popitem(last=False)
        return ids

    def known(self, text: str) -> tuple[int, ...] | None:
        return self._prompts.get(text)

    async def decode(self, ids: Sequence[int]) -> str:
        """SGLang leaves special tokens out unless a request says otherwise; vLLM never does, and ignores the field."""
        body = {"model": self._model, "tokens": list(ids), "skip_special_tokens": False}
        reply = decode(_TEXT, await self._post("/detokenize", body))
        text = reply.prompt if reply.prompt is not None else reply.text
        if text is None:
            raise BadReply("neither prompt nor text in a /detokenize reply", path="/prompt")
        return text

    async def text(self, token_id: int) -> str:
        text = self._texts.get(token_id)
        if text is None:
            text = await self.decode([token_id])
            if len(self._texts) < CACHE_TEXTS:
                self._texts[token_id] = text
        return text

    async def _post(self, path: str, body: dict[str, object]) -> bytes:
        return (await self._sender.send(WireRequest(path=path, body=msgspec.json.encode(body)))).body


class LocalTokenizer:
    """A tokenizer.json, or a directory that holds one. Raises UsageError where there is none."""

    def __init__(self, path: Path) -> None:
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise UsageError(f"no tokenizer.json at {path}", hint="name the model's directory or its tokenizer.json")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception for a file it cannot read
            raise UsageError(f"{file} is no tokenizer: {clip(str(error), 120)}") from None

    async def encode(self, text: str) -> tuple[int, ...]:
        return self.known(text)

    def known(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text).ids)

    async def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    async def text(self, token_id: int) -> str:
        return await self.decode([token_id])
