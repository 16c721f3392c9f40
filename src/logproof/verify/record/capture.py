"""Capture: own calls to an endpoint with every sampling leaf pinned, recorded as artifacts.

A leaf that the wire cannot carry stays unresolved in the artifact, and the verdict will say so. Seeds are derived from
a nonce and the prompt's id, so that neither side chose them alone. Nothing typed by a user is retokenised here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from logproof.client.connect import Connection
from logproof.client.unspoiled import ask_unspoiled
from logproof.dialects.call import Call
from logproof.dialects.lower import lower
from logproof.errors import (
    ArtifactError,
    BadReply,
    ContentFiltered,
    ContextOverflow,
    EndpointError,
    ServerFault,
    UsageError,
)
from logproof.ir.request import Request, Sampling, Scoring
from logproof.parallel import each_in_order
from logproof.verify.artifact.artifact import Artifact, Claim, Derivation, RecordedSampling, Sent
from logproof.verify.artifact.known_request import KnownRequest
from logproof.verify.artifact.request_body import EMPTY, protocol_values, stated_request, with_protocol
from logproof.verify.artifact.seeds import derive_seed
from logproof.verify.record.build import Observation, Setting, artifacts_from
from logproof.verify.record.defaults import Defaults, resolve
from logproof.verify.record.prompts import Prompt
from logproof.verify.record.stated_claim import StatedClaim, claim_of
from logproof.verify.stats.sampler import Sampler


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """What every call asks for. k: width of the recorded rows. nonce: seeds derive from it; None asks for no seed.

    defaults: what the endpoint takes for leaves that its wire cannot carry, as far as an operator states it.
    """

    sampler: Sampler = Sampler(1.0)
    max_tokens: int = 128
    k: int = 20
    nonce: str | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    denominator: int | None = None
    defaults: Defaults = Defaults()


def fresh_nonce() -> str:
    """A random nonce, as hex digits."""
    return secrets.token_hex(8)


BATCH = 64
"""Prompts whose artifacts are given out together."""
VLLM_OPTIONS = {"repetition_penalty": 1.0, "min_tokens": 0, "stop_token_ids": []}
SGLANG_OPTIONS = {"repetition_penalty": 1.0, "min_new_tokens": 0, "stop_token_ids": []}


def pinned_request(prompt: Prompt, pins: Pins, connection: Connection) -> Request:
    """The request, with every leaf that the endpoint can pin."""
    engine = connection.facts.engine
    seed = None if pins.nonce is None else derive_seed(pins.nonce, prompt.id)
    pinned = Sampling(
        max_tokens=pins.max_tokens,
        temperature=pins.sampler.temperature,
        top_p=pins.sampler.top_p,
        top_k=_top_k(pins, engine),
        seed=seed,
        stop=pins.stop,
        n=1,
        frequency_penalty=0.0,
        presence_penalty=0.0,
    )
    return Request(
        connection.model,
        prompt.input,
        sampling=pinned,
        scoring=Scoring(sampled=pins.k),
        output=prompt.output,
        options=_options(pins, engine),
    )


def _protocol(engine: str | None, path: str) -> dict[str, object]:
    """What an endpoint takes where a capture's request leaves a leaf out. Biases and stop strings come from a request
    alone; SGLang fixes as much as vLLM, a limit of tokens aside, which a capture always names."""
    fixed = EMPTY if engine == "sglang" else protocol_values(engine, path)
    return {"logit_bias": {}, "stop": (), **fixed}


def recorded_sampling(sent: Sent, prompt: Prompt, pins: Pins, engine: str | None) -> RecordedSampling:
    """The sampling as the artifact states it: from the body that left, the wire's own rules and the operator's word.

    The rest stays unresolved, as does all but the operator's word where a dialect of another package wrote the body.
    """
    try:
        stated = stated_request(sent).sampling
    except ArtifactError:
        return resolve(RecordedSampling(), pins.defaults)
    effective = with_protocol(stated, _protocol(engine, sent.path))
    if pins.nonce is not None and stated.seed is not None:
        derivation = Derivation(alg="sha256-31", nonce=pins.nonce, id=prompt.id)
        effective = replace(effective, seed=replace(stated.seed, origin="derived", derivation=derivation))
    return resolve(effective, pins.defaults)


def _top_k(pins: Pins, engine: str | None) -> int | None:
    """0 is off; vLLM and SGLang write that as -1 where a model's own default might be on."""
    if engine not in ("vllm", "sglang"):
        return pins.sampler.top_k or None
    return pins.sampler.top_k or -1


