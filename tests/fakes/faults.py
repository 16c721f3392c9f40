"""Faults between a client and an engine: one call in five is answered wrongly, each way in turn.

    faults = Faults(seed=1)
    fake.on("/v1/completions", lambda seen: faults.reply(seen.json(), good(seen)))

`hits` says which prompt met which faults, so that a failed sample can be told to have failed for its own reason.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from fakes.server import Reply

Body = dict[str, Any]

ERROR = {"error": {"message": "the engine is busy", "type": "server_error"}}


def _whole(good: Body, rng: random.Random) -> bytes:
    return json.dumps(good).encode()


def _cut(good: Body, rng: random.Random) -> Reply:
    body = _whole(good, rng)
    return Reply(json=good, cut=rng.randrange(len(body)))


def _garbled(good: Body, rng: random.Random) -> Reply:
    body = bytearray(_whole(good, rng))
    at = rng.randrange(len(body))
    body[at : at + 8] = b"\xff" * 8
    return Reply(body=bytes(body), headers={"content-type": "application/json"})


def _short(good: Body, rng: random.Random) -> Reply:
    return Reply(json=good, length=rng.randrange(1, len(_whole(good, rng))))


def _doubled(good: Body, rng: random.Random) -> Reply:
    body = _whole(good, rng)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    return Reply(raw=(head + body) * 2, keep=True)


def _fewer(good: Body, rng: random.Random) -> Reply:
    """One position less than the counts say, in the channel that is there."""
    damaged = json.loads(json.dumps(good))
    choice = damaged["choices"][0]
    for column in (choice.get("prompt_logprobs"), (choice.get("logprobs") or {}).get("token_logprobs")):
        if column:
            column.pop(rng.randrange(len(column)))
            break
    return Reply(json=damaged)


KINDS: dict[str, tuple[Callable[[Body, random.Random], Reply], tuple[str, ...]]] = {
    "reset": (lambda good, rng: Reply(reset=True), ()),
    "dropped": (lambda good, rng: Reply(drop=True), ()),
    "500": (lambda good, rng: Reply(500, json=ERROR), ()),
    "503 in HTML": (lambda good, rng: Reply(503, body="<html>busy</html>"), ()),
    "429": (lambda good, rng: Reply(429, json=ERROR), ()),
    "429 with Retry-After": (lambda good, rng: Reply(429, json=ERROR, headers={"retry-after": "0"}), ()),
    "cut": (_cut, ()),
    "garbled": (_garbled, ("BadReply", "MissingChannel")),
    "slow": (lambda good, rng: Reply(json=good, piece=256, pause=0.001), ()),
    "length too short": (_short, ("BadReply", "MissingChannel")),
    "length too long": (lambda good, rng: Reply(json=good, length=10**6, cut=10**6), ()),
    "sent twice": (_doubled, ()),
    "a position less": (_fewer, ("BadReply", "MissingChannel")),
    "another request's": (lambda good, rng: Reply(json=good), ("BadReply", "MissingChannel")),
}
"""Fault -> how it answers, and the errors that may end its sample; without any, a repetition mends it."""


class Faults:
    """The faults of one run. share: of calls. armed: none before. kinds: those to use, all in turn.

    fingerprint: after this many calls, replies name another one. hits: prompt -> faults that it met.
    """

    def __init__(self, seed: int, share: float = 0.2, fingerprint: int | None = None) -> None:
        self.armed = False
        self.calls = 0
        self.hits: dict[str, list[str]] = defaultdict(list)
        self.met: list[str] = []
        self._rng = random.Random(seed)
        self._share, self._fingerprint = share, fingerprint
        self._past: list[tuple[str, Body]] = []

    def reply(self, body: Body, good: Body) -> Reply:
        """What the client gets in place of the good reply, mostly that itself."""
        if not self.armed:
            return Reply(json=good)
        self.calls += 1
        if self._fingerprint is not None:
            good = {**good, "system_fingerprint": "fp-1" if self.calls < self._fingerprint else "fp-2"}
        self._past = [*self._past[-20:], (body["prompt"], good)]
        if self._rng.random() >= self._share:
            return Reply(json=good)
        return self._fault(body["prompt"], good)

    def _fault(self, prompt: str, good: Body) -> Reply:
        kind = list(KINDS)[len(self.met) % len(KINDS)]
        if kind == "another request's":
            others = [reply for asked, reply in self._past if asked != prompt]
            good = self._rng.choice(others) if others else good
        self.met.append(kind)
        self.hits[prompt].append(kind)
        return KINDS[kind][0](good, self._rng)


def allowed(kinds: list[str]) -> set[str]:
    """Errors that may end a request that met these faults."""
    return {name for kind in kinds for name in KINDS[kind][1]}
