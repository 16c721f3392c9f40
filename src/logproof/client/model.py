"""Model: the synchronous door for notebooks and scripts; one class, one endpoint.

from logproof import Model
with Model("http://127.0.0.1:8000") as model:
    print(model.score("The capital of France is Paris").prompt.logprobs)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from logproof.client.access import score_request
from logproof.client.connect import Connection, Options, connect
from logproof.dialects.call import Call
from logproof.errors import UsageError
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.ir.response import Response

T = TypeVar("T")


class Model:
    """An endpoint's model, called synchronously.

    url: base URL. options: see client/connect.py `Options`, given as keywords (dialect="vllm_native",
    model="name", key_env="VARIABLE"). Opens on construction and closes with `close` or `with`. Works inside a
    running event loop (a notebook) too: it owns a loop in a thread of its own.
    """

    def __init__(self, url: str, **options: object) -> None:
        settings = msgspec.structs.replace(Options(), **options)
        self._runner = _LoopThread()
        self._context: AbstractAsyncContextManager[Connection] = connect(url, settings)
        try:
            self._connection = self._runner.run(self._context.__aenter__())
        except BaseException:
            self._runner.close()
            raise

    @property
    def facts(self) -> Facts:
        """What the probe found."""
        return self._connection.facts

    @property
    def name(self) -> str:
        """The served name that requests carry."""
        return self._connection.model

    def score(self, prompt: str | tuple[int, ...], *, top: int = 0) -> Response:
        """The prompt's own logprobs, with the `top` best at each position, in `Response.prompt`."""
        return self.call(score_request(self.name, _input(prompt), top)).response

    def generate(self, prompt: str | tuple[int, ...], *, max_tokens: int = 64, top: int | None = None) -> Response:
        """A greedy completion; with `top`, the sampled tokens' logprobs and their `top` best rivals."""
        sampling = Sampling(max_tokens=max_tokens, temperature=0.0)
        return self.request(_input(prompt), sampling=sampling, scoring=Scoring(sampled=top)).response

    def request(self, prompt: Input, **groups: object) -> Call:
        """Any request: an Input and groups of leaves by name (sampling=Sampling(...), options={...})."""
        return self.call(msgspec.structs.replace(Request(self.name, prompt), **groups))

    def call(self, request: Request) -> Call:
        """Send a request; see client/client.py."""
        if self._runner.closed:
            raise UsageError("this Model is closed", hint="open a new one, or call it inside its `with` block")
        return self._runner.run(self._connection.client.call(request))

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        if not self._runner.closed:
            self._runner.run(self._context.__aexit__(None, None, None))
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _input(prompt: str | tuple[int, ...]) -> Input:
    return Input(text=prompt) if isinstance(prompt, str) else Input(token_ids=tuple(prompt))


class _LoopThread:
    """An event loop in a daemon thread, so that `run` works whether or not the caller has a loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="logproof-model", daemon=True)
        self._thread.start()
        self.closed = False

    def run(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self.closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