def _options(pins: Pins, engine: str | None) -> dict[str, object]:
    base = {"vllm": VLLM_OPTIONS, "sglang": SGLANG_OPTIONS}.get(engine or "")
    if base is None:
        return {}
    return {**base, "min_p": pins.sampler.min_p, "ignore_eos": pins.ignore_eos}


class CapturedPrompt(msgspec.Struct, frozen=True, eq=False):
    """One prompt's artifact, or the error of an endpoint that failed on it. known: the request as it was sent."""

    prompt: Prompt
    artifact: Artifact | None
    error: EndpointError | None = None
    known: KnownRequest | None = None


async def capture_all(
    connection: Connection,
    prompts: Sequence[Prompt],
    pins: Pins,
    stated: StatedClaim,
    keep: Callable[[CapturedPrompt], None],
    *,
    concurrency: int = 4,
) -> None:
    """Capture all prompts under what the operator states, and hand each to `keep` as it comes. Raises as `capture`.

    Whatever ends it, what was handed over before is the caller's.
    """
    claim = claim_of(connection.facts, connection.model, stated)
    async for one in capture(connection, prompts, pins, claim, concurrency=concurrency):
        keep(one)


async def capture(
    connection: Connection, prompts: Sequence[Prompt], pins: Pins, claim: Claim, *, concurrency: int = 4
) -> AsyncIterator[CapturedPrompt]:
    """The prompts in order, at most `concurrency` calls in flight; a prompt that the endpoint fails on says so.

    Raises UsageError kinds naming the prompt's line before anything is sent, for a request that is invalid or that the
    dialect refuses; and what Client.call raises for faults that are not one prompt's: keys, model, an unreachable
    endpoint.
    """
    for prompt in prompts:
        _check(connection, prompt, pins)
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        async for one in each_in_order([partial(_tried, connection, p, pins, claim) for p in batch], concurrency):
            yield one


def _check(connection: Connection, prompt: Prompt, pins: Pins) -> None:
    """Raise what lowering its request raises: a later prompt's fault must not cost what the ones before it gave."""
    client = connection.client
    try:
        lower(pinned_request(prompt, pins, connection), client.dialect, client.facts, client.drop)
    except UsageError as error:
        error.message = f"{prompt.where or prompt.id}: {error.message}"
        raise


async def _tried(connection: Connection, prompt: Prompt, pins: Pins, claim: Claim) -> CapturedPrompt:
    try:
        artifact, known = await ask_unspoiled(partial(capture_one, connection, prompt, pins, claim))
        return CapturedPrompt(prompt, artifact, known=known)
    except (BadReply, ContextOverflow, ServerFault, ContentFiltered) as error:
        return CapturedPrompt(prompt, None, error)


async def capture_one(
    connection: Connection, prompt: Prompt, pins: Pins, claim: Claim
) -> tuple[Artifact, KnownRequest]:
    """One artifact, and the request that was sent for it. Raises what Client.call raises."""
    call = await connection.client.call(pinned_request(prompt, pins, connection))
    sent = Sent(dialect=call.dialect, path=call.wire.path, body=msgspec.json.decode(call.wire.body))
    setting = Setting(
        claim=claim,
        sampling=recorded_sampling(sent, prompt, pins, connection.facts.engine),
        k=pins.k,
        endpoint=connection.endpoint.display,
        denominator=pins.denominator,
    )
    known = KnownRequest(path=sent.path, body=sent.body, source="own")
    return artifacts_from(observation_of(call), setting, datetime.now(UTC))[0], known


def observation_of(call: Call) -> Observation:
    """An own call, as the record needs it."""
    return Observation(
        dialect=call.dialect,
        path=call.wire.path,
        body=call.wire.body,
        response=call.response,
        chunks=None if call.reply.events is None else len(call.reply.events),
        request_sha256=hashlib.sha256(call.wire.body).hexdigest(),
        reply_sha256=call.reply_digest,
    )
