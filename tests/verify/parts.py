"""What tests of capture, replay, calibration and audit share: prompts, pins and calls against the tiny engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

from fakes.server import FakeServer
from logproof.ir.facts import Facts
from logproof.verify.artifact.artifact import Artifact, Claim
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.record.capture import CapturedPrompt, Pins, capture
from logproof.verify.record.prompts import prompts
from logproof.verify.record.stated_claim import StatedClaim, claim_of
from logproof.verify.replay.replay import replay
from logproof.verify.replay.replay_plan import MethodChoice
from verify.builders import policy
from verify.tiny import FACTS, TINY_EOS, open_tiny

T = TypeVar("T")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


PROMPTS = prompts(b"\n".join(json.dumps({"text": f"prompt {i}", "id": f"p{i}"}).encode() for i in range(24)))
PINS = Pins(max_tokens=20, k=10, nonce="n", ignore_eos=True)


def claim(known: Facts = FACTS) -> Claim:
    return claim_of(known, "tiny", StatedClaim(dtype="float32", runner="v1", device="cpu", eos_ids=(TINY_EOS,)))


async def captured(fake: FakeServer, pins: Pins = PINS, count: int = 1, known: Facts = FACTS) -> list[CapturedPrompt]:
    async with open_tiny(fake, known) as connection:
        return [one async for one in capture(connection, PROMPTS[:count], pins, claim(known))]


def one(fake: FakeServer, pins: Pins = PINS, known: Facts = FACTS) -> Artifact:
    made = run(captured(fake, pins, 1, known))[0].artifact
    assert made is not None
    return made


async def replayed(
    fake: FakeServer, artifact: Artifact, asked: MethodChoice = "auto", known: Facts = FACTS, repeats: int = 1
) -> ReplayResult | ReplayFailure:
    async with open_tiny(fake, known) as connection:
        return await replay(connection, artifact, asked, repeats=repeats)


TINY_POLICY = policy(k=10)
