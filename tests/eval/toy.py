"""A toy engine behind the client's sender: words are tokens, logprobs are a hash of what stands before.

It answers /v1/completions as vLLM does (prompt_logprobs, echo, logprobs, logprob_token_ids), so tests run the
whole path from task to store without HTTP. `behave` sees each body first and may answer in its place.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from fakes.server import FakeServer, Reply, Seen
from logproof.client.client import Client
from logproof.client.connect import Connection
from logproof.client.pool import Pool
from logproof.dialects.registry import get_dialect
from logproof.errors import ServerFault
from logproof.eval.plan.jobs import Job
from logproof.eval.plan.prepare import Entry, load, prepare
from logproof.eval.run.run import Order, RunResult, execute
from logproof.eval.run.runner import RunEnd, Runner, RunPolicy
from logproof.eval.tasks.task import Settings
from logproof.http.endpoint import endpoint
from logproof.http.exchange import WireReply, WireRequest
from logproof.ir.facts import Facts
from logproof.store.records import CallRecord, SampleRecord

PIECE = re.compile(r"\s?\w+|\s?[^\w\s]|\s")
FIELDS = ("prompt_logprobs", "return_token_ids", "logprob_token_ids", "logprobs", "echo", "prompt")

Behave = Callable[[dict[str, Any]], dict[str, Any] | Exception | None]


class ToyTokenizer:
    """Words with the space before them; an id is a hash of its word, the same in every engine."""

    def __init__(self) -> None:
        self.words: dict[int, str] = {}

    def pieces(self, text: str) -> list[str]:
        found = PIECE.findall(text)
        assert "".join(found) == text, text
        return found

    def of(self, piece: str) -> int:
        found = int.from_bytes(hashlib.sha256(piece.encode()).digest()[:3], "big")
        assert self.words.setdefault(found, piece) == piece
        return found

    async def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.of(p) for p in self.pieces(text))

    def known(self, text: str) -> tuple[int, ...] | None:
        return None

    async def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words[i] for i in ids)

    async def text(self, token_id: int) -> str:
        return self.words[token_id]


class ToyEngine:
    """A sender. seen: bodies in order of arrival. in_flight, most: requests now, and at most so far."""

    def __init__(self, behave: Behave | None = None, generate: Callable[[str], str] | None = None) -> None:
        self.tokenizer = ToyTokenizer()
        self.behave = behave or (lambda body: None)
        self.generate = generate or (lambda prompt: " The answer is 7.\n#### 7")
        self.seen: list[dict[str, Any]] = []
        self.in_flight = self.most = 0

    async def send(self, request: WireRequest) -> WireReply:
        body = json.loads(request.body or b"{}")
        self.seen.append(body)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        own = self.behave(body)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if isinstance(own, Exception):
            raise own
        reply = own if own is not None else self.answer(body)
        return WireReply(status=200, headers=(), body=json.dumps(reply).encode(), seconds=0.01, attempts=1)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = self.tokenizer.pieces(body["prompt"])
        done, finish = self.completed(body)
        choice: dict[str, Any] = {"index": 0, "text": "".join(done), "finish_reason": finish, "stop_reason": None}
        choice["token_ids"] = [self.tokenizer.of(p) for p in done]
        choice["prompt_token_ids"] = [self.tokenizer.of(p) for p in prompt]
        if body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = [None, *(self.entry(prompt, i) for i in range(1, len(prompt)))]
        if body.get("echo"):
            choice["logprobs"] = self.lists(prompt, done, echo=True)
        elif body.get("logprobs") is not None:
            choice["logprobs"] = self.lists(prompt, done, echo=False)
            choice["logprobs"]["top_logprobs"] = [self.top(body, prompt, done, i) for i in range(len(done))]
            if body.get("return_tokens_as_token_ids"):
                choice["logprobs"]["tokens"] = [f"token_id:{self.tokenizer.of(p)}" for p in done]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(done), "total_tokens": len(prompt) + len(done)}
        return {"id": "x", "model": "toy", "choices": [choice], "usage": usage}

    def completed(self, body: dict[str, Any]) -> tuple[list[str], str]:
        text = self.generate(body["prompt"])
        cut = min([text.find(s) for s in body.get("stop") or [] if s in text], default=len(text))
        pieces = self.tokenizer.pieces(text[:cut])[: body["max_tokens"]]
        return pieces, "stop" if "".join(pieces) == text[:cut] else "length"

    def entry(self, prompt: list[str], i: int) -> dict[str, Any]:
        value = logprob(prompt[:i], prompt[i])
        return {str(self.tokenizer.of(prompt[i])): {"logprob": value, "rank": 1, "decoded_token": prompt[i]}}

    def lists(self, prompt: list[str], done: list[str], *, echo: bool) -> dict[str, Any]:
        tokens, before = (prompt + done, []) if echo else (done, prompt)
        whole = before + tokens
        values = [logprob(whole[:i], whole[i]) for i in range(len(before), len(whole))]
        return {"tokens": tokens, "token_logprobs": [None, *values[1:]] if echo else values, "top_logprobs": None}

    def top(self, body: dict[str, Any], prompt: list[str], done: list[str], i: int) -> dict[str, float]:
        before = prompt + done[:i]
        own = done[i]
        labels = body.get("logprob_token_ids")
        if labels is not None:
            pieces = [own, *(self.tokenizer.words[t] for t in labels)]
        else:
            rivals = [f" {c}" for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if f" {c}" != own]
            pieces = [own, *rivals[: max(body["logprobs"] - 1, 0)]]
        named = body.get("return_tokens_as_token_ids")
        return {f"token_id:{self.tokenizer.of(p)}" if named else p: logprob(before, p) for p in pieces}


def logprob(before: Sequence[str], piece: str) -> float:
    """Between -4 and 0, the same for the same words."""
    digest = hashlib.sha256("\x00".join([*before, piece]).encode()).digest()
    return -4 * int.from_bytes(digest[:4], "big") / 2**32


def connection(engine: ToyEngine, dialect: str = "vllm_native", *, tokenizer: bool = True, **facts: Any) -> Connection:
    """A connection to a toy engine."""
    known = Facts(engine="vllm", version="0", models=("toy",), fields={"/v1/completions": FIELDS}, **facts)
    reads = engine.tokenizer if tokenizer else None
    client = Client(engine, get_dialect(dialect), known, tokenizer=reads)
    return Connection(client, endpoint("http://127.0.0.1:1"), known, cast(Any, engine), reads, "toy")


class RecordList:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self.samples: list[SampleRecord] = []
        self.flushed = 0

    def put_call(self, record: CallRecord) -> None:
        self.calls.append(record)

    def put_sample(self, record: SampleRecord) -> None:
        self.samples.append(record)

    def flush(self) -> None:
        self.flushed += 1


class EventList:
    """Keeps events in memory."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def emit(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))


