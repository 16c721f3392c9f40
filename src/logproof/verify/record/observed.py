"""From an exchange that somebody else had with an engine to artifacts: what the recording proxy saw. Pure.

The client chose the request, so a leaf that it left out is resolved only where the engine's own protocol fixes it or
its defaults are known (defaults.py). A reply is read by the same dialects, with the same checks, as logproof's own
calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from logproof.dialects import reply_checks
from logproof.dialects.dialect import Dialect
from logproof.dialects.registry import get_dialect
from logproof.errors import REDACTED, ArtifactError
from logproof.http.exchange import SseEvent
from logproof.http.sse import SseParser
from logproof.ir.facts import Facts
from logproof.ir.request import Input, LogprobsMode, Replay, Request, Sampling, Scoring
from logproof.ir.response import Choice, Meaning, Response
from logproof.verify.artifact import grammar
from logproof.verify.artifact.artifact import Artifact, Claim, RecordedSampling, Sent, seal
from logproof.verify.artifact.request_body import CHAT, COMPLETIONS, protocol_values, stated_request, with_protocol
from logproof.verify.record.build import Observation, Setting, artifacts_from
from logproof.verify.record.defaults import Defaults, resolve


class ObservedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange of a client with an engine.

    path: below the root. body: the request as the engine got it, credentials blanked. reply: the reply's bytes, of a
    stream every byte. width: entries a position that are certain and keyed by id, None where no logprobs were asked.
    when: its start. Digests are over the bytes before anything was blanked.
    """

    path: str
    body: bytes
    reply: bytes
    streamed: bool
    width: int | None
    when: datetime
    request_sha256: str
    reply_sha256: str


def artifacts_of(
    exchange: ObservedExchange, facts: Facts, claim: Claim, endpoint: str, defaults: Defaults | None = None
) -> list[Artifact]:
    """One sealed artifact a choice, in order of index. defaults: what the engine takes where a request says nothing.

    Raises ArtifactError where the request cannot be read or is of another route, BadReply or StatusError where the
    reply is cut, foreign, or contradicts itself.
    """
    body, defaults = _body(exchange), defaults or Defaults()
    stated = resolve(_stated(body, facts, exchange.path), defaults)
    blanked = tuple(_blanked(body)) if hashlib.sha256(exchange.body).hexdigest() != exchange.request_sha256 else ()
    artifacts: list[Artifact] = []
    for observation in _observations(exchange, body, facts):
        effective = _within(stated, _room(facts, observation.response), defaults)
        setting = Setting(claim=claim, sampling=effective, k=exchange.width or 0, endpoint=endpoint, redactions=blanked)
        artifacts += artifacts_from(observation, setting, exchange.when)
    return artifacts if len(artifacts) == len({a.artifact_id for a in artifacts}) else _numbered(artifacts)


def _stated(body: dict[str, object], facts: Facts, path: str) -> RecordedSampling:
    """The leaves that the request states, and those that the engine's protocol fixes; others are unresolved."""
    sent = Sent(dialect=_dialect(path, facts).id, path=path, body=body)
    return with_protocol(stated_request(sent).sampling, protocol_values(facts.engine, path))


def _observations(exchange: ObservedExchange, body: dict[str, object], facts: Facts) -> Iterator[Observation]:
    """The exchange as the record needs it; of a batch of prompts one observation a prompt.

    A stream was seen to its last byte and put together, so it is read as a plain reply: most clients ask for no usage.
    """
    dialect = _dialect(exchange.path, facts)
    events = _events(exchange.reply) if exchange.streamed else None
    plain = exchange.reply if events is None else _assembled(exchange.path, events)
    mode = _mode(body, facts)
    request = reading_request(body, exchange.width, mode)
    for part in _parts(plain, _prompt_count(body), request.choices):
        response = dialect.lift(request, part)
        reply_checks.check(request, response, facts)
        yield Observation(
            dialect=dialect.id,
            path=exchange.path,
            body=exchange.body,
            response=_masked(response, mode) if grammar.digest(body) else response,
            chunks=None if events is None else len(events),
            request_sha256=exchange.request_sha256,
            reply_sha256=exchange.reply_sha256,
        )


def _body(exchange: ObservedExchange) -> dict[str, object]:
    try:
        return msgspec.json.decode(exchange.body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"the request is no JSON object: {error}") from None


