"""Executors that deviate from what they claim, their records as the requester's own capture keeps them, and the court
that judges records by the path of `logproof verify` on a trusted tiny engine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from fakes.server import FakeServer, Reply, Seen
from logproof.client.connect import Connection
from logproof.verify.artifact.artifact import Artifact, Derivation, Seed, UnreadableRecord, seal
from logproof.verify.artifact.known_request import KnownRequest, request_digest
from logproof.verify.artifact.seeds import derive_seed
from logproof.verify.audit import verify as verify_module
from logproof.verify.calibrate import fit
from logproof.verify.calibrate.collect import CalibrationSides, collect
from logproof.verify.judge import judge_unreadable
from logproof.verify.policy import Policy
from logproof.verify.record.capture import Pins, capture
from logproof.verify.record.prompts import Prompt, prompts
from logproof.verify.replay.replay_plan import plan
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Verdict
from verify.builders import Array, bfloat
from verify.parts import NOW, claim
from verify.tiny import TINY_VOCAB, Tiny, open_tiny, serve

LENGTH, WIDTH = 20, 10
"""Tokens and recorded entries of each record."""
PINS = Pins(max_tokens=LENGTH, k=WIDTH, nonce="n", ignore_eos=True)
SAMPLINGS: dict[str, Pins] = {
    name: msgspec.structs.replace(PINS, sampler=sampler)
    for name, sampler in {
        "plain": Sampler(1.0),
        "cool": Sampler(0.7),
        "greedy": Sampler(0.0),
        "cuts": Sampler(1.0, top_k=20, top_p=0.9),
        "floor": Sampler(0.8, min_p=0.05),
    }.items()
}
SAMPLINGS["stops"] = msgspec.structs.replace(PINS, stop=("never written",))
SAMPLINGS["fixed"] = msgspec.structs.replace(PINS, denominator=1024)
"""What honest requesters ask for, and the policy was calibrated with."""


class Swapping(Tiny):
    """Draws with other fields than were asked."""

    def __init__(self, **swap: object) -> None:
        super().__init__()
        self.swap = swap

    def _generate(self, prompt: list[int], body: dict[str, Any]) -> tuple[list[int], list[Array], str]:
        return super()._generate(prompt, {**body, **self.swap})


class OtherPrompt(Tiny):
    """Runs ids of its own making, and reports them truthfully."""

    def __init__(self, change: Callable[[list[int]], list[int]]) -> None:
        super().__init__()
        self.change = change

    def answer(self, seen: Seen) -> Reply | dict[str, Any]:
        body = seen.json()
        ids = [3 + ord(c) % 40 for c in body["prompt"]]
        changed = json.dumps({**body, "prompt": self.change(ids)}).encode()
        return super().answer(dataclasses.replace(seen, body=changed))


class Changed(Tiny):
    """Another model made of this one: its logits go through a function of logits and prefix."""

    def __init__(self, change: Callable[[Array, Sequence[int]], Array]) -> None:
        super().__init__()
        self.change = change

    def logits(self, prefix: list[int], weights: int | None = None) -> Array:
        return self.change(super().logits(prefix, weights), prefix)


class Editing(Tiny):
    """Puts its second best token at one place, and goes on from there."""

    def _generate(self, prompt: list[int], body: dict[str, Any]) -> tuple[list[int], list[Array], str]:
        drawn, rows, _ = super()._generate(prompt, {**body, "max_tokens": 8})
        forced = [*drawn[:-1], next(int(t) for t in np.argsort(-rows[-1]) if t != drawn[-1])]
        after, more, finish = super()._generate([*prompt, *forced], {**body, "max_tokens": LENGTH - 8})
        return forced + after, rows + more, finish


def _quantised(z: Array, prefix: Sequence[int]) -> Array:
    return z + np.random.default_rng([*prefix[-6:], 5]).normal(0, 0.2, TINY_VOCAB)


def _in_turn(z: Array, prefix: Sequence[int]) -> Array:
    """Another model's logits at every fourth token."""
    return z if len(prefix) % 4 else Tiny(weights=3).logits(list(prefix))


