"""A tiny vLLM on the fake server: logits follow from the prefix, draws from the SplitMix profile."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from fakes.server import FakeServer, Reply, Seen
from logproof.client.connect import Connection, Options, connect
from logproof.http.retry import RetryPolicy
from logproof.ir.facts import Facts, Plugin
from logproof.verify.stats import sampler_noise
from logproof.verify.stats.sampler import Sampler
from verify.builders import Array, log_softmax, masked

TINY_VOCAB = 50
TINY_EOS = 0
ROUTE = "/v1/completions"
FACTS = Facts(
    engine="vllm",
    version="0.32.0",
    models=("tiny",),
    max_model_len=4096,
    max_logprobs=40,
    vocab_size=TINY_VOCAB,
    logprobs_mode="raw",
    fields={ROUTE: ("min_p", "repetition_penalty", "ignore_eos", "min_tokens", "stop_token_ids", "logprob_token_ids")},
)


@lru_cache(maxsize=100_000)
def _fixed(seed: int) -> Array:
    z = np.random.default_rng(seed).normal(0, 2.5, TINY_VOCAB)
    z[TINY_EOS] = -3.0
    return z.astype(np.float32).astype(np.float64)


def ids_of(text: str) -> list[int]:
    """Token ids of a text, one a character."""
    return [3 + ord(c) % 40 for c in text]


def text_of(ids: list[int]) -> str:
    """Text of token ids, one character each."""
    return "".join(chr(97 + t % 26) for t in ids)


def rendered(messages: list[dict[str, Any]]) -> str:
    """The chat template: the texts of all messages behind their roles."""
    return "".join(f"{m['role']}: {m['content']}\n" for m in messages) + "assistant: "


def tokenize(seen: Seen) -> dict[str, Any]:
    """What /tokenize answers."""
    body = seen.json()
    ids = ids_of(body["prompt"] if "prompt" in body else rendered(body["messages"]))
    return {"tokens": ids, "count": len(ids), "max_model_len": 4096}


class Tiny:
    """One engine. weights: which model it is. jitter: noise of the logits, nats, new in every call.

    writer: another model that writes the text while this one gives the logprobs. lead: a text that it puts before each
    text prompt. keep: ids of a text prompt's end that it keeps. edit: changes replies.
    """

    def __init__(
        self,
        weights: int = 0,
        jitter: float = 0.0,
        writer: int | None = None,
        *,
        lead: str = "",
        keep: int | None = None,
    ) -> None:
        self.weights, self.jitter, self.writer = weights, jitter, writer
        self.lead, self.keep = lead, keep
        self.calls = 0
        self.edit: Callable[[dict[str, Any], dict[str, Any]], Any] = lambda body, reply: reply

    def logits(self, prefix: list[int], weights: int | None = None) -> Array:
        name = f"{self.weights if weights is None else weights}:{prefix[-6:]}".encode()
        seed = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
        z = _fixed(seed)
        if self.jitter == 0.0:
            return z
        noised = z + np.random.default_rng(seed + self.calls).normal(0, self.jitter, TINY_VOCAB)
        return noised.astype(np.float32).astype(np.float64)

    def answer(self, seen: Seen) -> Reply | dict[str, Any]:
        body = seen.json()
        self.calls += 1
        prompt = body["prompt"]
        ids = list(prompt)
        if isinstance(prompt, str):
            ids = ids_of(self.lead + prompt)[-(self.keep or 0) :]
        drawn, rows, finish = self._generate(ids, body)
        choice: dict[str, Any] = {
            "index": 0,
            "text": text_of(drawn),
            "finish_reason": finish,
            "stop_reason": None,
            "prompt_token_ids": ids,
            "token_ids": drawn,
        }
        if body.get("logprob_token_ids"):
            maps = [{t: float(np.float32(row[t])) for t in (*body["logprob_token_ids"], drawn[0])} for row in rows]
            choice["logprobs"] = self._lists(drawn, maps)
        elif "logprobs" in body:
            choice["logprobs"] = self._sampled(drawn, rows, body["logprobs"])
        if "prompt_logprobs" in body:
            choice["prompt_logprobs"] = self._prompt(ids, body["prompt_logprobs"])
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(drawn), "total_tokens": len(ids) + len(drawn)}
        reply = {"id": "c", "object": "text_completion", "created": 1, "model": body["model"], "choices": [choice]}
        edited: Reply | dict[str, Any] = self.edit(body, {**reply, "usage": usage, "system_fingerprint": "fp-tiny"})
        return edited

    def _generate(self, prompt: list[int], body: dict[str, Any]) -> tuple[list[int], list[Array], str]:
        top_k = max(0, body.get("top_k") or 0)
        sampler = Sampler(body.get("temperature", 1.0), top_k, body.get("top_p", 1.0), body.get("min_p", 0.0))
        forced = body.get("enforced_token_ids")
        count = len(forced) if forced else body.get("max_tokens", 16)
        steps = sampler_noise.cpu_step_seeds(body.get("seed", 0), count)
        every, drawn, rows = np.arange(TINY_VOCAB)[None, :], list[int](), list[Array]()
        for i in range(count):
            z = self.logits(prompt + drawn)
            if body.get("structured_outputs"):
                # Stands for any grammar: half of the vocabulary is let through.
                z = np.where(np.arange(TINY_VOCAB) < TINY_VOCAB // 2, z, -np.inf)
            wanted = z if self.writer is None else self.logits(prompt + drawn, self.writer)
            token = int(wanted.argmax())
            if not sampler.greedy:
                token = int(
                    (masked(wanted, sampler) + sampler_noise.splitmix_gumbel(steps[i : i + 1], every)[0]).argmax()
                )
            processed = body.get("logprobs_mode") == "processed_logprobs"
            rows.append(log_softmax(masked(z, sampler)) if processed and not sampler.greedy else log_softmax(z))
            drawn.append(forced[i] if forced else token)
            if drawn[-1] == TINY_EOS and not body.get("ignore_eos"):
                return drawn, rows, "stop"
        return drawn, rows, "length"

    @staticmethod
    def _row(row: Array, token: int, k: int) -> dict[int, float]:
        best = [int(t) for t in np.argsort(-row, kind="stable")[:k]]
        return {t: max(float(np.float32(row[t])), -9999.0) for t in [*best, token]}

    def _sampled(self, drawn: list[int], rows: list[Array], k: int) -> dict[str, Any]:
        return self._lists(drawn, [self._row(row, t, k) for row, t in zip(rows, drawn, strict=True)])

    @staticmethod
    def _lists(drawn: list[int], maps: list[dict[int, float]]) -> dict[str, Any]:
        return {
            "tokens": [f"token_id:{t}" for t in drawn],
            "token_logprobs": [m[t] for m, t in zip(maps, drawn, strict=True)],
            "top_logprobs": [{f"token_id:{t}": v for t, v in m.items()} for m in maps],
            "text_offset": list(range(len(drawn))),
        }

    def _prompt(self, ids: list[int], k: int) -> list[dict[str, Any] | None]:
        out: list[dict[str, Any] | None] = [None]
        for i in range(1, len(ids)):
            row = log_softmax(self.logits(ids[:i]))
            ranks = (-row).argsort(kind="stable").argsort(kind="stable") + 1
            out.append(
                {
                    str(t): {"logprob": v, "rank": int(ranks[t]), "decoded_token": chr(97 + t % 26)}
                    for t, v in self._row(row, ids[i], k).items()
                }
            )
        return out


def serve(fake: FakeServer, engine: Tiny) -> Tiny:
    """Put an engine behind the completions route, and its tokenizer."""
    fake.on(ROUTE, engine.answer)
    fake.on("/tokenize", tokenize)
    fake.on("/detokenize", lambda seen: {"prompt": text_of(seen.json()["tokens"])})
    return engine


def facts(**fields: object) -> Facts:
    return msgspec.structs.replace(FACTS, **fields)


PLUGIN = Plugin(version="0.1", enforced_replay=True, logprobs_mode=True, default_mode="raw_logprobs")


@asynccontextmanager
async def open_tiny(fake: FakeServer, known: Facts = FACTS) -> AsyncIterator[Connection]:
    """A connection that trusts the given facts and retries nothing."""
    options = Options(dialect="vllm_native", facts=known, texts=False, retry=RetryPolicy(attempts=1))
    async with connect(fake.url, options) as connection:
        yield connection