def _blanked(value: object, at: str = "") -> Iterator[str]:
    """JSON pointers of the texts in which a credential was blanked."""
    if isinstance(value, str) and REDACTED in value:
        yield at
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _blanked(inner, f"{at}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _blanked(inner, f"{at}/{i}")


def _dialect(path: str, facts: Facts) -> Dialect:
    if path == CHAT:
        return get_dialect("openai_chat")
    if path == COMPLETIONS:
        return get_dialect("vllm_native" if facts.engine == "vllm" else "openai_completions")
    raise ArtifactError(f"calls of {path} are not recorded as artifacts")


def _assembled(path: str, events: list[SseEvent]) -> bytes:
    """The plain reply of a stream; the native dialect never streams, and shares its body with this one."""
    return get_dialect("openai_chat" if path == CHAT else "openai_completions").assemble(events)


def _events(reply: bytes) -> list[SseEvent]:
    parser = SseParser()
    return parser.feed(reply) + parser.close()


def _mode(body: dict[str, object], facts: Facts) -> LogprobsMode:
    """What the reply's logprobs are before a grammar: as the request says to a plugin, else as the probe measured."""
    choice = body.get("logprobs_mode") if facts.has_plugin("logprobs_mode") else None
    if choice in ("raw_logprobs", "processed_logprobs"):
        return "processed" if choice == "processed_logprobs" else "raw"
    return facts.logprobs_mode or "raw"


_CHANGING = ("top_k", "min_p", "repetition_penalty", "logit_bias", "bad_words", "allowed_token_ids", "min_tokens")
"""Fields after which the logprobs of a server that does not say what they are cannot be taken to be raw."""


def reading_request(body: dict[str, object], width: int | None, mode: LogprobsMode) -> Request:
    """The request as a reader of its reply needs it: what `Dialect.lift` and `reply_checks.check` look at.

    That is how many choices and which rows it asked for, and what decides whether the logprobs can be raw. Not in it
    are the prompt, which is read only beside prompt scores, and a grammar: here nobody promised a client that the text
    fits it, and a completion that was cut inside its JSON is a record like any other. To a reader a grammar means only
    that tokens may be impossible, as after the cuts of a sampler; what the logprobs are is named by `_masked`.
    """
    n, masked = body.get("n"), bool(grammar.digest(body))
    stated = {} if masked else body
    return Request(
        model=str(body.get("model") or ""),
        input=Input(text=""),
        sampling=Sampling(
            n=n if isinstance(n, int) and n > 0 else 1,
            temperature=_float(stated.get("temperature")),
            top_p=_float(stated.get("top_p")),
            frequency_penalty=_float(stated.get("frequency_penalty")),
            presence_penalty=_float(stated.get("presence_penalty")),
        ),
        scoring=Scoring(sampled=width, top_by=None if width is None else "text"),
        replay=Replay(logprobs_mode="processed" if masked else mode),
        options={name: body[name] for name in _CHANGING if body.get(name)},
    )


def _parts(plain: bytes, prompts: int, choices: int) -> Iterator[bytes]:
    """The reply, of a batch of prompts one a prompt, its choices numbered from 0."""
    if prompts == 1:
        yield plain
        return
    reply = msgspec.json.decode(plain, type=dict[str, object])
    listed = msgspec.convert(reply.get("choices"), list[dict[str, object]])
    if len(listed) != prompts * choices:
        raise ArtifactError(f"{len(listed)} choices for {prompts} prompts of {choices}")
    for start in range(0, len(listed), choices):
        some = [{**c, "index": i} for i, c in enumerate(listed[start : start + choices])]
        yield msgspec.json.encode({**reply, "choices": some, "usage": None})


def _prompt_count(body: dict[str, object]) -> int:
    prompt = body.get("prompt")
    batch = isinstance(prompt, list) and all(isinstance(p, str | list) for p in prompt)
    return len(prompt) if isinstance(prompt, list) and batch else 1


def _masked(response: Response, mode: LogprobsMode) -> Response:
    """The response of a constrained request, its logprobs named as what a grammar leaves of those of this mode.

    What a grammar and the sampler make of processed ones together is not told apart here.
    """
    meaning: Meaning = "unknown" if mode == "processed" else "constrained"
    return replace(response, choices=tuple(_with_meaning(c, meaning) for c in response.choices))


def _with_meaning(choice: Choice, meaning: Meaning) -> Choice:
    return choice if choice.tokens is None else replace(choice, tokens=replace(choice.tokens, meaning=meaning))


def _numbered(artifacts: list[Artifact]) -> list[Artifact]:
    """Artifacts of a batch, with ids that tell the prompts apart."""
    numbered = []
    for i, artifact in enumerate(artifacts):
        name = hashlib.sha256(f"{artifact.artifact_id}/{i}".encode()).hexdigest()[:32]
        numbered.append(seal(replace(artifact, artifact_id=name, seal=None)))
    return numbered


def _room(facts: Facts, response: Response) -> int | None:
    """Tokens that the context has left behind the prompt: vLLM ends a completion there. None where not known."""
    if facts.engine != "vllm" or facts.max_model_len is None or response.prompt_ids is None:
        return None
    return max(0, facts.max_model_len - len(response.prompt_ids)) or None


def _within(sampling: RecordedSampling, room: int | None, defaults: Defaults) -> RecordedSampling:
    """max_tokens as the engine applied it: at most the room, and the whole room where nothing names a limit."""
    limit = sampling.max_tokens
    if room is None or (limit is None and not defaults.whole) or (limit is not None and limit <= room):
        return sampling
    return replace(sampling, max_tokens=room, sources={**sampling.sources, "max_tokens": "engine"})


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
