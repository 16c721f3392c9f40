"""From an exchange that somebody else had with an engine to artifacts: what the recording proxy saw. Pure.

The client chose the request, so leaves that it left out stay unresolved, except where the engine's own protocol fixes
them. A reply is read by the same dialects, with the same checks, as logproof's own calls.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec.structs import replace

from logproof.errors import ArtifactError
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Output, Request, Schedule, Scoring
from logproof.ir.request import Sampling as AskedSampling
from logproof.ir.response import Choice, Response
from logproof.models import channels
from logproof.models.client import Call
from logproof.models.dialect import Dialect
from logproof.models.dialects import get_dialect
from logproof.verify import artifact as art
from logproof.verify.artifact import Artifact, Claim, Sampling
from logproof.verify.recording import Setting, from_call
from logproof.wire.message import SseEvent, WireReply, WireRequest
from logproof.wire.sse import SseParser

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
_ANY_TEXT = Output(regex=r"[\s\S]*")
"""Stands for any constraint: its logprobs are masked, its text is not judged here."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange. path: below the root. body: the request as the engine got it. reply: the reply's bytes, of a
    stream every byte. width: entries a position that are certain and keyed by id, None where no logprobs were asked.
    when: its start.
    """

    path: str
    body: bytes
    reply: bytes
    streamed: bool
    width: int | None
    when: datetime
    request_sha256: str
    reply_sha256: str


def artifacts_of(seen: Seen, facts: Facts, claim: Claim, endpoint: str) -> list[Artifact]:
    """One sealed artifact a choice, in order of index.

    Raises ArtifactError where the request cannot be read or is of another route, BadReply or StatusError where the
    reply is cut, foreign, or contradicts itself.
    """
    body = _body(seen)
    dialect = _dialect(seen.path, facts)
    events = _events(seen.reply) if seen.streamed else None
    plain = seen.reply if events is None else _assembled(seen.path, events)
    made: list[Artifact] = []
    for part, request in _parts(plain, body, seen.width):
        response = _lifted(dialect, request, part, facts)
        call = _call(seen, dialect, request, response, events)
        setting = Setting(claim=claim, sampling=sampling(body, facts), k=seen.width or 0, endpoint=endpoint)
        made += from_call(call, setting, seen.when)
    return made if len(made) == len({a.artifact_id for a in made}) else _numbered(made)


def _body(seen: Seen) -> dict[str, object]:
    try:
        return msgspec.json.decode(seen.body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"the request is no JSON object: {error}") from None


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


def _parts(plain: bytes, body: dict[str, object], width: int | None) -> Iterator[tuple[bytes, Request]]:
    """The reply and the request that reads it; of a batch of prompts one pair a prompt."""
    n = body.get("n")
    choices = n if isinstance(n, int) and n > 0 else 1
    request = Request(
        model=str(body.get("model") or ""),
        input=Input(text=""),
        sampling=AskedSampling(n=choices, temperature=_float(body.get("temperature"))),
        scoring=Scoring(sampled=width, top_by=None if width is None else "text"),
        output=_ANY_TEXT if _constraint(body) else Output(),
        schedule=Schedule(stream=bool(body.get("stream")) or None),
    )
    prompts = _prompt_count(body)
    if prompts == 1:
        yield plain, request
        return
    reply = msgspec.json.decode(plain, type=dict[str, object])
    listed = msgspec.convert(reply.get("choices"), list[dict[str, object]])
    if len(listed) != prompts * choices:
        raise ArtifactError(f"{len(listed)} choices for {prompts} prompts of {choices}")
    for start in range(0, len(listed), choices):
        some = [{**c, "index": i} for i, c in enumerate(listed[start : start + choices])]
        yield msgspec.json.encode({**reply, "choices": some, "usage": None}), request


def _prompt_count(body: dict[str, object]) -> int:
    prompt = body.get("prompt")
    batch = isinstance(prompt, list) and all(isinstance(p, str | list) for p in prompt)
    return len(prompt) if isinstance(prompt, list) and batch else 1


def _lifted(dialect: Dialect, request: Request, plain: bytes, facts: Facts) -> Response:
    """The checked response, its logprobs labelled as the probe measured them."""
    response = dialect.lift(request, plain)
    channels.check(request, response, facts)
    if facts.logprobs_mode != "processed":
        return response
    return replace(response, choices=tuple(_processed(c) for c in response.choices))


def _processed(choice: Choice) -> Choice:
    tokens = choice.tokens
    if tokens is None or tokens.meaning != "raw":
        return choice
    return replace(choice, tokens=replace(tokens, meaning="processed"))


def _call(seen: Seen, dialect: Dialect, request: Request, response: Response, events: list[SseEvent] | None) -> Call:
    reply = WireReply(200, (), seen.reply, None if events is None else tuple(events))
    return Call(
        request=request,
        dialect=dialect.id,
        decisions=(),
        response=response,
        seconds=0.0,
        attempts=1,
        reply=reply,
        digest_as_sent=seen.reply_sha256,
        wire=WireRequest(seen.path, seen.body, stream=seen.streamed),
    )


def _numbered(made: list[Artifact]) -> list[Artifact]:
    """Artifacts of a batch, with ids that tell the prompts apart."""
    renamed = []
    for i, artifact in enumerate(made):
        name = hashlib.sha256(f"{artifact.artifact_id}/{i}".encode()).hexdigest()[:32]
        renamed.append(art.seal(replace(artifact, artifact_id=name, seal=None)))
    return renamed


_NEUTRAL: dict[str, object] = {
    "logit_bias": {},
    "bad_words": (),
    "allowed_ids": (),
    "min_tokens": 0,
    "stop": (),
    "stop_token_ids": (),
    "ignore_eos": False,
}
"""What vLLM takes where a request says nothing. Other leaves fall back to the model's generation config: unresolved."""
_WIRE_NAMES = {"allowed_ids": "allowed_token_ids"}
_NUMBERS = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")