def ready(conn: Connection, *names: str, data: str | None = None, **settings: Any) -> list[Job]:
    """Prepared jobs."""
    entries: list[Entry] = [(name, Settings(**settings)) for name in names]
    return asyncio.run(prepare(load(entries, data), conn))


def run(conn: Connection, jobs: list[Job], sink: RecordList | None = None, **options: Any) -> tuple[RunEnd, RecordList]:
    """Run jobs to their end."""
    kept = sink or RecordList()
    done = options.pop("done", ())
    ended = asyncio.run(Runner(jobs, Pool([conn]), kept, RunPolicy(**options), done).run())
    return ended, kept


def fault(message: str = "engine fell over") -> ServerFault:
    return ServerFault(500, message)


def stored(path: Path, conn: Connection, *names: str, resume: bool = False, **settings: Any) -> RunResult:
    """Run tasks into a store."""
    order = Order(entries=[(n, Settings(**settings)) for n in names], out=path, policy=RunPolicy(4), resume=resume)
    return asyncio.run(execute(order, Pool([conn])))


@contextmanager
def serving(engine: ToyEngine, down: int = 0, name: str = "toy", port: int = 0) -> Iterator[FakeServer]:
    """The toy engine behind real HTTP, as a vLLM that a probe recognises; first, it fails `down` questions each."""

    def ids(seen: Seen) -> dict[str, Any]:
        return {"tokens": [engine.tokenizer.of(p) for p in engine.tokenizer.pieces(seen.json()["prompt"])]}

    def text(seen: Seen) -> dict[str, Any]:
        return {"prompt": "".join(engine.tokenizer.words[i] for i in seen.json()["tokens"])}

    def complete(seen: Seen) -> Any:
        body = seen.json()
        if body["max_tokens"] == 1 and body["prompt"] == "a":
            return Reply(status=400, json={"error": {"message": "refused"}})
        engine.seen.append(body)
        own = engine.behave(body)
        return (
            Reply(status=500, json={"error": {"message": str(own)}})
            if isinstance(own, Exception)
            else own or engine.answer(body)
        )

    schema = {"properties": {name: {} for name in FIELDS}}
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    with FakeServer(port) as fake:
        none = [Reply(503)] * down
        fake.on("/v1/models", *none, {"data": [{"id": name, "owned_by": "vllm", "max_model_len": 2048}]})
        fake.on("/version", *none, {"version": "0.32.0"})
        paths = {"/v1/completions": {"post": body}, "/tokenize": {}, "/detokenize": {}}
        fake.on("/openapi.json", *none, {"paths": paths})
        fake.on("/tokenize", ids)
        fake.on("/detokenize", text)
        fake.on("/v1/completions", complete)
        yield fake