class Stopping(Swapping):
    """Stops early and says that a stop string ended it."""

    def __init__(self) -> None:
        super().__init__(max_tokens=8)
        self.edit = self._ended

    @staticmethod
    def _ended(body: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        reply["choices"][0] |= {"finish_reason": "stop", "stop_reason": body["stop"][0]}
        return reply


class Cheat(msgspec.Struct, frozen=True):
    """A deviating execution. forge: what the accused writes into the record beyond what the engine said."""

    engine: Tiny
    sampling: str = "plain"
    nonce: str | None = "n"
    forge: Callable[[Artifact], Artifact] = lambda artifact: artifact


def _with_sampling(artifact: Artifact, **fields: object) -> Artifact:
    return seal(msgspec.structs.replace(artifact, sampling=msgspec.structs.replace(artifact.sampling, **fields)))


def own_derivation(nonce: str = "mine", name: str = "p") -> Seed:
    """A seed that the executor derived from a nonce of its own."""
    return Seed(
        value=derive_seed(nonce, name),
        origin="derived",
        derivation=Derivation(alg="sha256-31", nonce=nonce, id=name),
    )


CHOSEN = own_derivation()
"""Stands for the one of many seeds that gave the text that the executor liked best."""

CHEATS: dict[str, Cheat] = {
    "another model": Cheat(Tiny(weights=1)),
    "another model, greedy": Cheat(Tiny(weights=1), "greedy"),
    "quantised": Cheat(Changed(_quantised)),
    "quantised, greedy": Cheat(Changed(_quantised), "greedy"),
    "quantised, with cuts": Cheat(Changed(_quantised), "cuts"),
    "bfloat16": Cheat(Changed(lambda z, prefix: bfloat(z))),
    "models in turn": Cheat(Changed(_in_turn)),
    "pre-filled": Cheat(Tiny(writer=1)),
    "pre-filled, greedy": Cheat(Tiny(writer=1), "greedy"),
    "pre-filled, with cuts": Cheat(Tiny(writer=1), "cuts"),
    "warmer": Cheat(Swapping(temperature=1.1)),
    "colder": Cheat(Swapping(temperature=0.7)),
    "greedy for sampled": Cheat(Swapping(temperature=0.0)),
    "tail cut": Cheat(Swapping(top_p=0.95)),
    "tail cut deeper": Cheat(Swapping(top_p=0.8), "cuts"),
    "hidden system message": Cheat(OtherPrompt(lambda ids: [41, 17, 29, 23, *ids])),
    "cut prompt": Cheat(OtherPrompt(lambda ids: ids[-4:])),
    "tokens edited": Cheat(Editing()),
    "tokens edited, greedy": Cheat(Editing(), "greedy"),
    "seed chosen": Cheat(Swapping(seed=CHOSEN.value), forge=lambda a: _with_sampling(a, seed=CHOSEN)),
    "seed chosen where none is asked": Cheat(
        Swapping(seed=CHOSEN.value), nonce=None, forge=lambda a: _with_sampling(a, seed=CHOSEN)
    ),
    "cut short": Cheat(Swapping(max_tokens=8)),
    "cut short by no stop string": Cheat(Stopping(), "stops"),
    "bfloat16, fixed": Cheat(Changed(lambda z, prefix: bfloat(z)), "fixed"),
    "warmer, fixed": Cheat(Swapping(temperature=1.1), "fixed"),
    "tail cut, fixed": Cheat(Swapping(top_p=0.9), "fixed"),
    "pre-filled, fixed": Cheat(Tiny(writer=1), "fixed"),
}
"""Deviating executions by name."""


def asked(count: int, tag: str) -> list[Prompt]:
    """Prompts of texts."""
    return prompts(b"\n".join(json.dumps({"text": f"{tag} {i}", "id": f"{tag}{i}"}).encode() for i in range(count)))


async def _captured(fake: FakeServer, engine: Tiny, pins: Pins, prompt: Prompt) -> Artifact:
    serve(fake, engine)
    async with open_tiny(fake) as connection:
        (one,) = [c async for c in capture(connection, [prompt], pins, claim())]
    assert one.artifact is not None, one.error
    return one.artifact


async def honest_record(fake: FakeServer, pins: Pins, prompt: Prompt) -> Artifact:
    """What an honest executor gives."""
    return await _captured(fake, Tiny(), pins, prompt)


async def cheat_record(fake: FakeServer, cheat: Cheat) -> Artifact:
    """The cheat's record of the first prompt whose tokens are others than an honest executor's; of the first where the
    tokens show nothing."""
    pins = msgspec.structs.replace(SAMPLINGS[cheat.sampling], nonce=cheat.nonce)
    for prompt in asked(8, "fraud"):
        made = await _captured(fake, cheat.engine, pins, prompt)
        fair = await honest_record(fake, pins, prompt)
        if made.tokens != fair.tokens:
            break
    return cheat.forge(made)


async def calibrated(fake: FakeServer, engine: Tiny, count: int = 16, **aim: Any) -> Policy:
    """The policy of `logproof calibrate` over all SAMPLINGS, with no last day that a test could see."""
    serve(fake, engine)
    async with open_tiny(fake) as connection:
        sides = CalibrationSides(connection, connection)
        pins = list(SAMPLINGS.values())
        found = await collect(sides, asked(count, "honest"), pins, claim(), concurrencies=(2,))
    made = fit.fit(found.pairs, fit.Aim(name="tiny", **aim), NOW)
    return msgspec.structs.replace(made, expires_at="9999-12-31T00:00:00+00:00")


class Court:
    """Judges as `logproof verify` does on a trusted engine; what is asked of that engine twice is asked once."""

    def __init__(self, trusted: Connection, policy: Policy) -> None:
        self.trusted, self.policy = trusted, policy
        self.replays: dict[object, Any] = {}
        self.judged = 0

    async def verdicts(
        self, record: Artifact | UnreadableRecord, sent: Artifact, requests: Mapping[str, KnownRequest]
    ) -> list[Verdict]:
        """The verdict where the request of `sent` is the requester's own, as in an audit, and the one where it is
        looked up by the digest of what the record says, as in `logproof verify --requests`. They are one where that
        finds the same request: an audit, whose record the requester wrote, takes more of its words than `verify`."""
        if isinstance(record, UnreadableRecord):
            return [judge_unreadable(record, self.policy, NOW)]
        own = KnownRequest(path=sent.request.path, body=sent.request.body, source="own")
        named = verify_module.request_of(record, requests)
        if named is not None and request_digest(named.path, named.body) == request_digest(own.path, own.body):
            return [await self.verdict(record, own)] * 2
        return [await self.verdict(record, own), await self.verdict(record, named)]

    async def verdict(self, record: Artifact, known: KnownRequest | None) -> Verdict:
        """The verdict, given the requester's own request."""
        self.judged += 1
        return (await verify_module.verify(self.trusted, record, self.policy, known=known))[1]

    async def replay(self, trusted: Connection, artifact: Artifact, *args: Any, **options: Any) -> Any:
        """The product's replay, made once for equal tokens and plan."""
        chosen = plan(artifact, trusted.facts, *args, options.get("preferred"))
        about = msgspec.json.encode((artifact.sampling, artifact.request.body)) if chosen_by_claim(chosen) else b""
        key = (repr(chosen), artifact.tokens.prompt_ids, artifact.tokens.completion_ids, about)
        return await self._once(key, _replay, trusted, artifact, *args, **options)

    async def prompt(self, trusted: Connection, path: str, body: object) -> Any:
        """The product's prompt ids, made once for equal requests."""
        return await self._once(msgspec.json.encode((path, body)), _make_prompt, trusted, path, body)

    async def _once(self, key: object, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if key not in self.replays:
            self.replays[key] = await work(*args, **options)
        return self.replays[key]


_replay = verify_module.replay
_make_prompt = verify_module.make_prompt


def chosen_by_claim(chosen: object) -> bool:
    """Whether what the engine is asked depends on more than the tokens."""
    return getattr(chosen, "mode", "raw") != "raw"


@asynccontextmanager
async def court(fake: FakeServer, engine: Tiny, policy: Policy) -> AsyncIterator[Court]:
    """A court whose trusted engine is this one."""
    serve(fake, engine)
    async with open_tiny(fake) as connection:
        one = Court(connection, policy)
        with patch.multiple(verify_module, replay=one.replay, make_prompt=one.prompt):
            yield one


def requests_of(artifacts: Sequence[Artifact]) -> Mapping[str, KnownRequest]:
    """The requester's file of these requests, by digest."""
    known = [KnownRequest(path=a.request.path, body=a.request.body, source="file") for a in artifacts]
    return {request_digest(k.path, k.body): k for k in known}


class Records(msgspec.Struct, frozen=True, eq=False):
    """What a court judges: a calibrated policy, honest records by sampling, the cheats' by name, and the requester's
    file of all their requests."""

    policy: Policy
    honest: dict[str, Artifact]
    cheats: dict[str, Artifact]
    requests: Mapping[str, KnownRequest]


async def court_records(fake: FakeServer, noise: float = 0.0, **aim: Any) -> Records:
    """Everything that a court needs, made on this server. noise: of the trusted engine's logits, nats. aim: as
    `fit.Aim`."""
    policy = await calibrated(fake, Tiny(jitter=noise), **{"require": "sampled", **aim})
    (fair,) = asked(1, "fair")
    honest = {name: await honest_record(fake, pins, fair) for name, pins in SAMPLINGS.items()}
    cheats = {name: await cheat_record(fake, cheat) for name, cheat in CHEATS.items()}
    return Records(policy, honest, cheats, requests_of([*honest.values(), *cheats.values()]))