def sampling(body: dict[str, object], facts: Facts) -> Sampling:
    """The sampling leaves that the request states, and those that vLLM's protocol fixes; the others are unresolved.

    Raises ArtifactError for a value that no engine takes.
    """
    known = dict(_NEUTRAL) if facts.engine == "vllm" else {}
    known |= {name: body[wire] for name, wire in _names() if body.get(wire) is not None}
    known["structured_output"] = _constraint(body)
    if isinstance(known.get("stop"), str):
        known["stop"] = (known["stop"],)
    if known.get("top_k") == -1:
        known["top_k"] = 0
    limit = body.get("max_completion_tokens")
    known |= {"max_tokens": limit} if limit is not None else {}
    seed = body.get("seed")
    if isinstance(seed, int) and seed >= 0:
        known["seed"] = {"value": seed, "origin": "requester"}
    try:
        return msgspec.convert(known, Sampling, strict=False)
    except msgspec.ValidationError as error:
        raise ArtifactError(f"the request's sampling cannot be read: {error}") from None


def _names() -> Iterator[tuple[str, str]]:
    """Pairs (leaf of the artifact, its name on the wire)."""
    for name in (*_NUMBERS, "top_k", "max_tokens", *_NEUTRAL):
        yield name, _WIRE_NAMES.get(name, name)


def _constraint(body: dict[str, object]) -> str:
    """SHA-256 of what constrains the text, as canonical JSON; "" where nothing does."""
    told = {name: body[name] for name in ("structured_outputs", "response_format") if body.get(name)}
    if told.get("response_format") == {"type": "text"}:
        del told["response_format"]
    if _forced(body):
        told |= {"tools": body.get("tools"), "tool_choice": body.get("tool_choice")}
    if not told:
        return ""
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _forced(body: dict[str, object]) -> bool:
    """Whether a grammar holds the tool calls: a forced call, or a function with `strict`."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    if not isinstance(tools, list) or not tools or choice == "none":
        return False
    return choice == "required" or isinstance(choice, dict) or any('"strict": true' in json.dumps(t) for t in tools)


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
