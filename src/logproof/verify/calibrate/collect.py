"""Honest pairs from live engines, for make_policy.py: captures at several concurrencies, each replayed.

The executor's endpoint may be the trusted one itself (then the policy knows the noise of batches and of decode against
prefill) or another honest engine. Repeats of the first replays, cold one included, give the noise floor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from logproof.client.connect import Connection
from logproof.errors import EngineError, UsageError
from logproof.parallel import in_order
from logproof.verify.artifact.artifact import Artifact, Claim, artifact_digest
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.calibrate.fit import HonestPair
from logproof.verify.checks.prompt_match import check_prompt
from logproof.verify.checks.recorded import check
from logproof.verify.policy import NoiseFloor
from logproof.verify.record.capture import CapturedPrompt, Pins, capture
from logproof.verify.record.prompts import Prompt
from logproof.verify.replay.prompt_ids import make_prompt
from logproof.verify.replay.replay import replay
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.stats.distance import max_abs, pair

FLOOR_ARTIFACTS = 4
"""Artifacts whose replay is repeated for the noise floor."""


class CalibrationSides(msgspec.Struct, frozen=True):
    """Executor and verifier, open connections; they may be one."""

    executor: Connection
    verifier: Connection


class HonestPairs(msgspec.Struct, frozen=True, eq=False):
    """Honest pairs, and what the engines failed on, one line each."""

    pairs: tuple[HonestPair, ...]
    failures: tuple[str, ...]


MOST_FAILED = 0.1
"""Share of failed calls above which there is no calibration."""


async def collect(
    sides: CalibrationSides,
    prompts: Sequence[Prompt],
    pins: Sequence[Pins],
    claim: Claim,
    *,
    method: MethodChoice = "auto",
    concurrencies: Sequence[int] = (1, 4),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> HonestPairs:
    """Capture each prompt once for each pins and concurrency, and replay it. progress: called with (done, total).

    Raises UsageError for no work, EngineError where more than MOST_FAILED of the calls fail, and what Client.call
    raises.
    """
    total = len(prompts) * len(pins) * len(concurrencies)
    if total == 0:
        raise UsageError("nothing to calibrate with: no prompts, samplers or concurrencies")
    pairs: list[HonestPair] = []
    failures: list[str] = []
    for limit in concurrencies:
        for pin in pins:
            stream = capture(sides.executor, prompts, _own_seeds(pin, limit), claim, concurrency=limit)
            captures = [c async for c in stream]
            failures += [f"{c.prompt.id}: {c.error}" for c in captures if c.artifact is None]
            for one in await _replayed(sides.verifier, captures, method, limit):
                pairs.append(one) if isinstance(one, HonestPair) else failures.append(one)
            progress(len(pairs) + len(failures), total)
    _refuse_many(failures, total)
    return HonestPairs(tuple(pairs), tuple(failures))


def distinct(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """The artifacts in order, of equal digests the first: one sequence counted twice makes false rates."""
    return list({artifact_digest(a): a for a in reversed(artifacts)}.values())[::-1]


async def replay_recorded(
    verifier: Connection, artifacts: Sequence[Artifact], *, method: MethodChoice = "auto", concurrency: int = 1
) -> HonestPairs:
    """Replay honest artifacts that were recorded elsewhere, as on other hardware. Raises as `collect`."""
    sources = [(_prompt_of(a), a) for a in artifacts]
    answers = await in_order([partial(_answer, verifier, a, method) for a in artifacts], concurrency)
    outcomes = [_pair(prompt, a, answer) for (prompt, a), answer in zip(sources, answers, strict=True)]
    failures = tuple(one for one in outcomes if isinstance(one, str))
    _refuse_many(failures, len(outcomes))
    return HonestPairs(tuple(one for one in outcomes if isinstance(one, HonestPair)), failures)


def _prompt_of(artifact: Artifact) -> str:
    """The prompt's id, unit of the split: as its seed was derived, else by its ids."""
    seed = artifact.sampling.seed
    if seed is not None and seed.derivation is not None:
        return seed.derivation.id
    return hashlib.sha256(repr(artifact.tokens.prompt_ids).encode()).hexdigest()


def _pair(prompt: str, artifact: Artifact, answer: ReplayResult | ReplayFailure) -> HonestPair | str:
    return HonestPair(prompt, artifact, answer) if isinstance(answer, ReplayResult) else f"{prompt}: {answer.detail}"


def _refuse_many(failures: Sequence[str], total: int) -> None:
    if len(failures) > MOST_FAILED * total:
        raise EngineError(f"{len(failures)} of {total} honest calls failed, first {failures[0]}")


def _own_seeds(pins: Pins, limit: int) -> Pins:
    """Other seeds for each concurrency: the same text twice would count one sequence as two."""
    return pins if pins.nonce is None else msgspec.structs.replace(pins, nonce=f"{pins.nonce}/{limit}")


async def _replayed(
    verifier: Connection, captures: Sequence[CapturedPrompt], method: MethodChoice, limit: int
) -> list[HonestPair | str]:
    """A pair, or why there is none, for each capture that succeeded."""
    sound = [(c.prompt.id, c.artifact) for c in captures if c.artifact is not None]
    answers = await in_order([partial(_answer, verifier, a, method) for _, a in sound], limit)
    return [_pair(prompt, artifact, answer) for (prompt, artifact), answer in zip(sound, answers, strict=True)]


async def _answer(
    verifier: Connection, artifact: Artifact, method: MethodChoice, repeats: int = 1
) -> ReplayResult | ReplayFailure:
    checked = check(artifact)
    bad = next((f for f in checked.findings if f.outcome == "fail"), None)
    if bad is not None:
        return ReplayFailure("engine_error", f"the record fails its own test {bad.test}: {bad.detail}")
    if not checked.replayable:
        return ReplayFailure("engine_error", "the record holds no ids or no logprobs")
    made = await make_prompt(verifier, artifact.request.path, artifact.request.body)
    prompt = check_prompt(artifact, None, made)
    if prompt.outcome == "fail":
        return ReplayFailure("engine_error", f"both engines make other prompt ids of one request: {prompt.detail}")
    return await replay(verifier, artifact, method, repeats=repeats)


async def _sure(verifier: Connection, artifact: Artifact, method: MethodChoice, repeats: int = 1) -> ReplayResult:
    answer = await _answer(verifier, artifact, method, repeats)
    if isinstance(answer, ReplayFailure):
        raise EngineError(f"the trusted engine did not replay an honest artifact: {answer.detail}")
    return answer


async def noise_floor(verifier: Connection, pairs: Sequence[HonestPair], method: MethodChoice = "auto") -> NoiseFloor:
    """Repeat a few replays in sequence, then all of them at once, and report how far they differ."""
    chosen = list(pairs)[:FLOOR_ARTIFACTS]
    calm = [await _sure(verifier, p.artifact, method, repeats=3) for p in chosen]
    jobs = [partial(_sure, verifier, p.artifact, method) for p in chosen * 2]
    crowd = await in_order(jobs, len(jobs))
    differ = [max_abs(pair(a.columns, b.columns)) for a, b in zip(calm * 2, crowd, strict=True)]
    return NoiseFloor(
        repeat=max((c.noise_floor or 0.0 for c in calm), default=None),
        batch=max(differ, default=None),
        spread=1 + sum(d > 0.0 for d in differ) if differ else None,
    )
